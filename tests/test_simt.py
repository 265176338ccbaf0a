"""The scheduler for numba.cuda kernels: grids, orders, arguments, shared memory, the command, speed."""

# ruff: noqa: ANN001, ANN201, ANN202  kernels carry no annotations

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32, uint16

from emu import simt
from tests.simt_help import fill, fires, launch

f32 = np.float32


# --- grids ---


def test_blocks_wait_for_each_other() -> None:
    @cuda.jit
    def kernel(x, out):
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        x[i] = i
        grid.sync()
        out[i] = x[len(x) - 1 - i]

    for order in ("forward", "reverse", "shuffle:3"):
        x, out = np.zeros(96, np.int32), np.zeros(96, np.int32)
        launch(kernel, 3, 32, x, out, check=True, order=order)
        assert out.tolist() == list(range(95, -1, -1))

    @cuda.jit
    def chained(flag):  # block b waits for block b + 1, which starts later
        b = cuda.blockIdx.x
        if b + 1 < cuda.gridDim.x:
            while cuda.atomic.add(flag, b + 1, 0) == 0:
                pass
        cuda.atomic.exch(flag, b, 1)

    flag = np.zeros(4, np.int32)
    launch(chained, 4, 1, flag, check=True)
    assert flag.tolist() == [1] * 4


