"""``samebits bench-emulator``: what the emulator costs, against numba's stock simulator and this project's port, in one run.

All figures are processor time of one core. Results are ``results/emulator/<machine>-<date>.json``: {machine, date, compiler, plain,
checked, check_cost, saxpy_threads_per_s, stock_barrier_ns, barrier_ratio, v1, compile_s}. ``plain`` and ``checked`` are nanoseconds a
CUDA thread (saxpy, histogram), a thread and barrier or shuffle, or a thread and step (matmul) of emu/host/benchmark.cu.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emu.host import build as host
from emu.host.compiler import version
from tools import cases, legs
from tools.run import execute, program

SOURCE = cases.ROOT / "emu" / "host" / "benchmark.cu"
_STOCK = """
import time
from numba import cuda
@cuda.jit
def barriers(count):
    for i in range(count):
        cuda.syncthreads()
barriers[1, 64](1)
begin = time.process_time()
barriers[1, 64](50)
print((time.process_time() - begin) * 1e9 / (64 * 50))
"""
_SMALL = "__global__ void k(float* x) {\n  x[threadIdx.x] += 1;\n}\nint main() {\n  k<<<1, 32>>>(nullptr);\n}\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", type=Path, help="where to write the results (default: results/emulator/<machine>-<date>.json)")


def _programs(check: bool) -> dict[str, float]:
    """Nanoseconds of the kernels of benchmark.cu."""
    os.environ["SAMEBITS_WORKERS"] = "1"
    outcome = execute(program(SOURCE, check=check), check=check, capture=True)
    return json.loads(outcome.output)


def _spent(work: Callable[[], object]) -> float:
    """Least processor time of three runs, after one that warms up."""
    found = []
    for _ in range(4):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found[1:])


def _v1() -> dict[str, Any]:
    """Blocks a second of the classic kernel on the emulator, plain and checked, and on the port: the largest case the port takes."""
    stem, best = "paged_attention_v1", None
    for case in cases.cases(stem):
        call = cases.kernel(stem).bind(cases.views(cases.inputs(stem, case)))
        if legs.Sim().declines(call) is None and (best is None or call.kernel.work(call) > best[1].kernel.work(best[1])):
            best = (case, call)
    assert best is not None
    case, call = best
    blocks = call.arrays["out"].shape[0] * call.arrays["out"].shape[1]
    spent = {}
    for leg in (legs.Host(), legs.HostCheck(), legs.Sim()):
        leg.run(call, {})  # builds
        spent[leg.name] = _spent(lambda leg=leg: leg.run(call, {}))
    rates = {f"blocks_per_s_{name}": round(blocks / seconds, 1) for name, seconds in spent.items()}
    return {"case": case.id, "blocks": blocks, **rates, "times_sim": round(spent["sim"] / spent["host"], 1),
            "check_cost": round(spent["host-check"] / spent["host"], 1)}  # fmt: skip


def _compile_seconds() -> float:
    """Wall time from a small source to its program; the runtime exists already."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "small.cu"
        source.write_text(_SMALL)
        found = []
        for _ in range(3):
            begin = time.perf_counter()
            host.build(source, out=Path(folder) / "small", program=True)
            found.append(time.perf_counter() - begin)
    return statistics.median(found)


def measure() -> dict[str, Any]:
    """All figures."""
    plain, checked = _programs(check=False), _programs(check=True)
    stock = subprocess.run(
        [sys.executable, "-c", _STOCK], env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, check=True
    )
    barrier = round(float(stock.stdout))
    return {
        "plain": plain,
        "checked": checked,
        "check_cost": {name: round(checked[name] / plain[name], 1) for name in plain},
        "saxpy_threads_per_s": round(1e9 / plain["saxpy"]),
        "stock_barrier_ns": barrier,
        "barrier_ratio": round(barrier / plain["barrier"]),
        "v1": _v1(),
        "compile_s": round(_compile_seconds(), 2),
    }


def run(args: argparse.Namespace) -> int:
    """The command."""
    names = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else []
    machine, today = (names or [os.uname().machine])[0], datetime.date.today().isoformat()
    compiler = host.need_compiler(None)
    data = {"machine": machine, "date": today, "compiler": version(compiler).splitlines()[0], **measure()}
    name = re.sub("[^a-z0-9]+", "-", machine.lower()).strip("-")
    path = args.json or cases.ROOT / "results" / "emulator" / f"{name}-{today}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data, indent=1))
    print(path, file=sys.stderr)
    return 0
