"""Warp operations, bits, atomics and arithmetic of the numba scheduler against plain models."""

# ruff: noqa: ANN001, ANN202  kernels carry no annotations

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda, int32

from tests.simt_help import FULL, launch

f32 = np.float32


# --- warp operations against plain models, over all lanes ---


def model_shuffle(op: str, values: list[int], lane: int, b: int, width: int) -> int:
    """CUDA's definition: the warp is cut into segments of `width` lanes."""
    first = lane // width * width
    if op == "sync":
        return values[first + b % width]
    source = {"up": lane - b, "down": lane + b, "xor": lane ^ b}[op]
    inside = {"up": source >= first, "down": source < first + width, "xor": source < first + width}[op]
    return values[source] if inside else values[lane]


@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
@pytest.mark.parametrize("op", ["sync", "up", "down", "xor"])
def test_shuffles_equal_the_model(op: str, width: int) -> None:
    shuffle = getattr(cuda, "shfl_sync" if op == "sync" else f"shfl_{op}_sync")

    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        for b in range(32):
            out[b, i] = shuffle(FULL, x[i], b, width)

    x = np.arange(64, dtype=np.int32) * 7 + 3
    for order in ("forward", "reverse", "shuffle:5"):
        out = np.zeros((32, 64), np.int32)
        launch(kernel, 1, 64, x, out, check=True, order=order)
        for b in range(32):
            for warp in (0, 32):
                values = x[warp : warp + 32].tolist()
                assert out[b, warp : warp + 32].tolist() == [model_shuffle(op, values, lane, b, width) for lane in range(32)]


