"""Kernels as people write them for numba.cuda, unchanged on the scheduler, with all checks silent and in several orders."""

# ruff: noqa: ANN001, ANN202  kernels carry no annotations

from __future__ import annotations

import math
from typing import Any

import numba
import numba.cuda
import numpy as np
import pytest
from numba import cuda, float32, int32

from emu import simt
from tests.simt_help import FULL, fires, launch

ORDERS = ("forward", "reverse", "shuffle:11")
f32 = np.float32


@pytest.fixture(params=ORDERS)
def run(request: pytest.FixtureRequest) -> Any:
    """launch(...) under checks, in one of the orders."""
    return lambda kernel, grid, block, *args, **kw: launch(kernel, grid, block, *args, check=True, order=request.param, **kw)


def test_tiled_matrix_product(run: Any) -> None:
    TILE = 8

    @cuda.jit(fastmath=True, max_registers=64)
    def matmul(A, B, C):
        sA = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
        sB = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        acc = float32(0.0)
        for i in range((A.shape[1] + TILE - 1) // TILE):
            sA[ty, tx] = A[y, tx + i * TILE] if y < A.shape[0] and tx + i * TILE < A.shape[1] else 0
            sB[ty, tx] = B[ty + i * TILE, x] if x < B.shape[1] and ty + i * TILE < B.shape[0] else 0
            cuda.syncthreads()
            for j in range(TILE):
                acc += sA[ty, j] * sB[j, tx]
            cuda.syncthreads()
        if y < C.shape[0] and x < C.shape[1]:
            C[y, x] = acc

    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (13, 19)).astype(f32), rng.integers(-4, 5, (19, 10)).astype(f32)
    c = cuda.device_array((13, 10), f32)
    run(matmul, (2, 2), (TILE, TILE), cuda.to_device(a), cuda.to_device(b), c)
    assert (c.copy_to_host() == a @ b).all()