def test_three_dimensions() -> None:
    @cuda.jit
    def kernel(out):
        x, y, z = cuda.grid(3)
        tid = cuda.threadIdx
        cuda.syncthreads()
        out[z, y, x] = tid.x + 10 * tid.y + 100 * tid.z + 1000 * cuda.blockIdx.y + 0 * sum(cuda.gridsize(3))

    out = np.zeros((4, 6, 4), np.int32)
    launch(kernel, (2, 2, 1), (2, 3, 4), out, check=True, order="shuffle:1")
    z, y, x = np.indices(out.shape)
    assert (out == x % 2 + 10 * (y % 3) + 100 * z + 1000 * (y // 3)).all()


@pytest.mark.parametrize(
    ("grid", "block", "shared", "text"),
    [
        ((1, 65536), 1, 0, "grid.y is 65536"),
        (1, 1025, 0, "block.x is 1025"),
        (1, (32, 33), 0, "1056 threads"),
        (0, 1, 0, "grid.x is 0"),
        (1, (1, 1, 65), 0, "block.z is 65"),
        (1, 1, 1 << 20, "1048576 bytes"),
    ],
)
def test_launches_that_hardware_refuses(grid: Any, block: Any, shared: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        launch(fill, grid, block, np.zeros(1), shared=shared)


# --- shared memory ---


def test_shared_arrays_of_one_line_do_not_alias() -> None:
    @cuda.jit
    def kernel(out):
        a, b = cuda.shared.array(32, int32), cuda.shared.array(32, int32)
        i = cuda.threadIdx.x
        a[i], b[i] = i, 100
        cuda.syncthreads()
        out[i] = a[31 - i] + b[i]

    out = np.zeros(32, np.int32)
    launch(kernel, 1, 32, out, check=True)
    assert out.tolist() == [131 - i for i in range(32)]


def test_shared_memory_is_poison_in_every_block() -> None:
    @cuda.jit
    def kernel(x, h, out):
        s, d, u = cuda.shared.array(4, float32), cuda.shared.array(0, uint16), cuda.shared.array(2, uint16)
        b = cuda.blockIdx.x
        out[b], h[b] = s[1], d[3]
        x[b] = u[0]
        s[1], d[3], u[0] = 7, 7, 7

    x, h, out = np.zeros(3, np.uint16), np.zeros(3, np.uint16), np.zeros(3, f32)
    launch(kernel, 3, 1, x, h, out, shared=8)
    assert np.isnan(out).all()
    assert np.isnan(h.view(np.float16)).all()
    assert ((x.astype(np.uint32) << 16).view(f32) != (x.astype(np.uint32) << 16).view(f32)).all(), "NaN as bf16 too"
    fires(simt.UninitialisedRead, "read of shared array (declared at ", ")[1]", kernel=kernel, grid=3, block=1, args=(x, h, out))


def test_dynamic_shared_memory_is_one_buffer() -> None:
    @cuda.jit
    def kernel(out):
        words, halves = cuda.shared.array(0, int32), cuda.shared.array(0, uint16)
        words[0] = 0x12345678
        out[0], out[1], out[2], out[3] = halves[0], halves[1], len(words), len(halves)

    out = np.zeros(4, np.int64)
    launch(kernel, 1, 1, out, shared=10, check=True)
    assert out.tolist() == [0x5678, 0x1234, 2, 5]


# --- orders ---


def test_orders() -> None:
    seen: list[int] = []

    @cuda.jit
    def kernel():
        seen.append(cuda.grid(1))
        cuda.syncthreads()
        seen.append(cuda.grid(1))

    def order(name: str) -> list[int]:
        seen.clear()
        launch(kernel, 2, 4, order=name)
        return seen.copy()

    assert order("forward") == [0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2
    assert order("reverse") == [7, 6, 5, 4] * 2 + [3, 2, 1, 0] * 2
    assert order("shuffle:1") == order("shuffle:1") != order("shuffle:2")
    assert sorted(order("shuffle:1")) == sorted(order("forward"))
    for bad in ("random", "shuffle", "shuffle:x", ""):
        with pytest.raises(ValueError, match="order"):
            order(bad)


# --- arguments ---


def test_arguments_are_used_in_place_and_hints_are_kept() -> None:
    @cuda.jit
    def kernel(a, b, c, d, n):
        i = cuda.threadIdx.x
        a[i] += n
        b[i] += n
        d[i] = c[i]
        c[i] = 5

    whole = np.zeros(8, np.int32)
    device, kept, out = cuda.to_device(np.arange(4, dtype=np.int32)), np.zeros(4, f32), np.zeros(4, f32)
    launch(kernel, 1, 4, whole[1::2], device, cuda.In(kept), cuda.Out(out), np.int32(3))
    assert whole.tolist() == [0, 3] * 4
    assert device.copy_to_host().tolist() == [3, 4, 5, 6]
    assert kept.tolist() == [0] * 4
    assert out.tolist() == [0] * 4


def test_device_arrays_start_as_poison_and_tuples_carry_arrays() -> None:
    @cuda.jit
    def kernel(pair, out):
        i = cuda.threadIdx.x
        out[i] = pair[0][i] + pair[1][i]

    a, b = cuda.device_array(4, f32), cuda.device_array_like(np.zeros((4, 4), f32)[:, ::2])
    assert np.isnan(a.copy_to_host()).all()
    assert np.isnan(b.copy_to_host()).all()
    out = np.zeros(4, f32)
    launch(kernel, 1, 4, (np.arange(4, dtype=f32), cuda.to_device(np.ones(4, f32))), out, check=True)
    assert out.tolist() == [1, 2, 3, 4]
    short = (np.zeros(4, f32), np.zeros(3, f32))
    fires(simt.OutOfBounds, "index [3] of pair[1], shape (3,)", kernel=kernel, block=4, args=(short, out))


def test_records_and_device_functions() -> None:
    @cuda.jit(device=True)
    def twice(x):
        cuda.syncthreads()
        return x + x

    @cuda.jit
    def kernel(r, out):
        i = cuda.threadIdx.x
        r[i].b = r[i].a + 1
        out[i] = twice(r[i]["b"])

    r, out = np.zeros(4, [("a", np.int32), ("b", np.float32)]), np.zeros(4, f32)
    r["a"] = range(4)
    for check in (False, True):
        launch(kernel, 1, 4, r, out, check=check)
        assert out.tolist() == [2, 4, 6, 8]


def test_uninstall_gives_numba_its_simulator_back() -> None:
    from numba.cuda.simulator.kernel import FakeCUDAKernel

    mine = FakeCUDAKernel.__call__
    simt.uninstall()
    try:
        assert FakeCUDAKernel.__call__ is not mine
        assert "shfl_sync" not in vars(cuda)
        with simt.running():
            assert FakeCUDAKernel.__call__ is mine
        assert FakeCUDAKernel.__call__ is not mine
    finally:
        simt.install()


# --- the command ---

SCRIPT = """
import sys
import numpy as np
from numba import cuda
import numba

@cuda.jit
def shift(x, n):
    i = cuda.threadIdx.x
    x[i] = cuda.shfl_down_sync(0xFFFFFFFF, x[i], n)
    if n > 1 and i == 31:
        x[i + n] = 0

x = np.arange(32, dtype=np.int32)
try:
    shift[1, numba.int32(32)](x, int(sys.argv[1]))
except IndexError:
    print("a script that goes on")
print(x[0], __name__)
"""


@pytest.mark.parametrize(("argument", "code"), [("1", 0), ("2", 1)])
def test_the_command_runs_a_script(tmp_path: Path, argument: str, code: int) -> None:
    script, found = tmp_path / "shift.py", tmp_path / "found.json"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "emu.simt", "--check", "--order", "reverse", "--json", str(found), str(script), argument]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == code, done.stderr
    reports = json.loads(found.read_text())
    if code == 0:
        assert reports == []
        assert done.stdout == "1 __main__\n"
    else:
        (report,) = reports
        assert sorted(report) == ["block", "file", "kernel", "kind", "line", "message", "other", "thread"]
        assert (report["kind"], report["kernel"], report["line"], report["thread"]) == ("out-of-bounds", "shift", 12, [31, 0, 0])
        assert "shift.py:12" in done.stderr


# --- speed ---


@cuda.jit
def nine_barriers(x, out):
    s = cuda.shared.array(256, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    cuda.syncthreads()
    n = 128
    while n:
        if i < n:
            s[i] = s[i] + s[i + n]
        cuda.syncthreads()
        n //= 2
    if i == 0:
        out[0] = s[0]


def test_a_block_of_256_threads_with_nine_barriers_is_fast_enough() -> None:
    x, out = np.arange(256, dtype=f32), np.zeros(1, f32)

    def milliseconds(run: Callable[[], None], times: int) -> float:
        """Median of processor time: other work on the machine does not count."""
        taken = []
        for _ in range(times):
            out[0] = 0
            start = time.process_time()
            run()
            taken.append(time.process_time() - start)
            assert out[0] == 255 * 128
        return 1000 * statistics.median(taken)

    plain = milliseconds(lambda: launch(nine_barriers, 1, 256, x, out), 9)
    checked = milliseconds(lambda: launch(nine_barriers, 1, 256, x, out, check=True), 9)
    simt.uninstall()
    try:
        stock = milliseconds(lambda: nine_barriers[1, 256](x, out), 1)
    finally:
        simt.install()
    assert plain <= 15
    assert checked <= 40
    assert plain < stock / 5, f"{plain:.1f} ms here, {stock:.1f} ms on numba's own scheduler"


def test_math_isnan_and_range_work_on_elements() -> None:
    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[i] = math.isnan(x[i])

    out = np.zeros(2, np.bool_)
    launch(kernel, 1, 2, np.array([np.nan, 1], f32), out, check=True)
    assert out.tolist() == [True, False]
