"""The CUDA toolkits of a machine, and what one build by one of them shows without a GPU."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernels_cu import build
from tools import ptx


@dataclass(frozen=True)
class Toolkit:
    """An nvcc: ``version`` such as "13.0.88", ``arches`` the architectures that it compiles for ("sm_90" ...)."""

    nvcc: str
    version: str
    arches: frozenset[str]


@dataclass(frozen=True)
class Inspection:
    """What came out of one build: ``seconds`` of nvcc an architecture, ptxas's account of every entry, what must not be, and what
    compilers warn of."""

    seconds: float
    entries: list[ptx.Usage] = field(default_factory=list)
    findings: list[ptx.Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def toolkit(nvcc: str) -> Toolkit:
    """The toolkit of an nvcc. Raises ValueError where it cannot be run."""
    try:
        listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
        return Toolkit(nvcc, build.nvcc_version(nvcc), frozenset(listed.split()))
    except (OSError, subprocess.CalledProcessError, build.BuildError) as error:
        raise ValueError(f"{nvcc} does not run as nvcc: {error}") from error


def toolkits(given: Sequence[str] = ()) -> list[Toolkit]:
    """Those ``given``, or all that are found: the machine's and the pip wheels', each version once, the main one first."""
    if given:
        return [toolkit(nvcc) for nvcc in given]
    main = build.find_nvcc()
    found: dict[str, Toolkit] = {}
    for nvcc in ([main] if main else []) + build.wheel_nvccs():
        each = toolkit(nvcc)
        found.setdefault(each.version, each)
    return list(found.values())


def inspect(nvcc: str, unit: Path, constants: Mapping[str, str], arches: Sequence[str], folder: Path, compare: bool) -> Inspection:
    """Builds the CUDA source ``unit`` as a cubin for each of ``arches``, all from the PTX of the first, and reads that PTX and ptxas's
    account; works in ``folder``.

    ``compare``: the PTX of ``-fmad=true`` is made beside it, and both must be the same (C2). Raises BuildError where it does not compile.
    """
    kept = folder / "kept"
    kept.mkdir()
    command = build.nvcc_command(nvcc, constants, str(unit))
    codes = f"arch={arches[0].replace('sm', 'compute')},code=[{','.join(arches)}]"
    products = ["-fatbin", "-gencode", codes, "-Xptxas=-v", "-keep", "-keep-dir", str(kept), "-o", str(folder / "unit.fatbin")]
    start = time.perf_counter()
    log = build.run_nvcc([*command, *products])
    seconds = (time.perf_counter() - start) / len(arches)
    (separate,) = kept.glob("*.ptx")
    to_ptx = [*command, f"-arch={arches[0]}"]
    findings = _audit(separate.read_text(), _ptx(to_ptx, folder, fused=True) if compare else None)
    if findings:  # once more, with the lines of the source
        to_ptx = [*to_ptx, "-lineinfo"]
        findings = _audit(_ptx(to_ptx, folder, fused=False), _ptx(to_ptx, folder, fused=True) if compare else None)
    warnings = [line for line in log.splitlines() if re.search(r"\bwarning\b", line)]
    return Inspection(seconds, ptx.usages(log), findings, warnings)


def _ptx(command: Sequence[str], folder: Path, *, fused: bool) -> str:
    out = folder / "unit.ptx"
    build.run_nvcc([*("-fmad=true" if fused and part == "-fmad=false" else part for part in command), "-ptx", "-o", str(out)])
    return out.read_text()


def _audit(separate: str, fused: str | None) -> list[ptx.Finding]:
    """What the PTX of ``-fmad=true`` shows where there is one: with ``=false`` nvcc itself writes ``.rn`` after bare operators (C2)."""
    different = ptx.difference(fused, separate) if fused else None
    return ptx.audit(fused or separate) + ([different] if different else [])