def test_reduction_by_shuffles_and_one_atomic(run: Any) -> None:
    @cuda.jit(device=True)
    def warp_sum(v):
        offset = 16
        while offset > 0:
            v += cuda.shfl_down_sync(FULL, v, offset)
            offset >>= 1
        return v

    @cuda.jit
    def total(x, out):
        partial = cuda.shared.array(32, int32)
        acc = int32(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            acc += x[i]
        acc = warp_sum(acc)
        warp, lane = cuda.threadIdx.x // cuda.warpsize, cuda.laneid
        if lane == 0:
            partial[warp] = acc
        cuda.syncthreads()
        if warp == 0:
            acc = partial[lane] if lane < cuda.blockDim.x // 32 else int32(0)
            acc = warp_sum(acc)
            if lane == 0:
                cuda.atomic.add(out, 0, acc)

    x, out = np.arange(1000, dtype=np.int32), np.zeros(1, np.int32)
    run(total, 3, 128, x, out)
    assert out[0] == x.sum()


def test_scan_that_swaps_its_buffers(run: Any) -> None:
    @cuda.jit
    def scan(x, out):
        buffers = cuda.shared.array((2, 64), int32)
        i = cuda.threadIdx.x
        now, then = 0, 1
        buffers[0, i] = x[i]
        cuda.syncthreads()
        step = 1
        while step < 64:
            buffers[then, i] = buffers[now, i] + (buffers[now, i - step] if i >= step else 0)
            now, then = then, now
            step *= 2
            cuda.syncthreads()
        out[i] = buffers[now, i]

    x, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run(scan, 1, 64, x, out)
    assert (out == np.cumsum(x)).all()


def test_histogram_in_shared_memory(run: Any) -> None:
    @cuda.jit
    def histogram(x, bins):
        local = cuda.shared.array(16, np.int32)
        t = cuda.threadIdx.x
        if t < 16:
            local[t] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), len(x), cuda.gridsize(1)):
            cuda.atomic.add(local, x[i] % 16, 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(bins, t, local[t])

    x, bins = np.random.default_rng(1).integers(0, 256, 700).astype(np.uint8), np.zeros(16, np.int32)
    run(histogram, 2, 64, x, bins)
    assert (bins == np.bincount(x % 16, minlength=16)).all()


def test_heat_with_a_barrier_over_the_grid(run: Any) -> None:
    @cuda.jit
    def heat(u, v, steps):
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        for _ in range(steps):
            if 0 < i < u.size - 1:
                v[i] = (u[i - 1] + u[i + 1]) / f32(2)
            grid.sync()
            u, v = v, u

    u = np.zeros(48, f32)
    u[0] = u[-1] = 64
    v, wanted = u.copy(), u.copy()
    for _ in range(6):
        wanted[1:-1] = (wanted[:-2] + wanted[2:]) / f32(2)
    run(heat, 3, 16, u, v, 6)
    assert (u == wanted).all()


@pytest.mark.filterwarnings(
    "ignore::numba.core.errors.NumbaWarning",
    "ignore::numba.core.errors.NumbaDeprecationWarning",
    "ignore:overflow encountered:RuntimeWarning",
)
def test_random_numbers_and_numba_spelled_out(run: Any) -> None:
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

    @numba.cuda.jit
    def estimate(rng, out):
        i = numba.cuda.grid(1)
        inside = 0
        for _ in range(8):
            x, y = xoroshiro128p_uniform_float32(rng, i), xoroshiro128p_uniform_float32(rng, i)
            if math.sqrt(x * x + y * y) <= 1:
                inside += 1
        out[i] = inside

    out, again = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run(estimate, 2, 32, create_xoroshiro128p_states(64, seed=7), out)
    launch(estimate, 1, 64, create_xoroshiro128p_states(64, seed=7), again)
    assert (out == again).all()
    assert 2.8 < 4 * out.mean() / 8 < 3.5


def test_forall_and_mandelbrot(run: Any) -> None:
    @cuda.jit
    def escape(out, width):
        i = cuda.grid(1)
        if i < out.size:
            c = complex(-2 + 3 * (i % width) / width, -1.5 + 3 * (i // width) / width)
            z = 0j
            for n in range(20):
                z = z * z + c
                if z.real * z.real + z.imag * z.imag >= 4:
                    out[i] = n
                    return
            out[i] = 20

    a, b = np.zeros(15 * 15, np.uint8), np.zeros(15 * 15, np.uint8)
    run(escape, 2, 128, a, 15)
    escape.forall(b.size)(b, 15)
    assert (a == b).all()
    assert a.max() == 20


def test_stream_compaction_by_ballot(run: Any) -> None:
    @cuda.jit
    def compact(x, out, count):
        i = cuda.grid(1)
        keep = i < x.size and x[i] % 3 == 0
        mask = cuda.ballot_sync(FULL, keep)
        before = cuda.popc(mask & cuda.lanemask_lt())
        first = 0
        if cuda.laneid == 0:
            first = cuda.atomic.add(count, 0, cuda.popc(mask))
        first = cuda.shfl_sync(FULL, int32(first), 0)
        if keep:
            out[first + before] = x[i]

    x, out, count = np.arange(90, dtype=np.int32), np.zeros(90, np.int32), np.zeros(1, np.int32)
    run(compact, 2, 64, x, out, count)
    assert count[0] == 30
    assert sorted(out[:30].tolist()) == list(range(0, 90, 3))


def test_vectorized_functions() -> None:
    @numba.vectorize(["float32(float32, float32)", "int32(int32, int32)"], target="cuda")
    def product(a, b):
        return a * b

    @numba.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="cuda")
    def running(x, out):
        total = float32(0)
        for i in range(x.shape[0]):
            total += x[i]
            out[i] = total

    @numba.guvectorize(["void(float32[:], float32, float32[:])"], "(n),()->(n)", target="cuda")
    def moved(x, by, out):
        for i in range(x.shape[0]):
            out[i] = x[i] + by

    x = np.arange(12, dtype=f32).reshape(3, 4)
    assert (moved(x, f32(2)) == x + 2).all()
    by = np.arange(3, dtype=f32)
    assert (moved(x, by) == x + by[:, None]).all()
    assert (moved(x[0], by) == x[0] + by[:, None]).all()
    assert (product(x, x) == x * x).all()
    assert (product(np.int32(3), np.arange(4, dtype=np.int32)) == [0, 3, 6, 9]).all()
    assert (running(x) == np.cumsum(x, 1)).all()


WEIGHTS = np.array([1, 2, 3, 2, 1], f32)


def test_convolution_with_weights_in_constant_memory(run: Any) -> None:
    @cuda.jit
    def convolve(x, y, taps):
        w = cuda.const.array_like(WEIGHTS)
        s = cuda.shared.array(20, float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        s[t + 2] = x[i] if i < x.size else 0
        if t < 2:
            s[t] = x[i - 2] if i >= 2 else 0
            s[t + 18] = x[i + 16] if i + 16 < x.size else 0
        cuda.syncthreads()
        if i < y.size:
            total = float32(0)
            for k in range(taps):
                total += w[k] * s[t + k]
            y[i] = total

    @cuda.jit
    def write():
        w = cuda.const.array_like(WEIGHTS)
        w[0] = 7

    x, y = np.arange(40, dtype=f32), np.zeros(40, f32)
    run(convolve, 3, 16, x, y, 5)
    assert (y == np.convolve(x, WEIGHTS, "same")).all()
    fires(simt.OutOfBounds, "index [5] of const array 'w'", "shape (5,)", kernel=convolve, grid=3, block=16, args=(x, y, 6))
    for check in (False, True):
        with pytest.raises(ValueError, match="read-only"):
            launch(write, 1, 1, check=check)
    assert WEIGHTS[0] == 1


def test_streams_events_and_signatures() -> None:
    @cuda.jit("void(float32[:], float32)", fastmath=True, lineinfo=True)
    def scale(x, a):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= a

    stream, start, end = cuda.stream(), cuda.event(timing=True), cuda.event()
    start.record(stream)
    x = cuda.to_device(np.ones(40, f32), stream=stream)
    configured = scale[2, 32, stream]
    configured(x, f32(3))
    configured(x, f32(2))
    end.record(stream)
    end.synchronize()
    assert cuda.event_elapsed_time(start, end) >= 0
    assert x.copy_to_host(stream=stream).tolist() == [6] * 40
