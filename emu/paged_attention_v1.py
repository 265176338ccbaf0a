"""Decode attention of one query token a sequence over a paged KV cache, one block a head and sequence: the numba port of
``kernels_cu/paged_attention_v1.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32

from emu import classic
from emu import contract as c
from emu.classic import MAX_GRID, PARTITION, THREADS, WARPS
from pyref.spec import Call


@functools.cache
def kernel(dtype: str, d: int, page: int) -> Any:
    """The kernel of one specialisation."""
    f = classic.functions(dtype, d, page)
    stage_q, qk, pv, close, finish, finish_empty = f.stage_q, f.qk, f.pv, f.close, f.finish, f.finish_empty
    softmax, join_weights = classic.softmax, classic.join_weights
    D, OWNED, SUMS, ROWS = d, classic.owned(d), WARPS * d, 2 * WARPS

    @cuda.jit
    def paged_attention_v1_kernel(  # noqa: ANN202
        out, q_in, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, lse, scale, scale2, first_sequence  # noqa: ANN001
    ):  # fmt: skip
        logits = cuda.shared.array(0, float32)  # of every token; then, a partition at a time, its weights
        q = cuda.shared.array(D, float32)
        sums = cuda.shared.array(SUMS, float32)  # [warp, d]
        rows = cuda.shared.array(ROWS, float32)

        n, h = np.int64(first_sequence + cuda.blockIdx.y), np.int64(cuda.blockIdx.x)
        length = np.int64(seq_lens[n])
        if length <= 0:
            finish_empty(out, lse, n, h)
            return
        g = h // (out.shape[1] // k_cache.shape[1])
        stage_q(q_in, n, h, q)
        cuda.syncthreads()
        qk(q, k_cache, block_tables, alibi_slopes, scale, scale2, n, h, g, length, np.int64(0), length, logits)
        cuda.syncthreads()

        m, total = c.ZERO, c.ZERO
        a = cuda.local.array(OWNED, float32)  # a[d], d = thread + 128 i
        for first in range(0, length, PARTITION):
            tokens = min(length - first, PARTITION)
            m_u, total_u = softmax(logits, first, tokens, rows)
            pv(v_cache, block_tables, n, g, first, tokens, logits, first, sums)
            cuda.syncthreads()
            if first == 0:
                m, total = m_u, total_u
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = close(sums, i)
            else:
                m, w, w_u = join_weights(m, m_u)  # C13
                total = c.join_scalar(total, w, total_u, w_u)
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = c.join_scalar(a[i // THREADS], w, close(sums, i), w_u)
            # the barriers of the next softmax stand between these reads of `sums` and its next writes
        finish(out, lse, n, h, a, m, total)

    return paged_attention_v1_kernel


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    n, h = call.axes["n"], call.axes["h"]
    if n == 0 or h == 0:
        return  # an empty grid cannot be launched
    run = kernel(call.dtypes["T"], call.axes["d"], call.axes["page"])
    for first in range(0, n, MAX_GRID):
        grid = (h, min(n - first, MAX_GRID))
        run[grid, THREADS, 0, 4 * call["max_seq_len"]](*classic.common(call), call["scale"], call["scale2"], first)
