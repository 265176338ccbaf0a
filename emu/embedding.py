"""Looks up rows of a vocabulary shard by id: the numba port of ``kernels_cu/embedding.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.row_tiles import Pieces
from pyref import embedding
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT, THREADS
from pyref.spec import Call


@functools.cache
def kernel(words: int, unit: str) -> Any:
    """The kernel for pieces of ``words`` unsigned integers of NumPy type ``unit``."""
    from numba import cuda, from_dtype, int64

    dtype, HELD = from_dtype(np.dtype(unit)), IN_FLIGHT * words

    @cuda.jit
    def look_up(out, table, ids, start, pieces, width, across, abreast, depth):  # noqa: ANN001, ANN202
        thread = cuda.threadIdx.x
        if thread >= width * abreast:
            return
        piece = int64(cuda.blockIdx.x % across) * width + thread % width
        if piece >= pieces:
            return
        first_row = int64(cuda.blockIdx.x // across) * abreast * depth
        held = cuda.local.array(HELD, dtype)
        for u in range(depth):
            row = first_row + u * abreast + thread // width
            for i in range(words):
                held[u * words + i] = 0
            if row >= out.shape[0]:
                continue
            token = int64(ids[row])  # C16
            if token >= 0 and token >= start and token - start < table.shape[0]:
                for i in range(words):
                    held[u * words + i] = table[token - start, piece * words + i]
        for u in range(depth):
            row = first_row + u * abreast + thread // width
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
    tiles = embedding.tiles(out.shape[0], out.shape[1] * out.itemsize // access.size)
    port = kernel(access.words, access.unit)[tiles.blocks, THREADS]
    geometry = (tiles.pieces, tiles.width, tiles.across, tiles.abreast, tiles.depth)
    port(access.view(out), access.view(table), call["ids"], call["start"], *geometry)
