"""Writes row i of K and V to slot slots[i] of paged caches: the numba port of ``kernels_cu/reshape_and_cache.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.access import alignment_of, widest_access
from emu.fp8 import quantizer
from pyref.cache_write import bits
from pyref.reshape_and_cache import TILE_BYTES, TILE_ROWS, VECTOR
from pyref.spec import Call, itemsize

THREADS = 256
ROWS = TILE_ROWS  # rows of a tile: one for each lane of the warp that plans it
ALL = 0xFFFFFFFF


@functools.cache
def kernel(rows: str, cache: str) -> Any:
    """The kernel for rows and caches of these dtypes. Floats come as unsigned integers, f32 that is converted as float32."""
    from numba import cuda, int32, int64, uint32

    stored = quantizer(rows, cache)
    element = np.dtype(f"u{itemsize(cache)}")
    held_type = np.dtype(np.float32) if rows == "f32" and rows != cache else np.dtype(f"u{itemsize(rows)}")
    COLUMNS = TILE_BYTES // itemsize(rows)  # elements of a row in a tile
    LOAD = VECTOR // itemsize(rows)  # elements that one access reads
    X = VECTOR // itemsize(cache)  # elements that one access writes
    PIECES = COLUMNS // LOAD
    LOADS = ROWS * PIECES // THREADS
    UNITS = COLUMNS // X
    UNIT_PITCH = (ROWS + 1) * X
    ROW_PITCH = COLUMNS + X
    TILE = max(UNITS * UNIT_PITCH, ROWS * ROW_PITCH)
    RUN = (1 << (X - 1)) - 1

    @cuda.jit
    def write_tiles(k, v, k_cache, v_cache, slots, k_scale, v_scale, column_tiles, runs):  # noqa: ANN001, ANN202
        tile = cuda.shared.array(TILE, element)
        plan_page = cuda.shared.array(ROWS, int64)
        plan_place = cuda.shared.array(ROWS, int64)  # -1: nowhere
        plan_first = cuda.shared.array(ROWS, int32)  # portions: row r alone, or from ROWS on X rows from r - ROWS
        plan_portions = cuda.shared.array(1, int32)
        is_v = cuda.blockIdx.y != 0
        first_row = int64(cuda.blockIdx.x // column_tiles) * ROWS
        first_column = int64(cuda.blockIdx.x % column_tiles) * COLUMNS
        d = k.shape[2]
        width = k.shape[1] * d
        m = slots.shape[0]
        page_size = v_cache.shape[3]
        thread = cuda.threadIdx.x

        piece = thread % PIECES
        column = first_column + piece * LOAD
        head = column // d
        inside = column - head * d
        held = cuda.local.array(LOADS * LOAD, held_type)
        scale = np.float32(0)
        for u in range(LOADS):
            row = first_row + thread // PIECES + u * (THREADS // PIECES)
            for i in range(LOAD):
                held[u * LOAD + i] = 0
                if row < m and column < width:
                    held[u * LOAD + i] = v[row, head, inside + i] if is_v else k[row, head, inside + i]
        if column < width and k_scale.shape[0] > 0:
            scale = v_scale[head if v_scale.shape[0] > 1 else 0] if is_v else k_scale[head if k_scale.shape[0] > 1 else 0]

        if thread < ROWS:  # the plan, made by the first warp, a lane a row
            lane = thread
            slot = int64(-1)
            if first_row + lane < m:
                slot = int64(slots[first_row + lane])  # C16
            used = slot >= 0
            page = slot // page_size if used else int64(0)
            place = slot - page * page_size if used else int64(-1)
            plan_page[lane] = page
            plan_place[lane] = place
            following = cuda.shfl_down_sync(ALL, slot, 1)
            steps = uint32(cuda.ballot_sync(ALL, used and lane + 1 < ROWS and following == slot + 1))
            leads = runs and used and place % X == 0 and ((steps >> uint32(lane)) & uint32(RUN)) == RUN
            leaders = uint32(cuda.ballot_sync(ALL, leads))
            led = uint32(0)
            for i in range(X):
                led |= leaders << uint32(i)
            begins = leads or (used and not ((led >> uint32(lane)) & uint32(1)))
            portions = uint32(cuda.ballot_sync(ALL, begins))
            if begins:
                plan_first[cuda.popc(portions & uint32((1 << lane) - 1))] = lane + ROWS if leads else lane
            if lane == 0:
                plan_portions[0] = cuda.popc(portions)
        for u in range(LOADS):
            row_in_tile = thread // PIECES + u * (THREADS // PIECES)
            for i in range(LOAD):
                at = piece * LOAD + i
                to = row_in_tile * ROW_PITCH + at if is_v else at // X * UNIT_PITCH + row_in_tile * X + at % X
                tile[to] = stored(held[u * LOAD + i], scale)
        cuda.syncthreads()

        if not is_v:  # k_cache[page, head, i/x, place, :]
            row_in_tile = thread % ROWS
            place = plan_place[row_in_tile]
            page = plan_page[row_in_tile]
            for unit in range(thread // ROWS, UNITS, THREADS // ROWS):
                column = first_column + unit * X
                if place < 0 or column >= width:
                    break
                head = column // d
                group = (column - head * d) // X
                for i in range(X):
                    k_cache[page, head, group, place, i] = tile[unit * UNIT_PITCH + row_in_tile * X + i]
        else:  # v_cache[page, head, i, place ...]
            count = plan_portions[0]
            columns = min(width - first_column, COLUMNS)
            for n in range(thread, columns * count, THREADS):
                column_in_tile = n // count
                first = plan_first[n - column_in_tile * count]
                row_in_tile = first % ROWS
                column = first_column + column_in_tile
                head = column // d
                inside = column - head * d
                place = plan_place[row_in_tile]
                for r in range(X if first >= ROWS else 1):
                    v_cache[plan_page[row_in_tile], head, inside, place + r] = tile[(row_in_tile + r) * ROW_PITCH + column_in_tile]

    return write_tiles


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    if call.axes["m"] == 0:
        return  # an empty grid cannot be launched
    rows, cache = call.dtypes["T"], call.dtypes["C"]
    same = rows == cache
    k, v = (call[name] if rows == "f32" and not same else bits(call[name]) for name in ("k", "v"))
    k_cache, v_cache = (bits(call[name]) for name in ("k_cache", "v_cache"))
    none = np.zeros(0, np.float32)
    k_scale, v_scale = (none if same else call[name] for name in ("k_scale", "v_scale"))
    runs = widest_access(alignment_of(v_cache) | call.axes["page"] * v_cache.itemsize) == VECTOR
    columns = TILE_BYTES // itemsize(rows)
    row_tiles = (call.axes["m"] + ROWS - 1) // ROWS
    column_tiles = (call.axes["g"] * call.axes["d"] + columns - 1) // columns
    kernel(rows, cache)[(row_tiles * column_tiles, 2), THREADS](k, v, k_cache, v_cache, call["slots"], k_scale, v_scale, column_tiles, runs)
