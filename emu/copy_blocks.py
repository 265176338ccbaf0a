"""Copies pages of K and V to other pages of the same caches: the numba port of ``kernels_cu/copy_blocks.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.row_tiles import Pieces
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT
from pyref.spec import Call


@functools.cache
def kernel(words: int, unit: str) -> Any:
    """The kernel for pieces of ``words`` unsigned integers of NumPy type ``unit``."""
    from numba import cuda, from_dtype, int64

    dtype, HELD = from_dtype(np.dtype(unit)), IN_FLIGHT * words

    @cuda.jit
    def copy_pages(k_cache, v_cache, pairs, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        is_v = cuda.blockIdx.y != 0
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * IN_FLIGHT
        held = cuda.local.array(HELD, dtype)
        for u in range(IN_FLIGHT):
            pair = first_row + u * abreast + cuda.threadIdx.y
            if pair < pairs.shape[0]:
                page = pairs[pair, 0]
                for i in range(words):
                    held[u * words + i] = v_cache[page, piece * words + i] if is_v else k_cache[page, piece * words + i]
        for u in range(IN_FLIGHT):
            pair = first_row + u * abreast + cuda.threadIdx.y
            if pair < pairs.shape[0]:
                page = pairs[pair, 1]
                for i in range(words):
                    if is_v:
                        v_cache[page, piece * words + i] = held[u * words + i]
                    else:
                        k_cache[page, piece * words + i] = held[u * words + i]

    return copy_pages


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    pairs = call["pairs"]
    if pairs.shape[0] == 0:
        return  # an empty grid cannot be launched
    k_cache, v_cache = (None if call[name] is None else bits(call[name]) for name in ("k_cache", "v_cache"))
    access = Pieces.of(k_cache, v_cache)
    tiles = access.tiles(pairs.shape[0], k_cache.shape[1] * k_cache.itemsize)
    views = [access.view(k_cache if array is None else array) for array in (k_cache, v_cache)]
    port = kernel(access.words, access.unit)[(tiles.blocks, 1 if v_cache is None else 2), tiles.threads]
    port(*views, pairs, tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