def test_shuffles_keep_type_and_bits() -> None:
    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[i] = cuda.shfl_xor_sync(FULL, x[i], 1)

    for dtype in (np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64):
        x = np.random.default_rng(1).integers(0, 256, 32 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
        out = np.zeros_like(x)
        launch(kernel, 1, 32, x, out)
        assert out.tobytes() == x.reshape(16, 2)[:, ::-1].tobytes()


def test_the_intrinsic_takes_modes_and_clamps() -> None:
    @cuda.jit
    def kernel(out, valid):
        i = cuda.threadIdx.x
        for mode in range(4):
            clamp = ((32 - 8) << 8) | (0 if mode == 1 else 31)
            out[mode, i], valid[mode, i] = cuda.shfl_sync_intrinsic(FULL, mode, int32(i), 3, clamp)

    out, valid = np.zeros((4, 32), np.int32), np.zeros((4, 32), np.bool_)
    launch(kernel, 1, 32, out, valid)
    for mode, op in enumerate(("sync", "up", "down", "xor")):
        assert out[mode].tolist() == [model_shuffle(op, list(range(32)), lane, 3, 8) for lane in range(32)]
    assert valid[1].tolist() == [lane % 8 >= 3 for lane in range(32)]
    assert valid[2].tolist() == [lane % 8 < 5 for lane in range(32)]


@pytest.mark.parametrize("pattern", [0, FULL, 0x0000FFFF, 0x80000001, 0xAAAAAAAA])
def test_votes_and_matches_equal_the_model(pattern: int) -> None:
    @cuda.jit
    def kernel(out):
        i = cuda.laneid
        p = pattern >> i & 1
        out[0, i] = cuda.ballot_sync(FULL, p)
        out[1, i] = cuda.any_sync(FULL, p)
        out[2, i] = cuda.all_sync(FULL, p)
        out[3, i] = cuda.eq_sync(FULL, p)
        out[4, i] = cuda.match_any_sync(FULL, int32(p))
        out[5, i], out[6, i] = cuda.match_all_sync(FULL, int32(p))
        out[7, i] = cuda.lanemask_lt()
        out[8, i] = cuda.syncthreads_count(p) * 100 + cuda.syncthreads_and(p) * 10 + cuda.syncthreads_or(p)

    out = np.zeros((9, 32), np.int64)
    launch(kernel, 1, 32, out, check=True)
    uniform = pattern in (0, FULL)
    counts = pattern.bit_count() * 100 + 10 * (pattern == FULL) + (pattern != 0)
    for i in range(32):
        same = pattern if pattern >> i & 1 else FULL ^ pattern
        expected = [pattern, pattern != 0, pattern == FULL, uniform, same, FULL if uniform else 0, uniform, (1 << i) - 1, counts]
        assert out[:, i].tolist() == expected, f"lane {i}"


def test_collectives_of_some_lanes_meet_under_their_mask() -> None:
    @cuda.jit
    def kernel(out):
        i = cuda.threadIdx.x
        if i % 3 == 0:
            mask = cuda.activemask()
            out[i] = cuda.shfl_sync(mask, int32(i), 30)
            out[i] += cuda.ballot_sync(mask, i > 15).bit_count() * 1000
        else:
            mask = cuda.activemask()
            out[i] = cuda.shfl_sync(mask, int32(i), 31)
        cuda.syncwarp()

    for order in ("forward", "reverse", "shuffle:2"):
        out = np.zeros(32, np.int32)
        launch(kernel, 1, 32, out, check=True, order=order)
        assert out.tolist() == [5030 if i % 3 == 0 else 31 for i in range(32)]


# --- arithmetic and bits ---


def test_fma_is_fused() -> None:
    @cuda.jit
    def kernel(a, b, c, out):
        i = cuda.threadIdx.x
        out[i] = cuda.fma(a[i], b[i], c[i])

    c = np.arange(2**23, 2**23 + 512, dtype=f32)  # C3: ties after the product has lost its last bit
    a, b = np.full(512, 1 - 2**-23, f32), np.full(512, (1 + 2**-23) / 2, f32)
    out = np.zeros(512, f32)
    launch(kernel, 1, 512, a, b, c, out)
    assert out.tolist() == c.tolist(), "a*b is a bit below 1/2: nothing rounds up"
    twice = (a.astype(np.float64) * b + c).astype(f32)
    assert (twice != out).sum() == 256, "the case separates one rounding from two"


def test_fma_in_half_and_double() -> None:
    out: list[Any] = []

    @cuda.jit
    def kernel():
        out.append(cuda.fma(1.0 + 2.0**-52, 1.0 - 2.0**-52, -1.0))
        out.append(cuda.fp16.hfma(np.float16(1 + 2**-10), np.float16(1 - 2**-11), np.float16(-1)))
        out.append(cuda.fp16.hfloor(np.float16(1.5)))

    launch(kernel, 1, 1)
    assert out == [-(2.0**-104), np.float16(2**-11 - 2**-21), 1.0]


def test_bits_of_32_and_64() -> None:
    values = [0, 1, 2, 0x80000000, 0xFFFFFFFF, 0x00F0A000, 1 << 63, (1 << 64) - 1, 0x00F0A00000000000]

    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[0, i], out[1, i], out[2, i], out[3, i] = cuda.popc(x[i]), cuda.clz(x[i]), cuda.ffs(x[i]), cuda.brev(x[i])

    for dtype, bits in ((np.uint32, 32), (np.uint64, 64)):
        x = np.array([v for v in values if v < 1 << bits], dtype)
        out = np.zeros((4, len(x)), dtype)
        launch(kernel, 1, len(x), x, out)
        for i, v in enumerate(x.tolist()):
            text = f"{v:0{bits}b}"
            lowest = bits - text.rfind("1") if v else 0
            assert out[:, i].tolist() == [text.count("1"), len(text) - len(text.lstrip("0")), lowest, int(text[::-1], 2)]


def test_atomics_wrap_and_return_the_old_value() -> None:
    @cuda.jit
    def kernel(x, old):
        i = cuda.threadIdx.x
        old[i] = cuda.atomic.inc(x, 0, 9)
        cuda.atomic.sub(x, 1, 1)
        cuda.atomic.max(x, 2, i)
        cuda.atomic.or_(x, 3, 1 << (i % 4))
        cuda.atomic.cas(x, 4, 0, i + 1)
        cuda.atomic.add(x, (5,), 2**31)

    for order in ("forward", "shuffle:9"):
        x, old = np.zeros(6, np.uint32), np.zeros(64, np.uint32)
        launch(kernel, 1, 64, x, old, check=True, order=order)
        assert sorted(old.tolist()) == sorted(i % 10 for i in range(64))
        assert x[:4].tolist() == [64 % 10, 2**32 - 64, 63, 15]
        assert 1 <= x[4] <= 64
        assert x[5] == 0
