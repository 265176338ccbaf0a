"""Runs the contract's functions over all 2^32 binary32 inputs: digests that another machine must repeat, and on the host their errors.

A digest is that of ``kernels_cu/exhaustive/functions.cu``; recordings keep one for every 2^24 inputs, so that a test can repeat a part.
The error is in units in the last place of the exact result, which NumPy's float64 function stands for: its own error is some 2^-28 of such
a unit. Inputs whose result goes the wrong way from the binary32 before are counted.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels_cu import build

SOURCE = build.SOURCES / "exhaustive" / "functions.cu"
GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
CHUNK, CHUNKS, THREADS = 1 << 20, 4096, 256
GROUP = 16  # chunks under one recorded digest
BLOCK = 1 << 14  # inputs judged together: their float64 temporaries stay in a core's cache
OVERFLOW = 2.0**128 - 2.0**103  # what rounds to infinity


#: Functions of one operand in the source, each with the same function in float64 (growing with its operand) where errors are judged.
FUNCTIONS: dict[str, np.ufunc | None] = {
    "exp2": np.exp2,
    "exp": np.exp,
    "log2": np.log2,
    "log": np.log,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "ceil": None,
    "round_even": None,
    "from_f32_f16": None,
    "from_f32_bf16": None,
    "from_f32_e4m3": None,
    "from_f32_e5m2": None,
}


class ExhaustParams(ctypes.Structure):
    """As in the source."""

    _fields_ = (
        ("digests", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("first_chunk", ctypes.c_int64),
        ("chunks", ctypes.c_int64),
    )


class ApplyParams(ctypes.Structure):
    """As in the source."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Judgement:
    """``ulp``: greatest error, at the input ``worst``; ``wrong``: NaN, infinities, signs that differ; ``falls``: steps the wrong way."""

    ulp: float = 0.0
    worst: float = 0.0
    wrong: int = 0
    falls: int = 0

    def __add__(self, other: Judgement) -> Judgement:
        top = self if self.ulp >= other.ulp else other
        return Judgement(top.ulp, top.worst, self.wrong + other.wrong, self.falls + other.falls)


def built_library(target: str) -> Path:
    """The functions' library, built for "host" or "gpu". Raises BuildError, and DeviceError where there is no GPU."""
    key = [target, *(file.name + "\0" + file.read_text() for file in build.sources(SOURCE))]
    if target == "gpu":
        from tools import device

        arch, nvcc = device.current().arch, build.find_nvcc()
        if nvcc is None:
            raise build.BuildError("no nvcc: neither $NVCC, the path, $CUDA_HOME nor the pip wheels have it")
        command = build.nvcc_command(nvcc, {}, f"-arch={arch}", "-shared", "-Xcompiler=-fPIC", str(SOURCE))

        def make_gpu(out: Path) -> None:
            build.run_nvcc([*command, "-o", str(out)])

        return build.cached([*key, build.nvcc_version(nvcc), arch, *build.NVCC_FLAGS], "functions.so", make_gpu)
    from emu.host import build as host

    def make_host(out: Path) -> None:
        host.build(SOURCE, defines={}, include_dirs=[build.SOURCES], out=out, footer="")

    return build.cached([*key, host.fingerprint()], "functions.so", make_host)


def _call(path: Path, symbol: str, params: ctypes.Structure) -> None:
    code = getattr(build.load(path), symbol)(ctypes.byref(params), None)
    if code:
        raise RuntimeError(f"{symbol}: CUDA error {code}")


def host_apply(path: Path, name: str, *operands: np.ndarray) -> np.ndarray:
    """Bits (uint32[count]) of a function's results by a host library; up to three operands float32[count]."""
    values = np.zeros(len(operands[0]), np.uint32)
    held = [np.ascontiguousarray(x, np.float32) for x in operands]
    held += [np.zeros_like(held[0])] * (3 - len(held))
    _call(path, f"apply_{name}", ApplyParams(values.ctypes.data, *(x.ctypes.data for x in held), len(values)))
    return values


def host_chunk(path: Path, name: str, chunk: int) -> tuple[int, np.ndarray]:
    """(digest, bits of the results as uint32[2^20]) of one chunk, by a host library."""
    digests, values = np.zeros(THREADS, np.uint64), np.zeros(CHUNK, np.uint32)
    _call(path, f"exhaust_{name}", ExhaustParams(digests.ctypes.data, values.ctypes.data, chunk, 1))
    return int(digests.sum()), values


