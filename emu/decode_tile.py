"""One tile of paged_decode: logits, weights, and the weighted sum of V, by ``warps`` warps (C13.1, C13.2).

The steps and names of ``kernels_cu/decode_tile.cuh``, whose vectors and prefetched groups are single elements here.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
from numba import cuda, float32

from emu import contract as c
from emu import fp8
from emu.decode_shape import ALL, Shape, index
from emu.simt import device

_MINUS_INF = np.float32(-np.inf)


@device
def folded_index(count, lane):  # noqa: ANN001, ANN201
    """Which of ``count`` values ``fold`` leaves in a lane."""
    return count * lane // 32


@functools.cache
def fold(count: int, combine: str) -> object:
    """``fold(value, lane)``: combines ``count`` (a power of two up to 32) values of every lane over the 32 lanes of a warp, by 16, 8, 4, 2
    and 1 as C7 does; ``value`` is used up. A transposed butterfly: while a lane cares for several values, it hands half of them over."""
    both = {"running_max": c.running_max, "add": c.add}[combine]

    @device
    def fold_values(value, lane):  # noqa: ANN001, ANN202
        left, step = count, 16
        while step > 0:
            if left > 1:
                left //= 2
                upper = lane & step != 0
                for i in range(left):
                    keep = value[i + left] if upper else value[i]
                    give = value[i] if upper else value[i + left]
                    value[i] = both(keep, cuda.shfl_xor_sync(ALL, give, step))
            else:
                value[0] = both(value[0], cuda.shfl_xor_sync(ALL, value[0], step))
            step //= 2
        return value[0]

    return fold_values


@functools.cache
def functions(shape: Shape) -> SimpleNamespace:
    """The device functions of one specialisation. Floats of less than 32 bits are integers here."""
    value_of = fp8.reader(shape.cache)
    D, PAGE, X, TABLE = shape.d, shape.page, shape.x, shape.table
    HEADS, PAD = shape.heads, shape.pad
    WARPS, TOKENS, LANES, UNIT, DIMS = shape.warps, shape.tokens, shape.lanes, shape.unit, shape.unit * shape.units
    WEIGHTS, SUMS = TOKENS * PAD, DIMS * HEADS
    fold_maxima, fold_sums = fold(PAD, "running_max"), fold(WEIGHTS, "add")

    @device
    def wait_for_tile():  # noqa: ANN202
        if WARPS == 1:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    @device
    def read_table(p, row, s, at):  # noqa: ANN001, ANN202
        """The page ids of a tile into shared memory: those of tokens that take part, no others are read."""
        first = at.origin // PAGE
        for i in range(at.warp * 32 + at.lane, TABLE, LANES):
            begin = (first + i) * PAGE - at.origin  # of the page's tokens in the tile
            if begin < at.high and begin + PAGE > at.low:
                s.table[at.slot, i] = p.block_tables[row.n, first + i]

    @device
    def page_and_slot(s, at, t):  # noqa: ANN001, ANN202
        """Where a token lies; t counts from the tile's first token and takes part."""
        place = at.origin % PAGE + t  # a page may hold several tiles
        return index(s.table[at.slot, place // PAGE]), place % PAGE  # C16

    @device
    def base2(p, row, dot, h, token):  # noqa: ANN001, ANN202
        """C12: the base-2 logit of a dot product."""
        if p.alibi_slopes.shape[0] == 0 and p.cap == c.ZERO:
            return c.mul(dot, p.scale2)
        s = c.mul(dot, p.scale)
        if p.cap != c.ZERO:
            s = c.mul(p.cap, c.tanh(c.div(s, p.cap)))
        if p.alibi_slopes.shape[0] != 0:
            s = c.add(s, c.mul(p.alibi_slopes[row.head + min(h, row.heads - 1)], np.float32(token - (row.len - 1))))
        return c.logits2(s)

    @device
    def dot_products(p, row, s, at, first, dot):  # noqa: ANN001, ANN202
        """dot[i,h] of this lane's tokens first + 32 i (C13.1). A token that takes no part is not read."""
        for i in range(TOKENS):
            for h in range(PAD):
                dot[i * PAD + h] = c.ZERO
            t = first + 32 * i
            if at.low <= t < at.high:
                page, slot = page_and_slot(s, at, t)
                for j in range(D // X):
                    for x in range(X):
                        key = value_of(p.k_cache[page, row.g, j, slot, x], row.k_scale)
                        for h in range(HEADS):
                            dot[i * PAD + h] = c.fma(s.q[j * X + x, h], key, dot[i * PAD + h])  # C8

    @device
    def softmax(s, at, first, s2):  # noqa: ANN001, ANN202
        """p[t,h] into scratch, m and l of the tile (C12, C7), from the base-2 logits s2[i,h] of its lanes, which are used up."""
        top = cuda.local.array(PAD, float32)
        for h in range(PAD):
            top[h] = _MINUS_INF
            for i in range(TOKENS):
                if at.low <= first + 32 * i < at.high:
                    top[h] = c.running_max(top[h], s2[i * PAD + h])  # C6
        most = fold_maxima(top, at.lane)
        if at.lane % (32 // PAD) == 0:  # lanes of one value may hold +0 and -0 (C6): one of them speaks
            s.partial[at.slot, at.warp, folded_index(PAD, at.lane)] = most
        wait_for_tile()
        for h in range(PAD):
            m = s.partial[at.slot, 0, h]
            for warp in range(1, WARPS):
                m = c.running_max(m, s.partial[at.slot, warp, h])
            m = c.ceil(m)
            if at.lane == 0 and at.warp == 0:
                s.m[at.slot, h] = m
            for i in range(TOKENS):
                weight = c.ZERO
                if at.low <= first + 32 * i < at.high:
                    weight = c.weight_p(s2[i * PAD + h], m)
                s2[i * PAD + h] = weight
                s.scratch[at.slot, (first + 32 * i) * PAD + h] = weight
        total = fold_sums(s2, at.lane)  # C7: lanes
        wait_for_tile()  # everybody has read the maxima
        value = folded_index(WEIGHTS, at.lane)
        if at.lane % (32 // WEIGHTS) == 0:
            s.partial[at.slot, at.warp * TOKENS + value // PAD, value % PAD] = total
        wait_for_tile()
        if at.warp == 0 and at.lane < PAD:
            h = at.lane
            rows = s.partial[at.slot]
            s.l[at.slot, h] = c.sum_rows(rows[0, h], rows[1, h], rows[2, h], rows[3, h])  # C7: rows

    @device
    def weighted_sum(p, row, s, at):  # noqa: ANN001, ANN202
        """a[h,d] of the tile into scratch, whose p is read before (C13.2)."""
        acc = cuda.local.array(SUMS, float32)  # [dims, heads]
        for i in range(SUMS):
            acc[i] = c.ZERO
        place = at.warp * 32 + at.lane
        for t in range(at.low, at.high):  # C8: who takes no part executes nothing
            page, slot = page_and_slot(s, at, t)
            for i in range(DIMS):
                dim = (place + i // UNIT * LANES) * UNIT + i % UNIT
                if dim < D:
                    value = value_of(p.v_cache[page, row.g, dim, slot], row.v_scale)
                    for h in range(HEADS):
                        acc[i * HEADS + h] = c.fma(s.scratch[at.slot, t * PAD + h], value, acc[i * HEADS + h])
        wait_for_tile()  # p has been read: its place takes a
        for i in range(DIMS):
            dim = (place + i // UNIT * LANES) * UNIT + i % UNIT
            if dim < D:
                for h in range(HEADS):
                    s.scratch[at.slot, h * D + dim] = acc[i * HEADS + h]

    @device
    def tile_state(p, row, s, at):  # noqa: ANN001, ANN202
        """m, l and a of a tile, which has tokens, into shared memory."""
        first = at.warp * TOKENS * 32 + at.lane
        s2 = cuda.local.array(WEIGHTS, float32)
        dot_products(p, row, s, at, first, s2)
        for i in range(TOKENS):
            for h in range(HEADS):
                s2[i * PAD + h] = base2(p, row, s2[i * PAD + h], h, at.origin + first + 32 * i)
        softmax(s, at, first, s2)
        weighted_sum(p, row, s, at)

    return SimpleNamespace(read_table=read_table, tile_state=tile_state)
