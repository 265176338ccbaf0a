"""Copies pages of one cache to pages of another: the numba port of ``kernels_cu/swap_blocks.cu``, its kernel alone."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.row_tiles import Pieces
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT
from pyref.spec import Call

PAIRS = 240  # of a launch


@functools.cache
def kernel(words: int, unit: str) -> Any:
    """The kernel for pieces of ``words`` unsigned integers of NumPy type ``unit``."""
    from numba import cuda, from_dtype, int64

    dtype, HELD = from_dtype(np.dtype(unit)), IN_FLIGHT * words

    @cuda.jit
    def swap_pages(src, dst, pairs, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * IN_FLIGHT
        held = cuda.local.array(HELD, dtype)
        for u in range(IN_FLIGHT):
            pair = first_row + u * abreast + cuda.threadIdx.y
            if pair < pairs.shape[0]:
                for i in range(words):
                    held[u * words + i] = src[pairs[pair, 0], piece * words + i]
        for u in range(IN_FLIGHT):
            pair = first_row + u * abreast + cuda.threadIdx.y
            if pair < pairs.shape[0]:
                for i in range(words):
                    dst[pairs[pair, 1], piece * words + i] = held[u * words + i]

    return swap_pages


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    src, dst, pairs = bits(call["src"]), bits(call["dst"]), call["pairs"]
    access = Pieces.of(src, dst)
    ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    for first in range(0, len(ordered), PAIRS):
        some = ordered[first : first + PAIRS]
        tiles = access.tiles(len(some), src.shape[1] * src.itemsize)
        port = kernel(access.words, access.unit)[tiles.blocks, tiles.threads]
        port(access.view(src), access.view(dst), some, tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
