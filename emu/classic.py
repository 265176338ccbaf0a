"""The classic mapping of paged attention (C14), shared by the ports of paged_attention_v1 and paged_attention_v2.

The same steps under the same names as ``kernels_cu/classic.cuh``; what the CUDA source reads by vectors is read here element by element.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
from numba import cuda

from emu import contract as c
from emu import fp8
from emu.classic_row import takes_part
from emu.simt import device
from pyref.classic import THREADS, WARPS, Mapping
from pyref.spec import itemsize

ALL = 0xFFFFFFFF
_MINUS_INF = np.float32(-np.inf)


@device
def m_of(rows):  # noqa: ANN001, ANN201
    """m of a partition, of what ``softmax`` leaves in ``rows``."""
    return c.ceil(c.running_max(c.running_max(rows[0], rows[1]), c.running_max(rows[2], rows[3])))  # integral, never -0


@device
def l_of(rows):  # noqa: ANN001, ANN201
    """l of a partition, likewise."""
    return c.sum_rows(rows[WARPS], rows[WARPS + 1], rows[WARPS + 2], rows[WARPS + 3])  # C7: rows


@device
def softmax(logits, base, tokens, rows):  # noqa: ANN001, ANN201
    """C12 and C7 on one partition: turns logits into weights p in place. ``rows``: 8 floats of shared memory, see ``m_of`` and ``l_of``.
    Ends with a barrier behind it: all weights can be read."""
    thread = cuda.threadIdx.x
    warp, lane = thread // 32, thread % 32
    top = _MINUS_INF
    for t in range(thread, tokens, THREADS):
        top = c.running_max(top, logits[base + t])  # C6
    other = 16
    while other > 0:
        top = c.running_max(top, cuda.shfl_xor_sync(ALL, top, other))
        other //= 2
    if lane == 0:
        rows[warp] = top
    cuda.syncthreads()
    top = m_of(rows)
    total = c.ZERO
    for t in range(thread, tokens, THREADS):
        weight = c.weight_p(logits[base + t], top)
        logits[base + t] = weight
        total = c.add(total, weight)
    other = 16
    while other > 0:
        total = c.add(total, cuda.shfl_xor_sync(ALL, total, other))  # C7: lanes
        other //= 2
    if lane == 0:
        rows[WARPS + warp] = total
    cuda.syncthreads()


@device
def logit(p, row, t, dot):  # noqa: ANN001, ANN201
    """The logit to base 2 of token t (C12). The path depends on the presence of a cap and of slopes, not on their values."""
    if p.alibi_slopes.shape[0] == 0 and p.cap == c.ZERO:
        return c.mul(dot, p.scale2)
    s = c.mul(dot, p.scale)
    if p.cap != c.ZERO:
        s = c.mul(p.cap, c.tanh(c.div(s, p.cap)))
    if p.alibi_slopes.shape[0] > 0:
        s = c.add(s, c.mul(p.alibi_slopes[row.h], np.float32(t - (row.len - 1))))
    return c.logits2(s)


@functools.cache
def functions(dtype: str, cache: str, d: int, page: int) -> SimpleNamespace:
    """The device functions of one specialisation: ``dtype`` of q and out, ``cache`` of K and V, where less than 32 bits are integers."""
    size = Mapping(d, page, itemsize(dtype))
    to_f32, value_of = c.TO_F32[dtype], fp8.reader(cache)
    D, PAGE, X = d, page, 16 // itemsize(cache)
    GROUP, K_VEC, SPAN = size.group, size.k_vector, size.span
    K_TOKENS = 32 // GROUP
    V_VEC, V_LANES, V_ROWS = size.v_vector, size.v_lanes, 32 // size.v_lanes

    @device
    def stage_q(p, row, shared):  # noqa: ANN001, ANN202
        """q[n,h,:] in binary32 (exact) to shared memory. A barrier must follow."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            shared[i] = to_f32(p.q[row.n, row.h, i])

    @device
    def partial_dot(q, in_span, p, row, block, slot):  # noqa: ANN001, ANN202
        """A lane's part of q . k of one token: a chain for every vector position, then the positions in ascending order (C14)."""
        total = c.ZERO
        for e in range(K_VEC):
            chain = c.ZERO
            for i in range(in_span + e, D, SPAN):
                chain = c.fma(q[i], value_of(p.k_cache[block, row.g, i // X, slot, i % X], row.k_scale), chain)
            total = chain if e == 0 else c.add(total, chain)
        return total

    @device
    def qk(p, row, q, first, end, logits, base):  # noqa: ANN001, ANN202
        """logits[base + t - first] of the tokens t in [first, end), end <= len; a partition begins at ``first``. Tokens that take no part
        are not read and get -inf: their weight will be the +0 of C7's missing values. A barrier must follow."""
        lane = cuda.threadIdx.x % 32
        member = lane % GROUP
        in_span = member * K_VEC  # this lane's first element of a span
        for number in range(first // PAGE + cuda.threadIdx.x // 32, (end + PAGE - 1) // PAGE, WARPS):
            begin = number * PAGE
            used = takes_part(p, row, begin, min(begin + PAGE, end))
            block = np.int64(p.block_tables[row.n, number]) if used else np.int64(0)  # C16
            for start in range(0, PAGE, K_TOKENS):
                slot = start + lane // GROUP
                t = begin + slot
                reads = used and t >= row.begin and t < end
                dot = c.ZERO
                if reads:
                    dot = partial_dot(q, in_span, p, row, block, slot)
                other = GROUP // 2
                while other > 0:
                    dot = c.add(dot, cuda.shfl_xor_sync(ALL, dot, other))
                    other //= 2
                if member == 0 and t < end:
                    logits[base + t - first] = logit(p, row, t, dot) if reads else _MINUS_INF

    @device
    def pv(p, row, first, tokens, weights, base, sums):  # noqa: ANN001, ANN202
        """sums[warp, d]: each warp's sum of weights[t] * v[t,d] over its pages of the partition that begins at ``first``. Tokens that take
        no part execute nothing (C8), their slots are not read. A barrier must follow."""
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        begin = row.begin - first  # of the window
        for rows in range(0, D, V_ROWS):
            d = rows + lane // V_LANES
            acc = c.ZERO
            if d < D:
                for number in range(warp, (tokens + PAGE - 1) // PAGE, WARPS):
                    if not takes_part(p, row, first + number * PAGE, first + min(number * PAGE + PAGE, tokens)):
                        continue
                    block = np.int64(p.block_tables[row.n, first // PAGE + number])  # C16
                    for slot in range(lane % V_LANES * V_VEC, PAGE, V_LANES * V_VEC):
                        t = number * PAGE + slot
                        for e in range(max(begin - t, 0), min(V_VEC, tokens - t)):
                            value = value_of(p.v_cache[block, row.g, d, slot + e], row.v_scale)
                            acc = c.fma(weights[base + t + e], value, acc)
            other = V_LANES // 2
            while other > 0:
                acc = c.add(acc, cuda.shfl_xor_sync(ALL, acc, other))
                other //= 2
            if lane % V_LANES == 0 and d < D:
                sums[warp * D + d] = acc

    @device
    def close(sums, i):  # noqa: ANN001, ANN202
        """a[i] of a partition: the warps' sums by the classic tree (0+2)+(1+3)."""
        return c.sum_rows(sums[i], sums[D + i], sums[2 * D + i], sums[3 * D + i])

    return SimpleNamespace(stage_q=stage_q, qk=qk, pv=pv, close=close)


@functools.cache
def finishing(dtype: str, d: int) -> SimpleNamespace:
    """The device functions that store what a row comes to, in out's ``dtype``."""
    from_f32, D = c.FROM_F32[dtype], d

    @device
    def finish(p, row, a, m, total):  # noqa: ANN001, ANN202
        """out[n,h,:] and lse[n,h] of a state; a[i] belongs to head dimension thread + 128 i."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            p.out[row.n, row.h, i] = from_f32(c.div(a[i // THREADS], total))  # C5, C9, C11
        if p.lse.shape[0] > 0 and cuda.threadIdx.x == 0:
            p.lse[row.n, row.h] = c.canonical_nan(c.lse(m, total))

    @device
    def finish_empty(p, row):  # noqa: ANN001, ANN202
        """C10: +0 and -inf."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            p.out[row.n, row.h, i] = from_f32(c.ZERO)
        if p.lse.shape[0] > 0 and cuda.threadIdx.x == 0:
            p.lse[row.n, row.h] = _MINUS_INF

    return SimpleNamespace(finish=finish, finish_empty=finish_empty)


@device
def join_weights(m, m_u):  # noqa: ANN001, ANN201
    """The walk of C13: (the new m, the weight of the state so far, the weight of the following partition)."""
    top = c.running_max(m, m_u)
    return top, c.pow2_weight(c.sub(m, top)), c.pow2_weight(c.sub(m_u, top))


def owned(d: int) -> int:
    """Head dimensions of a thread once sums are closed: thread, thread + 128, ..."""
    return -(-d // THREADS)
