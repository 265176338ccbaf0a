"""Digests recorded from a real GPU: ``tests/golden/<gpu>.json``. A GPU run alone writes them; every other run is compared with them.

Format: {gpu, driver, toolkit, date, cases: {"<stem>/<case id>": {inputs, source, outputs: {name: sha256}}}}. ``inputs`` and ``outputs`` are
sha256 of little-endian bytes, ``source`` of the kernel's sources and nvcc's flags.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_cu import build
from tools import cases, device
from tools.arena import Region

FOLDER = cases.ROOT / "tests" / "golden"


@dataclass(frozen=True)
class Verdict:
    """``wrong``: the case contradicts a recording, and how. ``note``: why there was nothing to compare with. Both None: it agrees."""

    wrong: str | None = None
    note: str | None = None


def entry(stem: str, arguments: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one case: ``arguments`` before the run, ``results`` after it."""
    outputs = {name: cases.digest(results[name].view) for name in cases.kernel(stem).outputs if isinstance(results.get(name), Region)}
    return {"inputs": cases.inputs_digest(arguments), "source": build.sources_digest(stem), "outputs": outputs}


@functools.cache
def recordings() -> dict[str, dict[str, Any]]:
    """GPU name -> its file of recordings (of contract functions over all inputs there are others, which have no cases)."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
    return {name: data for name, data in found.items() if "cases" in data}


def judge(stem: str, case_id: str, now: Mapping[str, Any]) -> Verdict:
    """Compares a record made here with the recordings of that case.

    Different inputs or outputs contradict a recording. A recording from other sources still binds the outputs (a change of the CUDA
    text may not change bytes), and the note says that it was not recorded from this source.
    """
    notes = []
    for gpu, data in recordings().items():
        recorded = data["cases"].get(f"{stem}/{case_id}")
        if recorded is None:
            notes.append(f"not recorded on {gpu}")
            continue
        if recorded["inputs"] != now["inputs"]:
            return Verdict(wrong=f"{stem}/{case_id}: other inputs than those recorded on {gpu}: a changed case needs a new id")
        for name, digest in recorded["outputs"].items():
            got = now["outputs"].get(name)
            if got != digest:
                return Verdict(wrong=f"{stem}/{case_id}: {name}: sha256 {str(got)[:16]}..., recorded on {gpu}: {digest[:16]}...")
        if recorded["source"] != now["source"]:
            notes.append(f"not recorded from this source on {gpu}")
    return Verdict(note="; ".join(notes) if notes else None if recordings() else "no GPU has been recorded")


def write(entries: Mapping[str, Mapping[str, Any]]) -> Path:
    """Writes the recordings of the GPU in this machine and returns the file; earlier entries of cases that were not run now are kept."""
    gpu = device.current()
    path = FOLDER / f"{re.sub('[^a-z0-9]+', '-', gpu.name.lower()).strip('-')}.json"
    kept = json.loads(path.read_text())["cases"] if path.exists() else {}
    known = {f"{stem}/{case.id}" for stem in cases.stems() for case in cases.cases(stem)}
    nvcc = build.find_nvcc()
    data = {
        "gpu": gpu.name,
        "driver": gpu.driver,
        "toolkit": build.nvcc_version(nvcc) if nvcc else None,
        "date": datetime.date.today().isoformat(),
        "cases": {name: value for name, value in sorted({**kept, **entries}.items()) if name in known},
    }
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(scratch, path)
    return path
