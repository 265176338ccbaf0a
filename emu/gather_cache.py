"""Copies tokens of several sequences from their pages into contiguous rows: the numba port of ``kernels_cu/gather_cache.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.cache_rows import dense, one_head
from emu.row_tiles import Pieces
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT, THREADS
from pyref.spec import Call

MOST_ROWS = THREADS * IN_FLIGHT


@functools.cache
def kernel(words: int, unit: str) -> Any:
    """The kernel for pieces of ``words`` unsigned integers of NumPy type ``unit``."""
    from numba import cuda, from_dtype, int32, int64

    dtype, HELD = from_dtype(np.dtype(unit)), IN_FLIGHT * words

    @cuda.jit
    def gather_rows(k, v, k_cache, v_cache, block_table, offsets, starts, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        source_page = cuda.shared.array(MOST_ROWS, int64)  # -1: nothing is copied to the row
        source_place = cuda.shared.array(MOST_ROWS, int32)
        is_v = cuda.blockIdx.y != 0
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * IN_FLIGHT
        rows = min(k.shape[0] - first_row, abreast * IN_FLIGHT)
        sequences, entries = block_table.shape
        page_size = k_cache.shape[1]
        for r in range(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x, rows, cuda.blockDim.x * cuda.blockDim.y):
            row = first_row + r
            source_page[r] = -1
            if sequences == 0 or row < offsets[0] or row >= offsets[sequences]:
                continue
            n, end = int64(0), int64(sequences)
            while end - n > 1:  # offsets[n] <= row < offsets[end]
                middle = n + (end - n) // 2
                if offsets[middle] <= row:
                    n = middle
                else:
                    end = middle
            token = int64(starts[n] if starts.shape[0] > 0 else 0) + row - int64(offsets[n])
            if token < 0 or token >= entries * page_size:
                continue
            entry = token // page_size
            page = int64(block_table[n, entry])  # C16
            if page >= 0 and page < k_cache.shape[0]:
                source_page[r] = page
                source_place[r] = token - entry * page_size
        cuda.syncthreads()

        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        in_head = k.shape[2] // words
        head = piece // in_head
        first = (piece - head * in_head) * words
        held = cuda.local.array(HELD, dtype)
        for u in range(IN_FLIGHT):
            r = u * abreast + cuda.threadIdx.y
            if r < rows and source_page[r] >= 0:
                for i in range(words):
                    if is_v:
                        held[u * words + i] = v_cache[source_page[r], source_place[r], head, first + i]
                    else:
                        held[u * words + i] = k_cache[source_page[r], source_place[r], head, first + i]
        for u in range(IN_FLIGHT):
            r = u * abreast + cuda.threadIdx.y
            if r < rows and source_page[r] >= 0:
                for i in range(words):
                    if is_v:
                        v[first_row + r, head, first + i] = held[u * words + i]
                    else:
                        k[first_row + r, head, first + i] = held[u * words + i]

    return gather_rows


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    k, v, k_cache, v_cache = (None if call[name] is None else bits(call[name]) for name in ("k", "v", "k_cache", "v_cache"))
    if k.shape[0] == 0:
        return  # an empty grid cannot be launched
    both = v is not None
    if dense(k, k_cache) and (not both or dense(v, v_cache)):
        k, v, k_cache, v_cache = (None if array is None else one_head(array) for array in (k, v, k_cache, v_cache))
    access = Pieces.of(k, v, k_cache, v_cache)
    tiles = access.tiles(k.shape[0], k.shape[1] * k.shape[2] * k.itemsize)
    views = [access.view(array) for array in (k, v if both else k, k_cache, v_cache if both else k_cache)]
    table, offsets = call["block_table"], call["offsets"]
    starts = np.zeros(0, offsets.dtype) if call["starts"] is None else call["starts"]
    port = kernel(access.words, access.unit)[(tiles.blocks, 2 if both else 1), tiles.threads]
    port(*views, table, offsets, starts, tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
