"""Compiles the numba ports to PTX without a GPU, and audits it (C1, C2): the part of ``samebits compile-check`` that needs numba-cuda.

Each port runs over all cases' arrays in a process without the simulator, and what it would launch is compiled for sm_90 instead: once for
every combination of dtypes and numbers of axes, or with ``everything`` of constants and numbers of axes. What was compiled before comes
from the cache.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from emu import launching
from kernels_cu import build
from tools import cases, ports, ptx
from tools.numba_gpu import environment
from tools.ports import ROOT

ARCH = (9, 0)


@dataclass(frozen=True)
class Row:
    """One kernel of a port, compiled for the arguments of a case. ``instructions``: of the PTX. ``findings``: what must not be."""

    stem: str
    case: str
    kernel: str
    seconds: float
    instructions: int
    findings: list[ptx.Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """What `check` found. ``missing``: why nothing was compiled, or None."""

    rows: list[Row]
    without_kernel: list[str]
    missing: str | None = None

    def problems(self) -> list[str]:
        """A line for every finding."""
        found = [(row, finding) for row in self.rows for finding in row.findings]
        return [f"{row.stem}: port, {finding.place}: {finding.rule}: {finding.detail} (case {row.case})" for row, finding in found]

    def summary(self) -> str:
        """One line that says what was done."""
        if self.missing:
            return f"ports: not compiled: {self.missing}"
        slowest = max(self.rows, key=lambda row: row.seconds, default=None)
        longest = f", the longest in {slowest.seconds:.1f} s ({slowest.stem}/{slowest.case})" if slowest else ""
        none = f"; without a kernel: {', '.join(self.without_kernel)}" if self.without_kernel else ""
        return f"ports: {len(self.rows)} kernels compiled to PTX for sm_{ARCH[0]}{ARCH[1]}{longest}{none}"


def missing() -> str | None:
    """Why ports cannot be compiled here; None where they can."""
    return None if importlib.util.find_spec("numba_cuda") else "numba-cuda is not installed (pip install -e '.[gpu]')"


def check(stems: Sequence[str], everything: bool = False, done: Callable[[str], None] = lambda stem: None) -> Report:
    """Compiles and audits the ports of the kernels, each in a process of its own, all cores busy; ``done(stem)`` after each."""
    reason = missing()
    if reason:
        return Report([], [], reason)
    able = [stem for stem in stems if ports.has_kernel(stem)]
    rows: list[Row] = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {pool.submit(_in_a_process, stem, everything): stem for stem in able}
        for future in concurrent.futures.as_completed(futures):
            rows += future.result()
            done(futures[future])
    return Report(sorted(rows, key=lambda row: (row.stem, row.case, row.kernel)), [stem for stem in stems if stem not in able])


def _in_a_process(stem: str, everything: bool) -> list[Row]:
    command = [sys.executable, "-m", "tools.compile_ports", stem, *(["--all"] if everything else [])]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False)
    if ended.returncode:
        finding = ptx.Finding(f"emu/{stem}.py", "does not compile", ended.stderr.strip()[-2000:])
        return [Row(stem, "-", "-", 0.0, 0, [finding])]
    rows = json.loads(ended.stdout.rpartition("\n")[2])
    return [Row(**{**row, "findings": [ptx.Finding(**finding) for finding in row["findings"]]}) for row in rows]


# -- in the process ------------------------------------------------------------------------------------------------------------------


def _texts(stem: str) -> list[str]:
    """Everything that what is compiled and found depends on, beside the launch itself."""
    paths = [ROOT / "emu" / "launching.py", ROOT / "emu" / "simt" / "ptx.py", Path(ptx.__file__ or ""), Path(__file__)]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numba", "numba-cuda", "numpy")]
    return [*versions, *(f"{name}\0{text}" for name, text in ports.texts(stem).items()), *(path.read_text() for path in paths)]


def _key(launch: launching.Launch, case: cases.Case, stem: str) -> list[str]:
    """What tells this compilation from others of the same texts: types, constants of the case, and those that the kernel closes over."""
    closed = inspect.getclosurevars(launch.kernel.py_func).nonlocals
    plain = {name: value for name, value in closed.items() if isinstance(value, int | str) or hasattr(value, "mangling_args")}
    constants = [f"{name}={value!r}" for name, value in sorted(plain.items())]
    axes = cases.kernel(stem).constants_of(case.dtypes, case.shape)
    return [stem, launch.name, str(launch.signature()), str(axes), str(sorted(case.dtypes.items())), *constants]


def compile_cases(stem: str, everything: bool) -> list[Row]:
    """Runs in a process of its own: compiles what the port launches for its cases."""
    from emu.simt.ptx import compile_ptx

    texts = _texts(stem)
    rows: list[Row] = []
    seen: set[Any] = set()
    case: cases.Case
    kind: Any

    def handle(launch: launching.Launch) -> None:
        axes = tuple(getattr(argument, "ndim", None) for argument in launch.args)
        if (launch.name, kind, axes) in seen:
            return
        seen.add((launch.name, kind, axes))

        def make(out: Path) -> None:
            start = time.perf_counter()
            text = compile_ptx(launch.kernel, launch.signature(), ARCH)
            row = Row(stem, case.id, launch.name, time.perf_counter() - start, sum(1 for _ in ptx.instructions(text)), ptx.audit(text))
            out.write_text(json.dumps(asdict(row)))

        found = json.loads(build.cached([*texts, *_key(launch, case, stem)], f"{stem}.port.json", make).read_text())
        findings = [ptx.Finding(**finding) for finding in found["findings"]]
        rows.append(Row(stem, case.id, launch.name, found["seconds"], found["instructions"], findings))

    launching.take_over(handle)
    for case in cases.cases(stem):
        constants = cases.kernel(stem).constants_of(case.dtypes, case.shape) if everything else case.dtypes
        kind = tuple(sorted(constants.items()))
        call = cases.kernel(stem).bind(cases.views(cases.inputs(stem, case)))
        importlib.import_module(f"emu.{stem}").launch(call)
    if not rows:
        raise RuntimeError(f"{stem}: the port launches nothing")
    return rows


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps([asdict(row) for row in compile_cases(sys.argv[1], "--all" in sys.argv[2:])]))