def host_digest(path: Path, name: str, chunk: int) -> int:
    """The digest of one chunk alone, by a host library."""
    digests = np.zeros(THREADS, np.uint64)
    _call(path, f"exhaust_{name}", ExhaustParams(digests.ctypes.data, 0, chunk, 1))
    return int(digests.sum())


def gpu_digests(path: Path, name: str) -> np.ndarray:
    """Digests of all chunks, by a GPU library: uint64[4096]."""
    from tools import device

    digests = np.zeros((CHUNKS, THREADS), np.uint64)
    with device.Memory() as memory:
        address = memory.upload(digests)
        _call(path, f"exhaust_{name}", ExhaustParams(address, 0, 0, CHUNKS))
        device.synchronize(f"exhaust_{name}")
        memory.download(digests, address)
    return digests.sum(axis=1)


def judge(exact: np.ufunc, patterns: np.ndarray, results: np.ndarray) -> Judgement:
    """Compares bits of results with a float64 function, at consecutive bit patterns of one sign."""
    x, y = patterns.view(np.float32), results.view(np.float32)
    total = Judgement(falls=_falls(patterns, y))
    for i in range(0, len(x), BLOCK):
        total += _judge_block(exact, x[i : i + BLOCK], y[i : i + BLOCK])
    return total


def _judge_block(exact: np.ufunc, x: np.ndarray, y: np.ndarray) -> Judgement:
    with np.errstate(all="ignore"):
        wanted, got = exact(x.astype(np.float64)), y.astype(np.float64)
        size = np.abs(wanted)
        finite = size < OVERFLOW
        wrong = (np.isnan(got) != np.isnan(wanted)) | (~finite & np.isfinite(got))
        wrong |= (np.signbit(got) != np.signbit(wanted)) & ~np.isnan(wanted)
        got = np.where(np.isinf(got), np.copysign(2.0**128, got), got)  # an infinite result of a finite value counts as 2^128
        power = np.maximum((size.view(np.int64) >> 52) - 23, 1023 - 149)  # biased exponent of an ulp of the exact result
        errors = np.where(finite, np.abs(got - wanted) / (power << 52).view(np.float64), 0.0)
    top = int(np.argmax(errors))
    return Judgement(float(errors[top]), float(x[top]), int(wrong.sum()))


def _falls(patterns: np.ndarray, y: np.ndarray) -> int:
    low, high = (y[1:], y[:-1]) if patterns[0] >> 31 else (y[:-1], y[1:])  # negative patterns count downwards
    with np.errstate(invalid="ignore"):
        return int((high < low).sum())


def host_group(path: Path, name: str, group: int) -> tuple[list[int], Judgement, np.ndarray]:
    """(digests of its chunks, judgement, bits of the first and the last result) of one group of chunks, by a host library."""
    exact = FUNCTIONS[name]
    digests, total, ends = [], Judgement(), []
    for chunk in range(group * GROUP, (group + 1) * GROUP):
        digest, values = host_chunk(path, name, chunk)
        digests.append(digest)
        ends.append(values[[0, -1]])
        if exact is not None:
            first = chunk * CHUNK
            total += judge(exact, np.arange(first, first + CHUNK, dtype=np.uint64).astype(np.uint32), values)
    seams = np.concatenate(ends)[1:-1].reshape(-1, 2).view(np.float32)
    if exact is not None:
        total += Judgement(falls=sum(_falls(np.array([group << 24], np.uint32), seam) for seam in seams))
    return digests, total, np.array([ends[0][0], ends[-1][1]], np.uint32)


