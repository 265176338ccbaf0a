"""The walk of paged_decode over states of tiles and spans (C13.3, C13.4): the steps and names of ``kernels_cu/decode_walk.cuh``."""

from __future__ import annotations

import functools
from types import SimpleNamespace

from numba import cuda

from emu import contract as c
from emu.decode_shape import START, THREADS, TILE, Shape, Walk, index
from emu.simt import device


@device
def step(walk, first, m_u, l_u):  # noqa: ANN001, ANN201
    """The walk after one more state, and the weights of what came before and of that state; the first is taken as it is."""
    if first:
        return Walk(m_u, l_u), c.ZERO, c.ONE
    top = c.running_max(walk.m, m_u)
    so_far, following = c.pow2_weight(c.sub(walk.m, top)), c.pow2_weight(c.sub(m_u, top))
    return Walk(top, c.join_scalar(walk.l, so_far, l_u, following)), so_far, following


@device
def join(first, a, e, weights, a_u):  # noqa: ANN001, ANN201
    """Element e of a; the first state is taken as it is: -0 stays. ``weights``: so_far and next."""
    a[e] = a_u if first else c.join_scalar(a[e], weights[0], a_u, weights[1])


@functools.cache
def functions(shape: Shape) -> SimpleNamespace:
    """The device functions of one specialisation."""
    D, PAD, WARPS, ELEMENTS = shape.d, shape.pad, shape.warps, shape.elements
    UNIT_TOKENS = shape.tiles * TILE

    @device
    def measure(p, n):  # noqa: ANN001, ANN202
        """Which tokens [start, len) and units [first, units) of sequence n take part, and how many blocks share the units. (Of
        balanced parts, split < 0, decode_balance knows.)"""
        length = index(p.seq_lens[n])
        start = length - p.window if p.window != 0 and p.window < length else index(0)
        first, units = start // UNIT_TOKENS, (length + UNIT_TOKENS - 1) // UNIT_TOKENS
        a_block = p.split if WARPS == 1 and p.split > 1 else index(1)
        return start, length, first, units, (units - 1) // a_block - first // a_block + 1 if length > 0 else index(0)

    @device
    def element_of(e):  # noqa: ANN001, ANN202
        """Head and dimension of this thread's element e of a[h,d]; the head may be past the last."""
        at = cuda.threadIdx.x + e * THREADS
        return at // D, at % D

    @device
    def walk_tiles(row, s, first_tile, start, end, walk, joined, opens, span_a, a):  # noqa: ANN001, ANN202
        """C13.3 over the tiles [start, end) of a unit, then (where ``joined``) C13.4: (span, walk), span_a and a."""
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        span = START
        if lane < PAD:
            for u in range(start, end):
                span, so_far, following = step(span, u == start, s.m[u, lane], s.l[u, lane])
                s.weights[warp, u, 0, lane, 0], s.weights[warp, u, 0, lane, 1] = so_far, following
            if joined:
                walk, so_far, following = step(walk, opens, span.m, span.l)
                s.weights[warp, 0, 1, lane, 0], s.weights[warp, 0, 1, lane, 1] = so_far, following
        cuda.syncwarp()
        for e in range(ELEMENTS):
            h, d = element_of(e)
            if h < row.heads:
                for u in range(start, end):
                    join(u == start, span_a, e, s.weights[warp, u, 0, h], s.scratch[u, h * D + d])
                if joined:
                    join(opens, a, e, s.weights[warp, 0, 1, h], span_a[e])
        return span, walk

    @device
    def store(p, row, walk, a, number):  # noqa: ANN001, ANN202
        """Stores a state under a number, unnormalised."""
        for e in range(ELEMENTS):
            h, d = element_of(e)
            if h < row.heads:
                p.part_a[row.n, row.head + h, number, d] = a[e]
        if cuda.threadIdx.x < row.heads:
            p.part_m[row.n, row.head + cuda.threadIdx.x, number] = walk.m
            p.part_l[row.n, row.head + cuda.threadIdx.x, number] = walk.l

    return SimpleNamespace(measure=measure, element_of=element_of, walk_tiles=walk_tiles, store=store)
