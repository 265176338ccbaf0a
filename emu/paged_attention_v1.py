"""Decode attention of one query token a sequence over a paged KV cache, one block a head and sequence: the numba port of
``kernels_cu/paged_attention_v1.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32

from emu import classic
from emu import contract as c
from emu.classic_row import Params, params, row_of, takes_part
from pyref.classic import PARTITION, THREADS, WARPS
from pyref.spec import Call

MAX_GRID = 65535  # blocks along y


@functools.cache
def kernel(dtype: str, cache: str, d: int, page: int) -> Any:
    """The kernel of one specialisation."""
    f, end = classic.functions(dtype, cache, d, page), classic.finishing(dtype, d)
    stage_q, qk, pv, close, finish, finish_empty = f.stage_q, f.qk, f.pv, f.close, end.finish, end.finish_empty
    softmax, m_of, l_of, join_weights = classic.softmax, classic.m_of, classic.l_of, classic.join_weights
    D, OWNED, SUMS, ROWS = d, classic.owned(d), WARPS * d, 2 * WARPS

    @cuda.jit
    def paged_attention_v1_kernel(  # noqa: ANN202
        out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,  # noqa: ANN001
        local_blocks, vert_stride, block_size, sliding_step, first_sequence,  # noqa: ANN001
    ):  # fmt: skip
        p = Params(
            out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,
            local_blocks, vert_stride, block_size, sliding_step,
        )  # fmt: skip
        logits = cuda.shared.array(0, float32)  # of every token; then, a partition at a time, its weights
        staged = cuda.shared.array(D, float32)  # q
        sums = cuda.shared.array(SUMS, float32)  # [warp, d]
        rows = cuda.shared.array(ROWS, float32)

        row = row_of(p, np.int64(first_sequence + cuda.blockIdx.y))
        if not takes_part(p, row, 0, row.len):
            finish_empty(p, row)
            return
        stage_q(p, row, staged)
        cuda.syncthreads()
        begin = row.begin // PARTITION * PARTITION
        qk(p, row, staged, begin, row.len, logits, begin)
        cuda.syncthreads()

        m, total, partitions = c.ZERO, c.ZERO, 0
        a = cuda.local.array(OWNED, float32)  # a[d], d = thread + 128 i
        for first in range(begin, row.len, PARTITION):
            tokens = min(row.len - first, PARTITION)
            if not takes_part(p, row, first, first + tokens):
                continue  # C10
            softmax(logits, first, tokens, rows)
            pv(p, row, first, tokens, logits, first, sums)
            m_u, total_u = m_of(rows), l_of(rows)  # before the barrier: the next softmax begins to write them
            cuda.syncthreads()
            if partitions == 0:
                m, total = m_u, total_u
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = close(sums, i)
            else:
                m, w, w_u = join_weights(m, m_u)  # C13
                total = c.join_scalar(total, w, total_u, w_u)
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = c.join_scalar(a[i // THREADS], w, close(sums, i), w_u)
            partitions += 1  # the barriers of the next softmax stand between these reads of `sums` and its next writes
        finish(p, row, a, m, total)

    return paged_attention_v1_kernel


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    n, h = call.axes["n"], call.axes["h"]
    if n == 0 or h == 0:
        return  # an empty grid cannot be launched
    run = kernel(call.dtypes["T"], call.dtypes["C"], call.axes["d"], call.axes["page"])
    for first in range(0, n, MAX_GRID):
        grid = (h, min(n - first, MAX_GRID))
        run[grid, THREADS, 0, 4 * call["max_seq_len"]](*params(call), first)
