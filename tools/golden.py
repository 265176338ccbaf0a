"""Recorded digests, ``tests/golden/<machine>.json``: every run of the definition is compared with them. Only a run writes them.

``<gpu>.json`` comes from the kernels on a GPU, ``<gpu>-numba.json`` from the ports on it. ``tests/simulated.json`` is no such authority: it
says which cases that are slow on the simulator ran there and gave what. Those need not run again while nothing has changed that their
bytes depend on; what ran here lies in the cache of builds.

Format: {leg, gpu, driver, toolkit, date, cases: {"<stem>/<case id>": {inputs, source, outputs: {name: sha256}}}}. ``inputs`` and
``outputs`` are sha256 of little-endian bytes, ``source`` of the kernel's sources and nvcc's flags, or of the port's.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_cu import build
from tools import cases, device, ports
from tools.arena import Region

FOLDER = cases.ROOT / "tests" / "golden"
SIMULATED = FOLDER.parent / "simulated.json"


@dataclass(frozen=True)
class Verdict:
    """``wrong``: the case contradicts a recording, and how. ``note``: why there was nothing to compare with. Both None: it agrees."""

    wrong: str | None = None
    note: str | None = None


def source(stem: str, leg: str) -> str:
    """sha256 of the texts that decide a kernel's bytes on a leg."""
    return build.sources_digest(stem) if leg == "gpu" else ports.digest(stem, simulated=leg == "sim")


def outputs(stem: str, results: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of every output of a kernel among its arguments after a run."""
    return {name: cases.digest(results[name].view) for name in cases.kernel(stem).outputs if isinstance(results.get(name), Region)}


def entry(stem: str, inputs: str, outputs: Mapping[str, str], leg: str) -> dict[str, Any]:
    """The record of one case on a leg, from digests of its inputs and outputs."""
    return {"inputs": inputs, "source": source(stem, leg), "outputs": dict(outputs)}


def differing(recorded: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first output whose digest is not the recorded one, in words; None where all are equal."""
    wrong = next((name for name, digest in recorded.items() if now.get(name) != digest), None)
    return f"{wrong}: sha256 {str(now.get(wrong))[:16]}... instead of {recorded[wrong][:16]}..." if wrong else None


@functools.cache
def recordings() -> dict[str, dict[str, Any]]:
    """Machine -> its file of recordings (of contract functions over all inputs there are others, which have no cases)."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
    return {name: data for name, data in found.items() if "cases" in data}


@functools.cache
def _simulations() -> dict[str, dict[str, Any]]:
    """The cases of ``SIMULATED``."""
    return json.loads(SIMULATED.read_text())["cases"] if SIMULATED.exists() else {}


def _cached(inputs: str, source: str) -> Path:
    """Where outputs of the simulator are kept."""
    return build.cache_folder() / f"{hashlib.sha256((inputs + source).encode()).hexdigest()[:24]}-simulated.json"


def simulated(stem: str, case_id: str, inputs: str) -> dict[str, str] | None:
    """Digests of the outputs that the simulator once gave for these inputs and the sources of now; None where it has to run."""
    now = source(stem, "sim")
    recorded = _simulations().get(f"{stem}/{case_id}")
    if recorded and (recorded["inputs"], recorded["source"]) == (inputs, now):
        return recorded["outputs"]
    path = _cached(inputs, now)
    return json.loads(path.read_text()) if path.exists() else None


def keep(entry: Mapping[str, Any]) -> None:
    """Puts what the simulator gave into the cache."""
    path = _cached(entry["inputs"], entry["source"])
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(entry["outputs"]))
    os.replace(scratch, path)


def judge(stem: str, case_id: str, inputs: str, now: Mapping[str, str]) -> Verdict:
    """Compares digests made here with what GPUs gave in that case.

    Different inputs or outputs contradict a recording. A recording from other sources still binds the outputs (a change of the CUDA
    text may not change bytes), and the note says that it was not recorded from this source.
    """
    gpus, notes = recordings(), []
    for gpu, data in gpus.items():
        leg = data.get("leg", "gpu")
        recorded = data["cases"].get(f"{stem}/{case_id}")
        if recorded is None:
            notes += [f"not recorded on {gpu}"] if leg == "gpu" else []
            continue
        if recorded["inputs"] != inputs:
            return Verdict(wrong=f"{stem}/{case_id}: other inputs than those recorded on {gpu}: a changed case needs a new id")
        if wrong := differing(recorded["outputs"], now):
            return Verdict(wrong=f"{stem}/{case_id}: {wrong}, recorded on {gpu}")
        if recorded["source"] != source(stem, leg):
            notes.append(f"not recorded from this source on {gpu}")
    return Verdict(note="; ".join(notes) if notes else None if gpus else "no GPU has been recorded")


def write(entries: Mapping[str, Mapping[str, Any]], leg: str) -> Path:
    """Writes the recordings of a leg on this machine and returns the file; earlier entries of cases that were not run now are kept."""
    about: dict[str, Any] = {"leg": leg}
    path = SIMULATED
    if leg != "sim":
        gpu, nvcc = device.current(), build.find_nvcc()
        name = re.sub("[^a-z0-9]+", "-", gpu.name.lower()).strip("-") + ("" if leg == "gpu" else "-numba")
        toolkit = f"numba-cuda {importlib.metadata.version('numba-cuda')}" if leg == "numba-gpu" else nvcc and build.nvcc_version(nvcc)
        about |= {"gpu": gpu.name, "driver": gpu.driver, "toolkit": toolkit}
        path = FOLDER / f"{name}.json"
    kept = json.loads(path.read_text())["cases"] if path.exists() else {}
    known = {f"{stem}/{case.id}" for stem in cases.stems() for case in cases.cases(stem)}
    found = {name: value for name, value in sorted({**kept, **entries}.items()) if name in known}
    data = {**about, "date": datetime.date.today().isoformat(), "cases": found}
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(scratch, path)
    return path
