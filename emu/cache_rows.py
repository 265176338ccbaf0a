"""Writes rows of K and V to slots of paged caches in which the elements of a head lie together: the numba port of
``kernels_cu/cache_rows.cuh``, for reshape_and_cache_flash and store_kvcache."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.access import alignment_of, widest_access
from emu.fp8 import quantizer
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT, RowTiles
from pyref.spec import dtype_name, itemsize


def depth(rows: str, cache: str) -> int:
    """Rows of a thread: stores of fp8 are half as wide as the loads, or less."""
    return IN_FLIGHT if rows == cache else 2 * IN_FLIGHT


@functools.cache
def kernel(rows: str, cache: str, N: int) -> Any:
    """The kernel for rows and caches of these dtypes; N elements of a head are one piece. Floats come as unsigned integers, f32 that is
    converted as float32; caches as [pages, page, g, d]."""
    from numba import cuda, from_dtype, int64

    stored = quantizer(rows, cache)
    held_type = from_dtype(np.dtype(np.float32 if rows == "f32" and rows != cache else f"u{itemsize(rows)}"))
    DEPTH = depth(rows, cache)
    HELD = DEPTH * N

    @cuda.jit
    def write_cache_rows(k, v, k_cache, v_cache, slots, k_scale, v_scale, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        is_v = cuda.blockIdx.y != 0
        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * DEPTH
        m = slots.shape[0]
        in_head = k.shape[2] // N
        head = piece // in_head
        first = (piece - head * in_head) * N
        page_size = k_cache.shape[1]
        scale = np.float32(0)
        if k_scale.shape[0] > 0:
            scale = v_scale[head if v_scale.shape[0] > 1 else 0] if is_v else k_scale[head if k_scale.shape[0] > 1 else 0]

        held = cuda.local.array(HELD, held_type)
        slot = cuda.local.array(DEPTH, int64)
        for u in range(DEPTH):
            row = first_row + u * abreast + cuda.threadIdx.y
            slot[u] = -1
            if row < m:
                slot[u] = int64(slots[row])  # C16
                for i in range(N):
                    held[u * N + i] = v[row, head, first + i] if is_v else k[row, head, first + i]
        for u in range(DEPTH):
            if slot[u] < 0:
                continue
            page = slot[u] // page_size
            place = slot[u] - page * page_size
            for i in range(N):
                if is_v:
                    v_cache[page, place, head, first + i] = stored(held[u * N + i], scale)
                else:
                    k_cache[page, place, head, first + i] = stored(held[u * N + i], scale)

    return write_cache_rows


def dense(rows: np.ndarray, cache: np.ndarray) -> bool:
    """Whether the heads of a row lie together in both."""
    d = rows.shape[2]
    return rows.shape[1] == 1 or rows.strides[1] // rows.itemsize == d == cache.strides[2] // cache.itemsize


def one_head(array: np.ndarray) -> np.ndarray:
    """The same elements, those of all heads of a row as one head."""
    *outer, heads, d = array.shape
    return np.lib.stride_tricks.as_strided(array, (*outer, 1, heads * d), (*array.strides[:-2], 0, array.itemsize))


def write(k: np.ndarray, v: np.ndarray, caches: tuple[np.ndarray, ...], slots: np.ndarray, scales: tuple[Any, ...]) -> None:
    """Launches the port with the geometry of the CUDA source. ``caches``: views [pages, page, g, d]; ``scales``: None where none is."""
    if slots.size == 0:
        return  # an empty grid cannot be launched
    rows, cache = dtype_name(k), dtype_name(caches[0])
    k_cache, v_cache = (bits(array) for array in caches)
    k, v = (array if rows == "f32" and rows != cache else bits(array) for array in (k, v))
    k_scale, v_scale = (np.zeros(0, np.float32) if scale is None else scale for scale in scales)
    if dense(k, k_cache) and dense(v, v_cache) and k_scale.size <= 1 and v_scale.size <= 1:
        k, v, k_cache, v_cache = (one_head(array) for array in (k, v, k_cache, v_cache))
    d = k.shape[2]
    read = widest_access(alignment_of(k) | alignment_of(v) | d * k.itemsize) // k.itemsize
    written = widest_access(alignment_of(k_cache) | alignment_of(v_cache)) // k_cache.itemsize  # `read` divides the head size
    elements = min(read, written)
    tiles = RowTiles(slots.size, k.shape[1] * d // elements, depth(rows, cache))
    launch = kernel(rows, cache, elements)[(tiles.blocks, 2), tiles.threads]
    launch(k, v, k_cache, v_cache, slots, k_scale, v_scale, tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