def host_run(path: Path, name: str, jobs: int) -> Iterator[tuple[list[int], Judgement]]:
    """(digests of its chunks, judgement) of every group in ascending order, by ``jobs`` processes."""
    last = None
    work = functools.partial(host_group, path, name)
    with ProcessPoolExecutor(jobs) as pool:
        for group, (digests, judgement, ends) in enumerate(pool.map(work, range(CHUNKS // GROUP))):
            if last is not None and FUNCTIONS[name] is not None and group != CHUNKS // GROUP // 2:
                seam = np.array([last, ends[0]], np.uint32).view(np.float32)
                judgement += Judgement(falls=_falls(np.array([group << 24], np.uint32), seam))
            last = ends[1]
            yield digests, judgement


def recordings() -> dict[str, dict[str, Any]]:
    """File stem -> what an earlier run recorded there."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("exhaustive_*.json"))}


def group_digests(digests: np.ndarray) -> list[str]:
    """Sums over groups of chunks, as 16 hex digits each."""
    return [f"{int(total):016x}" for total in np.asarray(digests, np.uint64).reshape(-1, GROUP).sum(axis=1)]


def compare(name: str, groups: list[str]) -> list[str]:
    """How the digests of a function contradict the recordings of other runs."""
    problems = []
    for stem, data in recordings().items():
        entry = data["functions"].get(name)
        recorded = entry["groups"].split() if entry else groups
        wrong = [i for i, (a, b) in enumerate(zip(recorded, groups, strict=True)) if a != b]
        if wrong:
            problems.append(f"{name}: {len(wrong)} of {len(groups)} groups differ from {stem}, the first at pattern {wrong[0] << 24:#010x}")
    return problems


def _run_function(name: str, target: str, jobs: int) -> tuple[dict[str, Any], str]:
    path = built_library(target)
    judgement = Judgement()
    if target == "gpu":
        digests = gpu_digests(path, name)
    else:
        found: list[int] = []
        for group, (part, one) in enumerate(host_run(path, name, jobs)):
            found += part
            judgement += one
            if sys.stderr.isatty():
                print(f"\r{name}: {group + 1} of {CHUNKS // GROUP}", end="", file=sys.stderr, flush=True)
        digests = np.array(found, np.uint64)
    groups = group_digests(digests)
    entry: dict[str, Any] = {"digest": hashlib.sha256(" ".join(groups).encode()).hexdigest(), "groups": " ".join(groups)}
    text = ""
    if target == "host" and FUNCTIONS[name] is not None:
        entry |= {"max_ulp": round(judgement.ulp, 4), "worst_input": judgement.worst.hex()}
        entry |= {"wrong": judgement.wrong, "falls": judgement.falls}
        text = f"max {judgement.ulp:.4f} ulp at {judgement.worst.hex()}, {judgement.wrong} wrong, {judgement.falls} steps the wrong way"
    return entry, text


def _machine(target: str) -> tuple[str, dict[str, str]]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    if target == "gpu":
        from tools import device

        gpu, nvcc = device.current(), build.find_nvcc()
        return gpu.name, {"machine": gpu.name, "driver": gpu.driver, "toolkit": build.nvcc_version(nvcc) if nvcc else "", "date": today}
    from emu.host import build as host

    compiler = host.find_compiler() or ""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return f"host {platform.machine()}", {"machine": platform.machine(), "compiler": version, "date": today}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``run``."""
    parser.add_argument("--target", choices=("host", "gpu"), default="host")
    names = ", ".join(FUNCTIONS)
    parser.add_argument("--function", action="append", choices=list(FUNCTIONS), metavar="NAME", help=f"one of {names}; default all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of a host run")
    parser.add_argument("--record", action="store_true", help="write tests/golden/exhaustive_<machine>.json")


def run(args: argparse.Namespace) -> int:
    """Prints a line a function; 1 where a digest contradicts a recording, an error exceeds 1 ulp or a special value is wrong."""
    machine, record = _machine(args.target)
    functions: dict[str, Any] = {}
    problems: list[str] = []
    for name in args.function or FUNCTIONS:
        start = time.perf_counter()
        entry, text = _run_function(name, args.target, args.jobs)
        functions[name] = entry
        problems += compare(name, entry["groups"].split())
        if entry.get("max_ulp", 0) > 1 or entry.get("wrong", 0):
            problems.append(f"C4: {name}: {text}")
        print(f"\r{name:15} {entry['digest'][:16]} {time.perf_counter() - start:7.1f} s  {text}", flush=True)
    for problem in problems:
        print(problem)
    if args.record and not problems:
        stem = "exhaustive_" + re.sub(r"[^a-z0-9]+", "_", machine.lower()).strip("_")
        path = GOLDEN / f"{stem}.json"
        kept: Mapping[str, Any] = json.loads(path.read_text())["functions"] if path.exists() else {}
        path.write_text(json.dumps(record | {"functions": {**kept, **functions}}, indent=1) + "\n")
        print(f"recorded in {path.relative_to(GOLDEN.parent.parent)}")
    return bool(problems)


def main() -> int:
    """The command by itself: ``python -m tools.exhaustive``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
