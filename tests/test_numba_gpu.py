"""The leg numba-gpu without a GPU: calls as plain data, a worker whose machine is this one, what is compiled instead of launched."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from pyref.spec import Call
from tools import cases, compile_ports, legs, numba_gpu, ports, verify
from tools.arena import Region

STEMS = [stem for stem in cases.stems() if ports.has_kernel(stem)]


class Memory:
    """Device memory that is host memory: copies at addresses of their own."""

    def __init__(self) -> None:
        self._held: dict[int, np.ndarray] = {}

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._held.values():
            buffer[:] = 0

    def upload(self, buffer: np.ndarray) -> int:
        copy = Region(buffer, buffer).copy().buffer
        self._held[copy.ctypes.data] = copy
        return copy.ctypes.data

    def download(self, buffer: np.ndarray, address: int) -> None:
        buffer[:] = self._held[address]


class Here(numba_gpu.Machine):
    """A machine whose kernels run in the simulator."""

    memory = Memory

    def __init__(self) -> None:
        self._axes: dict[tuple[str, str], tuple[int | None, ...]] = {}

    def array(self, like: np.ndarray, address: int) -> np.ndarray:
        low, high = (end - like.ctypes.data for end in np.lib.array_utils.byte_bounds(like))
        memory = (ctypes.c_uint8 * (high - low)).from_address(address + low)
        return np.ndarray(like.shape, like.dtype, memory, -low, like.strides)

    def launch(self, launch: Any, args: tuple[Any, ...]) -> None:
        from emu import simt

        axes = tuple(getattr(argument, "ndim", None) for argument in args)
        known = self._axes.setdefault((launch.kernel.py_func.__module__, launch.name), axes)
        if axes != known:  # an index that is never evaluated has a type all the same
            raise TypeError(f"{launch.name}: got arguments of {axes} axes, {known} in a launch before: no compiler could type both")
        with simt.running():
            launch.kernel[launch.grid, launch.block, 0, launch.shared](*args)

    def synchronize(self, name: str) -> None:
        pass


SERVE = """
import os, sys
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
from tests.test_numba_gpu import Here
from tools import numba_gpu
numba_gpu.device.missing = numba_gpu.unusable = lambda: None
numba_gpu.Machine = Here
numba_gpu.serve(sys.stdin.buffer, sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def process() -> Any:
    """A worker process whose device is the simulator."""
    made = numba_gpu.Process((sys.executable, "-c", SERVE))
    yield made
    made.close()


def launch_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a port up to its launches, whose geometry the scheduler checks."""
    from emu import simt
    from emu.simt import kernel

    with monkeypatch.context() as patch, simt.running():
        patch.setattr(kernel.Launch, "run", lambda launch: None)
        importlib.import_module(f"emu.{call.kernel.stem}").launch(call)


@pytest.mark.parametrize("stem", STEMS)
def test_the_worker_computes_on_copies_and_sends_them_back(stem: str, process: numba_gpu.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the least case of every set of arguments that are given, and of those over nothing. Of cases that no simulator can run, grids
    and blocks are looked at: a port once had more sequences along z than a grid has blocks there."""
    monkeypatch.setattr(numba_gpu, "run", process.run)
    least: dict[Any, tuple[int, cases.Case]] = {}
    for case in cases.cases(stem):
        call = cases.kernel(stem).bind(cases.views(cases.inputs(stem, case)))
        if legs.Sim().declines(call):
            launch_nothing(call, monkeypatch)
        given = tuple(name for name, array in call.arrays.items() if array is not None)
        work, nothing = cases.kernel(stem).work(call), min(call.axes.values()) == 0
        least[given, nothing] = min(least.get((given, nothing), (work, case)), (work, case), key=lambda found: found[0])
    written = 0
    for work, case in least.values():
        if work > legs.Sim.QUICK // 3:
            continue
        arguments = cases.inputs(stem, case)
        wanted, _, _ = verify.run_leg(stem, legs.leg("ref"), arguments)
        got, declined, _ = verify.run_leg(stem, legs.leg("numba-gpu"), arguments)
        assert declined is None
        found, total = verify.differences(stem, got, arguments, wanted)
        assert not found, case.id
        written += total
    assert written


def test_an_error_of_the_port_comes_back_and_the_worker_lives(process: numba_gpu.Process) -> None:
    stem = "store_kv"
    arguments = cases.inputs(stem, cases.cases(stem)[0])
    regions = {name: value for name, value in arguments.items() if isinstance(value, Region)}
    call = cases.kernel(stem).bind(cases.views(arguments))
    slots = regions["slots"]
    with pytest.raises(numba_gpu.WorkerError, match="dtype"):
        process.run(call, {**regions, "slots": Region(slots.buffer, slots.view.view(np.uint8))})
    process.run(call, regions)


def test_a_packed_call_is_the_same_call() -> None:
    stem = "paged_attention_v1"
    for case in cases.cases(stem)[:40:7]:
        arguments = cases.inputs(stem, case)
        call = cases.kernel(stem).bind(cases.views(arguments))
        regions = {name: value for name, value in arguments.items() if isinstance(value, Region)}
        again, copies = numba_gpu.unpack(stem, numba_gpu.pack(call, regions))
        assert (again.axes, again.dtypes, again.scalars) == (call.axes, call.dtypes, call.scalars)
        for name, region in regions.items():
            mine = copies[name]
            assert mine.buffer.tobytes() == region.buffer.tobytes()
            assert mine.buffer.ctypes.data != region.buffer.ctypes.data
            assert (mine.offset, mine.view.shape, mine.view.strides) == (region.offset, region.view.shape, region.view.strides)
            assert mine.view.ctypes.data % 256 == region.view.ctypes.data % 256


def test_a_worker_that_ends_is_an_error_with_its_exit_code() -> None:
    with pytest.raises(numba_gpu.WorkerError, match="exit code 3"):
        numba_gpu.Process((sys.executable, "-c", "raise SystemExit(3)"))


def test_the_leg_says_why_it_is_missing() -> None:
    reason = legs.leg("numba-gpu").missing()
    real = numba_gpu.Process()
    try:
        if importlib.util.find_spec("numba_cuda") is None:
            assert reason
        else:
            assert real.reason == reason
        assert real.reason or not reason
    finally:
        real.close()


def test_ports_without_a_kernel_are_declined() -> None:
    assert not ports.has_kernel("compare_key")
    assert set(STEMS) == {stem for stem in cases.stems() if not cases.kernel(stem).cpu}


def test_ports_compile_to_ptx_that_nothing_can_contract() -> None:
    report = compile_ports.check(["store_kv", "compare_key"])
    assert report.problems() == []
    if importlib.util.find_spec("numba_cuda") is None:
        assert report.missing == compile_ports.missing()
        assert "numba-cuda is not installed" in report.summary()
    else:
        assert report.without_kernel == ["compare_key"]
        assert {row.kernel for row in report.rows} == {"store_rows"}
        assert all(row.instructions > 50 for row in report.rows)


def test_findings_become_lines() -> None:
    finding = compile_ports.ptx.audit(".visible .entry f()\n{\n mul.f32 %f1, %f2, %f3;\n}")
    report = compile_ports.Report([compile_ports.Row("a", "b", "c", 1.0, 1, finding)], [])
    (line,) = report.problems()
    assert line.startswith("a: port, f: C2: no .rn")
    assert line.endswith("(case b)")
