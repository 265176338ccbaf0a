"""Looks up rows of a vocabulary shard by id: the numba port of ``kernels_cu/embedding.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.row_tiles import Pieces
from pyref.cache_write import bits
from pyref.embedding import DEPTH
from pyref.row_tiles import RowTiles
from pyref.spec import Call


@functools.cache
def kernel(words: int, unit: str) -> Any:
    """The kernel for pieces of ``words`` unsigned integers of NumPy type ``unit``."""
    from numba import cuda, from_dtype, int64

    dtype, HELD = from_dtype(np.dtype(unit)), DEPTH * words

    @cuda.jit
    def look_up(out, table, ids, start, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * DEPTH
        held = cuda.local.array(HELD, dtype)
        for u in range(DEPTH):
            row = first_row + u * abreast + cuda.threadIdx.y
            for i in range(words):
                held[u * words + i] = 0
            if row >= out.shape[0]:
                continue
            token = int64(ids[row])  # C16
            if token >= 0 and token >= start and token - start < table.shape[0]:
                for i in range(words):
                    held[u * words + i] = table[token - start, piece * words + i]
        for u in range(DEPTH):
            row = first_row + u * abreast + cuda.threadIdx.y
            if row < out.shape[0]:
                for i in range(words):
                    out[row, piece * words + i] = held[u * words + i]

    return look_up


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    out, table = bits(call["out"]), bits(call["table"])
    if out.shape[0] == 0:
        return  # an empty grid cannot be launched
    access = Pieces.of(out, table)
    tiles = RowTiles(out.shape[0], out.shape[1] * out.itemsize // access.size, DEPTH)
    port = kernel(access.words, access.unit)[tiles.blocks, tiles.threads]
    port(access.view(out), access.view(table), call["ids"], call["start"], tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
