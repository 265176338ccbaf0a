"""Decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans: the numba port of
``kernels_cu/paged_decode.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64

from emu import contract as c
from emu import decode_balance, decode_tile, decode_walk
from emu.decode_shape import SPAN, START, THREADS, TILE, Block, Params, Place, Row, Shape, Stored, index, params, scale_of
from emu.simt import device
from pyref.spec import Call

MAX_GRID = 65535  # blocks along y and z
FINISHED = np.float32(-1)  # of balanced parts: the l of a row of several units that one block has finished; no state has it
_MINUS_INF = np.float32(-np.inf)


@functools.cache
def kernel(shape: Shape) -> Any:
    """The kernel of one specialisation and one mapping: with one warp a tile a block takes whole spans, with four a tile alone."""
    to_f32, from_f32 = c.TO_F32[shape.dtype], c.FROM_F32[shape.dtype]
    D, GROUP, HEADS, PAD, HEAD_BLOCKS = shape.d, shape.group, shape.heads, shape.pad, shape.head_blocks
    WARPS, TILES, LANES, ELEMENTS = shape.warps, shape.tiles, shape.lanes, shape.elements
    SCRATCH, TABLE, UNIT_TOKENS = shape.scratch, shape.table, shape.tiles * TILE
    tile, walks = decode_tile.functions(shape), decode_walk.functions(shape)
    read_table, tile_state, find_part = tile.read_table, tile.tile_state, decode_balance.functions(shape).find_part
    measure, element_of, walk_tiles, store = walks.measure, walks.element_of, walks.walk_tiles, walks.store
    step, join = decode_walk.step, decode_walk.join

    @device
    def finish(p, row, s, walk, a):  # noqa: ANN001, ANN202
        """C13.5 for a finished row, after the sink where there is one."""
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        sink = p.sinks.shape[0] > 0
        cuda.syncwarp()  # the last weights have been read
        if lane < row.heads:
            if sink:  # C13.4: one more span
                s2 = c.logits2(p.sinks[row.head + lane])
                m = c.ceil(c.running_max(_MINUS_INF, s2))
                walk, so_far, following = step(walk, False, m, c.weight_p(s2, m))
                s.weights[warp, 0, 0, lane, 0], s.weights[warp, 0, 0, lane, 1] = so_far, following
            s.weights[warp, 0, 1, lane, 0] = walk.l
            if p.lse.shape[0] > 0 and warp == 0:
                p.lse[row.n, row.head + lane] = c.canonical_nan(c.lse(walk.m, walk.l))
        cuda.syncwarp()
        for e in range(ELEMENTS):
            h, d = element_of(e)
            if h < row.heads:
                if sink:
                    join(False, a, e, s.weights[warp, 0, 0, h], c.ZERO)
                p.out[row.n, row.head + h, d] = from_f32(c.div(a[e], s.weights[warp, 0, 1, h, 0]))

    @device
    def finish_empty(p, row):  # noqa: ANN001, ANN202
        """C10: a row of no tokens."""
        for at in range(cuda.threadIdx.x, row.heads * D, THREADS):
            p.out[row.n, row.head + at // D, at % D] = from_f32(c.ZERO)
            if at % D == 0 and p.lse.shape[0] > 0:
                p.lse[row.n, row.head + at // D] = _MINUS_INF

    @cuda.jit
    def decode(  # noqa: ANN202
        out, lse, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, sinks, k_scale, v_scale,  # noqa: ANN001
        part_a, part_l, part_m, scale, scale2, cap, window, split, first_sequence,  # noqa: ANN001
    ):  # fmt: skip
        p = Params(
            out, lse, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, sinks, k_scale, v_scale,
            part_a, part_l, part_m, scale, scale2, cap, window, split,
        )  # fmt: skip
        s = Block(
            cuda.shared.array((D, PAD), float32),
            cuda.shared.array((TILES, SCRATCH), float32),
            cuda.shared.array((TILES, PAD), float32),
            cuda.shared.array((TILES, PAD), float32),
            cuda.shared.array((TILES, 4, PAD), float32),
            cuda.shared.array((4, TILES, 2, PAD, 2), float32),
            cuda.shared.array((TILES, TABLE), int32),
            cuda.shared.array(4, int64),
        )
        thread = cuda.threadIdx.x
        warp, lane = thread // 32, thread % 32
        # A unit is what is stored as one state: a tile or a span. The block takes [own_unit, own_end) of a row, as far as it has them.
        n, row_of_n = index(first_sequence + cuda.blockIdx.z), index(cuda.blockIdx.x)
        units_a_block = p.split if WARPS == 1 else index(1)
        own_unit, own_end = index(cuda.blockIdx.y) * units_a_block, (index(cuda.blockIdx.y) + 1) * units_a_block
        if p.split < 0:
            find_part(p, s, p.k_cache.shape[1] * HEAD_BLOCKS)
            n = s.part[0]
            if n == p.seq_lens.shape[0]:
                return
            row_of_n, own_unit, own_end = s.part[1], s.part[2], s.part[3]
        g = row_of_n // HEAD_BLOCKS
        head = g * GROUP + row_of_n % HEAD_BLOCKS * HEADS
        start, length, first_unit, units, blocks = measure(p, n)
        heads = min((g + 1) * GROUP - head, HEADS)
        row = Row(n, g, head, heads, start, length, scale_of(p.k_scale, g), scale_of(p.v_scale, g))
        if row.len <= 0:
            if cuda.blockIdx.y == 0:
                finish_empty(p, row)
            return
        if p.split < 0:
            blocks = index(1) if own_unit <= first_unit and own_end >= units else index(2)
        last_unit = min(own_end, units)
        own_unit = max(own_unit, first_unit)
        if own_unit >= last_unit:
            return
        for at_q in range(thread, PAD * D, THREADS):
            h = at_q // D if at_q // D < row.heads else 0
            s.q[at_q % D, at_q // D] = to_f32(p.q[row.n, row.head + h, at_q % D])
        walk = START
        a, span_a = cuda.local.array(ELEMENTS, float32), cuda.local.array(ELEMENTS, float32)
        for unit in range(own_unit, last_unit):
            slot = thread // LANES
            origin = unit * UNIT_TOKENS + slot * TILE
            at = Place(origin, max(row.start - origin, 0), min(row.len - origin, TILE), slot, warp % WARPS, lane)
            if at.low < at.high:
                read_table(p, row, s, at)
            cuda.syncthreads()  # q and the table are there; the last unit's states have been read
            if at.low < at.high:
                tile_state(p, row, s, at)
            cuda.syncthreads()
            # C10: tiles without tokens are skipped. The state of the unit is joined here, or stored.
            first_tile = unit * TILES
            low, high = max(row.start // TILE - first_tile, 0), min((row.len - 1) // TILE - first_tile + 1, TILES)
            span, walk = walk_tiles(row, s, first_tile, low, high, walk, blocks == 1, unit == first_unit, span_a, a)
            if blocks > 1:
                store(p, row, span, span_a, unit)
        if blocks == 1:
            if p.split < 0 and units > first_unit + 1 and thread < row.heads:
                p.part_l[row.n, row.head + thread, first_unit] = FINISHED
            finish(p, row, s, walk, a)

    return decode


@functools.cache
def join_kernel(shape: Shape) -> Any:
    """The second kernel: a block walks the states that several blocks have stored of a row, for one head, a dimension a thread."""
    from_f32, measure = c.FROM_F32[shape.dtype], decode_walk.functions(shape).measure
    D, STEP = shape.d, SPAN if shape.warps == 4 else 1  # STEP: states of a span
    step = decode_walk.step

    @cuda.jit
    def join_states(out, lse, seq_lens, sinks, part_a, part_l, part_m, window, split):  # noqa: ANN001, ANN202
        n, head = index(cuda.blockIdx.x), index(cuda.blockIdx.y)
        _, _, first_unit, units, blocks = measure(Stored(seq_lens, window, split), n)
        finished = blocks <= 1
        if split < 0:
            finished = units <= first_unit + 1 or part_l[n, head, first_unit] == FINISHED
        if finished:
            return
        for d in range(cuda.threadIdx.x, D, THREADS):
            walk, span = START, START
            a, span_a = c.ZERO, c.ZERO
            for unit in range(first_unit, units):
                begins, ends = unit == first_unit or unit % STEP == 0, unit + 1 == units or unit % STEP == STEP - 1
                stored = part_a[n, head, unit, d]
                span, so_far, following = step(span, begins, part_m[n, head, unit], part_l[n, head, unit])  # C13.3
                span_a = stored if begins else c.join_scalar(span_a, so_far, stored, following)
                if ends:  # C13.4
                    opens = unit // STEP == first_unit // STEP
                    walk, so_far, following = step(walk, opens, span.m, span.l)
                    a = span_a if opens else c.join_scalar(a, so_far, span_a, following)
            if sinks.shape[0] > 0:  # C13.4: one more span
                s2 = c.logits2(sinks[head])
                m = c.ceil(c.running_max(_MINUS_INF, s2))
                walk, so_far, following = step(walk, False, m, c.weight_p(s2, m))
                a = c.join_scalar(a, so_far, c.ZERO, following)
            out[n, head, d] = from_f32(c.div(a, walk.l))
            if d == 0 and lse.shape[0] > 0:
                lse[n, head] = c.canonical_nan(c.lse(walk.m, walk.l))

    return join_states


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    axes, split, longest = call.axes, call["split"], call["max_seq_len"]
    if axes["n"] == 0 or axes["h"] == 0:
        return  # an empty grid cannot be launched
    shape = Shape(call.dtypes["T"], call.dtypes["C"], axes["d"], axes["page"], axes["group"], axes["rows"], warps=1 if split else 4)
    shares = max(-(-longest // (max(split, 1) * SPAN * TILE if split else TILE)), 1)
    p = params(call)
    if split < 0:  # whole rows, and further parts
        kernel(shape)[axes["n"] * axes["g"] * shape.head_blocks - split, THREADS](*p, 0)
    for first in range(0, axes["n"] if split >= 0 else 0, MAX_GRID):
        grid = (axes["g"] * shape.head_blocks, shares, min(axes["n"] - first, MAX_GRID))
        kernel(shape)[grid, THREADS](*p, first)
    if shares > 1:
        join = join_kernel(shape)[(axes["n"], axes["h"]), THREADS]
        join(p.out, p.lse, p.seq_lens, p.sinks, p.part_a, p.part_l, p.part_m, p.window, p.split)
