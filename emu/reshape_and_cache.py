"""Writes row i of K and V to slot slots[i] of paged caches: the numba port of ``kernels_cu/reshape_and_cache.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.access import alignment_of, widest_access
from emu.fp8 import quantizer
from pyref.cache_write import bits
from pyref.reshape_and_cache import TILE_ROWS, VECTOR, tile_columns
from pyref.spec import Call, itemsize

THREADS = 256
ROWS = TILE_ROWS  # rows of a tile: one for each lane of the warp that plans it
ALL = 0xFFFFFFFF


@functools.cache
def kernel(rows: str, cache: str) -> Any:
    """The kernel for rows and caches of these dtypes. Floats come as unsigned integers, f32 that is converted as float32."""
    from numba import cuda, from_dtype, int32, int64, uint32

    stored = quantizer(rows, cache)
    element = from_dtype(np.dtype(f"u{itemsize(cache)}"))
    held_type = from_dtype(np.dtype(np.float32 if rows == "f32" and rows != cache else f"u{itemsize(rows)}"))
    COLUMNS = tile_columns(rows, cache)  # elements of a row in a tile
    LOAD = VECTOR // itemsize(rows)  # elements that one access reads
    X = VECTOR // itemsize(cache)  # elements that one access writes
    PIECES = COLUMNS // LOAD
    LOADS = ROWS * PIECES // THREADS
    HELD = LOADS * LOAD
    UNITS = COLUMNS // X
    UNIT_PITCH = (ROWS + 1) * X
    ROW_PITCH = COLUMNS + X
    TILE = max(UNITS * UNIT_PITCH, ROWS * ROW_PITCH)
    RUN = (1 << (X - 1)) - 1

    @cuda.jit
    def write_tiles(k, v, k_cache, v_cache, slots, k_scale, v_scale, column_tiles, vectors):  # noqa: ANN001, ANN202
        tile = cuda.shared.array(TILE, element)
        plan_page = cuda.shared.array(ROWS, int64)
        plan_place = cuda.shared.array(ROWS, int64)  # -1: nowhere
        plan_run = cuda.shared.array(ROWS, int32)  # V: the first of X rows that one access writes
        plan_single = cuda.shared.array(ROWS, int32)  # V: the other rows
        plan_counts = cuda.shared.array(3, int32)  # runs, singles, whether most rows go to the slot behind that of the row before
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
        held = cuda.local.array(HELD, held_type)
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
            following = cuda.shfl_down_sync(ALL, slot, 1)  # the last lane's own: a run ends there
            steps = uint32(cuda.ballot_sync(ALL, used and following == slot + 1))
            leads = vectors and used and place % X == 0 and ((steps >> uint32(lane)) & uint32(RUN)) == RUN
            leaders = uint32(cuda.ballot_sync(ALL, leads))
            led = uint32(0)
            for i in range(X):
                led |= leaders << uint32(i)
            alone = used and not ((led >> uint32(lane)) & uint32(1))
            singles = uint32(cuda.ballot_sync(ALL, alone))
            before = uint32((1 << lane) - 1)
            if leads:
                plan_run[cuda.popc(leaders & before)] = lane
            if alone:
                plan_single[cuda.popc(singles & before)] = lane
            if lane == 0:
                plan_counts[0] = cuda.popc(leaders)
                plan_counts[1] = cuda.popc(singles)
                plan_counts[2] = cuda.popc(steps) >= ROWS // 2
        for u in range(LOADS):
            row_in_tile = thread // PIECES + u * (THREADS // PIECES)
            for i in range(LOAD):
                at = piece * LOAD + i
                to = row_in_tile * ROW_PITCH + at if is_v else at // X * UNIT_PITCH + row_in_tile * X + at % X
                tile[to] = stored(held[u * LOAD + i], scale)
        cuda.syncthreads()

        columns = min(width - first_column, COLUMNS)
        if not is_v:  # k_cache[page, head, i/x, place, :]
            follow = plan_counts[2] != 0
            for n in range(thread, ROWS * UNITS, THREADS):
                row_in_tile = n % ROWS if follow else n // UNITS
                unit = n // ROWS if follow else n % UNITS
                place = plan_place[row_in_tile]
                if place < 0 or unit * X >= columns:
                    continue
                column = first_column + unit * X
                head = column // d
                group = (column - head * d) // X
                for i in range(X):
                    k_cache[plan_page[row_in_tile], head, group, place, i] = tile[unit * UNIT_PITCH + row_in_tile * X + i]
            return
        runs, singles = plan_counts[0], plan_counts[1]
        for n in range(thread, columns * runs, THREADS):  # v_cache[page, head, i, place ...]
            in_tile = n // runs
            row_in_tile = plan_run[n - in_tile * runs]
            column = first_column + in_tile
            head = column // d
            page = plan_page[row_in_tile]
            place = plan_place[row_in_tile]
            for r in range(X):
                v_cache[page, head, column - head * d, place + r] = tile[(row_in_tile + r) * ROW_PITCH + in_tile]
        for n in range(thread, columns * singles, THREADS):
            which = n // columns
            in_tile = n - which * columns
            row_in_tile = plan_single[which]
            column = first_column + in_tile
            head = column // d
            v_cache[plan_page[row_in_tile], head, column - head * d, plan_place[row_in_tile]] = tile[row_in_tile * ROW_PITCH + in_tile]

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
    vectors = widest_access(alignment_of(v_cache) | call.axes["page"] * v_cache.itemsize) == VECTOR
    columns = tile_columns(rows, cache)
    row_tiles = (call.axes["m"] + ROWS - 1) // ROWS
    column_tiles = (call.axes["g"] * call.axes["d"] + columns - 1) // columns
    port = kernel(rows, cache)[(row_tiles * column_tiles, 2), THREADS]
    port(k, v, k_cache, v_cache, call["slots"], k_scale, v_scale, column_tiles, vectors)
