"""Decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens: the numba port of
``kernels_cu/paged_attention_v2.cu``."""

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
def partitions(dtype: str, cache: str, d: int, page: int) -> Any:
    """The kernel of one specialisation that leaves the state of every partition."""
    f = classic.functions(dtype, cache, d, page)
    stage_q, qk, pv, close = f.stage_q, f.qk, f.pv, f.close
    softmax, m_of, l_of = classic.softmax, classic.m_of, classic.l_of
    D, SUMS, ROWS = d, WARPS * d, 2 * WARPS

    @cuda.jit
    def partition_kernel(  # noqa: ANN202
        out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,  # noqa: ANN001
        local_blocks, vert_stride, block_size, sliding_step, tmp_out, exp_sums, max_logits, first_sequence,  # noqa: ANN001
    ):  # fmt: skip
        p = Params(
            out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,
            local_blocks, vert_stride, block_size, sliding_step,
        )  # fmt: skip
        logits = cuda.shared.array(PARTITION, float32)
        staged = cuda.shared.array(D, float32)  # q
        sums = cuda.shared.array(SUMS, float32)  # [warp, d]
        rows = cuda.shared.array(ROWS, float32)

        row = row_of(p, np.int64(first_sequence + cuda.blockIdx.y))
        part = np.int64(cuda.blockIdx.z)
        first = part * PARTITION
        tokens = min(row.len - first, PARTITION)
        if not takes_part(p, row, first, first + tokens):
            return
        stage_q(p, row, staged)
        cuda.syncthreads()
        qk(p, row, staged, first, first + tokens, logits, 0)
        cuda.syncthreads()
        softmax(logits, 0, tokens, rows)
        pv(p, row, first, tokens, logits, 0, sums)
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, D, THREADS):
            tmp_out[row.n, row.h, part, i] = c.canonical_nan(close(sums, i))  # C9
        if cuda.threadIdx.x == 0:
            exp_sums[row.n, row.h, part] = c.canonical_nan(l_of(rows))
            max_logits[row.n, row.h, part] = m_of(rows)  # never NaN (C6)

    return partition_kernel


@functools.cache
def reduction(dtype: str, d: int) -> Any:
    """The kernel that joins a row's partitions. It reads no cache: pages and the cache's type compile no other one."""
    f = classic.finishing(dtype, d)
    finish, finish_empty, join_weights = f.finish, f.finish_empty, classic.join_weights
    D, OWNED = d, classic.owned(d)

    @cuda.jit
    def reduce_kernel(  # noqa: ANN202
        out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,  # noqa: ANN001
        local_blocks, vert_stride, block_size, sliding_step, tmp_out, exp_sums, max_logits, first_sequence,  # noqa: ANN001
    ):  # fmt: skip
        p = Params(
            out, q, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale, lse, scale, scale2, cap, window, tp_rank,
            local_blocks, vert_stride, block_size, sliding_step,
        )  # fmt: skip
        row = row_of(p, np.int64(first_sequence + cuda.blockIdx.y))
        if not takes_part(p, row, 0, row.len):
            finish_empty(p, row)
            return
        m, total, partitions = c.ZERO, c.ZERO, 0
        a = cuda.local.array(OWNED, float32)  # a[d], d = thread + 128 i
        for part in range(row.begin // PARTITION, (row.len + PARTITION - 1) // PARTITION):
            if not takes_part(p, row, part * PARTITION, min(part * PARTITION + PARTITION, row.len)):
                continue  # C10
            if partitions == 0:
                m, total = max_logits[row.n, row.h, part], exp_sums[row.n, row.h, part]
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = tmp_out[row.n, row.h, part, i]
            else:
                m, w, w_u = join_weights(m, max_logits[row.n, row.h, part])  # C13
                total = c.join_scalar(total, w, exp_sums[row.n, row.h, part], w_u)
                for i in range(cuda.threadIdx.x, D, THREADS):
                    a[i // THREADS] = c.join_scalar(a[i // THREADS], w, tmp_out[row.n, row.h, part, i], w_u)
            partitions += 1
        finish(p, row, a, m, total)

    return reduce_kernel


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    n, h = call.axes["n"], call.axes["h"]
    if n == 0 or h == 0:
        return  # an empty grid cannot be launched
    partition_kernel = partitions(call.dtypes["T"], call.dtypes["C"], call.axes["d"], call.axes["page"])
    reduce_kernel = reduction(call.dtypes["T"], call.axes["d"])
    arguments = (*params(call), call["tmp_out"], call["exp_sums"], call["max_logits"])
    parts = (call["max_seq_len"] + PARTITION - 1) // PARTITION
    for first in range(0, n, MAX_GRID):
        sequences = min(n - first, MAX_GRID)
        if parts > 0:
            partition_kernel[(h, sequences, parts), THREADS](*arguments, first)
        reduce_kernel[(h, sequences), THREADS](*arguments, first)
