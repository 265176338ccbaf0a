"""The classic mapping of paged attention (C14), shared by the ports of paged_attention_v1 and paged_attention_v2.

The same steps under the same names as ``kernels_cu/classic.cuh``; what the CUDA source reads by vectors is read here element by element.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
from numba import cuda

from emu import contract as c
from emu.simt import device
from pyref.classic import PARTITION, THREADS, WARPS, Mapping
from pyref.spec import Array, Call, itemsize

MAX_GRID = 65535  # blocks along y and z
ALL = 0xFFFFFFFF
_MINUS_INF = np.float32(-np.inf)


@device
def softmax(logits, base, tokens, rows):  # noqa: ANN001, ANN201
    """C12 and C7 on one partition: turns logits into weights p in place and gives (m, l) to every thread. ``rows``: 8 floats of shared
    memory. Ends with a barrier behind it: all weights can be read."""
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
    top = c.ceil(c.running_max(c.running_max(rows[0], rows[1]), c.running_max(rows[2], rows[3])))  # integral, never -0
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
    return top, c.sum_rows(rows[WARPS], rows[WARPS + 1], rows[WARPS + 2], rows[WARPS + 3])  # C7: rows


@functools.cache
def functions(dtype: str, d: int, page: int) -> SimpleNamespace:
    """The device functions of one specialisation. 16-bit floats are uint16 here."""
    size = Mapping(d, page, itemsize(dtype))
    to_f32, from_f32 = c.TO_F32[dtype], c.FROM_F32[dtype]
    D, PAGE, X = d, page, 16 // itemsize(dtype)
    GROUP, K_VEC, SPAN = size.group, size.k_vector, size.span
    K_VECTORS, K_TOKENS = D // SPAN, 32 // GROUP
    V_VEC, V_LANES, V_ROWS = size.v_vector, size.v_lanes, 32 // size.v_lanes

    @device
    def stage_q(q, n, h, shared):  # noqa: ANN001, ANN202
        """q[n,h,:] in binary32 (exact) to shared memory. A barrier must follow."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            shared[i] = to_f32(q[n, h, i])

    @device
    def partial_dot(q, in_span, k_cache, block, g, slot):  # noqa: ANN001, ANN202
        """A lane's part of q . k of one token: a chain for every vector position, then the positions in ascending order (C14)."""
        column, at = in_span // X, in_span % X
        total = c.ZERO
        for e in range(K_VEC):
            chain = c.ZERO
            for i in range(K_VECTORS):
                key = to_f32(k_cache[block, g, i * (SPAN // X) + column, slot, at + e])
                chain = c.fma(q[i * SPAN + in_span + e], key, chain)
            total = chain if e == 0 else c.add(total, chain)
        return total

    @device
    def qk(q, k_cache, block_tables, alibi_slopes, scale, scale2, n, h, g, length, first, end, logits):  # noqa: ANN001, ANN202
        """logits[t - first] of the tokens t in [first, end), end <= length; a partition begins at ``first``. A barrier must follow."""
        lane = cuda.threadIdx.x % 32
        member = lane % GROUP
        in_span = member * K_VEC  # this lane's first element of a span
        for number in range(first // PAGE + cuda.threadIdx.x // 32, (end + PAGE - 1) // PAGE, WARPS):
            block = np.int64(block_tables[n, number])  # C16
            for start in range(0, PAGE, K_TOKENS):
                slot = start + lane // GROUP
                t = number * PAGE + slot
                dot = c.ZERO
                if t < end:
                    dot = partial_dot(q, in_span, k_cache, block, g, slot)
                other = GROUP // 2
                while other > 0:
                    dot = c.add(dot, cuda.shfl_xor_sync(ALL, dot, other))
                    other //= 2
                if member == 0 and t < end:
                    if alibi_slopes.shape[0] == 0:  # C12: by the presence of slopes, not by their values
                        logits[t - first] = c.mul(dot, scale2)
                    else:
                        bias = c.mul(alibi_slopes[h], np.float32(t - (length - 1)))
                        logits[t - first] = c.logits2(c.add(c.mul(dot, scale), bias))

    @device
    def pv(v_cache, block_tables, n, g, first, tokens, p, base, sums):  # noqa: ANN001, ANN202
        """sums[warp, d]: each warp's sum of p[t] * v[t,d] over its pages of the partition that begins at ``first``. Tokens at or beyond
        ``tokens`` execute nothing (C8), their slots are not read. A barrier must follow."""
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        for rows in range(0, D, V_ROWS):
            row = rows + lane // V_LANES
            acc = c.ZERO
            if row < D:
                for number in range(warp, (tokens + PAGE - 1) // PAGE, WARPS):
                    block = np.int64(block_tables[n, first // PAGE + number])  # C16
                    for slot in range(lane % V_LANES * V_VEC, PAGE, V_LANES * V_VEC):
                        t = number * PAGE + slot
                        for e in range(min(V_VEC, tokens - t)):
                            acc = c.fma(p[base + t + e], to_f32(v_cache[block, g, row, slot + e]), acc)
            other = V_LANES // 2
            while other > 0:
                acc = c.add(acc, cuda.shfl_xor_sync(ALL, acc, other))
                other //= 2
            if lane % V_LANES == 0 and row < D:
                sums[warp * D + row] = acc

    @device
    def close(sums, i):  # noqa: ANN001, ANN202
        """a[i] of a partition: the warps' sums by the classic tree (0+2)+(1+3)."""
        return c.sum_rows(sums[i], sums[D + i], sums[2 * D + i], sums[3 * D + i])

    @device
    def finish(out, lse, n, h, a, m, total):  # noqa: ANN001, ANN202
        """out[n,h,:] and lse[n,h] of a state; a[i] belongs to head dimension thread + 128 i."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            out[n, h, i] = from_f32(c.div(a[i // THREADS], total))  # C5, C9, C11
        if lse.shape[0] > 0 and cuda.threadIdx.x == 0:
            lse[n, h] = c.canonical_nan(c.lse(m, total))

    @device
    def finish_empty(out, lse, n, h):  # noqa: ANN001, ANN202
        """C10: +0 and -inf."""
        for i in range(cuda.threadIdx.x, D, THREADS):
            out[n, h, i] = from_f32(c.ZERO)
        if lse.shape[0] > 0 and cuda.threadIdx.x == 0:
            lse[n, h] = _MINUS_INF

    return SimpleNamespace(stage_q=stage_q, qk=qk, pv=pv, close=close, finish=finish, finish_empty=finish_empty)


@device
def join_weights(m, m_u):  # noqa: ANN001, ANN201
    """The walk of C13: (the new m, the weight of the state so far, the weight of the following partition)."""
    top = c.running_max(m, m_u)
    return top, c.pow2_weight(c.sub(m, top)), c.pow2_weight(c.sub(m_u, top))


def storage(array: Array) -> Array:
    """16-bit floats as uint16, as ports take them."""
    return array.view(np.uint16) if array.itemsize == 2 else array


def common(call: Call) -> tuple[Array, ...]:
    """out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, lse as ports take them; absent ones have size 0."""
    caches = [storage(call[name]) for name in ("out", "q", "k_cache", "v_cache")]
    slopes = call["alibi_slopes"] if call["alibi_slopes"] is not None else np.empty(0, np.float32)
    lse = call["lse"] if call["lse"] is not None else np.empty((0, 0), np.float32)
    return (*caches, call["block_tables"], call["seq_lens"], slopes, lse)


def owned(d: int) -> int:
    """Head dimensions of a thread once sums are closed: thread, thread + 128, ..."""
    return -(-d // THREADS)


__all__ = ["ALL", "MAX_GRID", "PARTITION", "THREADS", "WARPS", "common", "functions", "join_weights", "owned", "softmax", "storage"]
