"""Decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens: the numba port of
``kernels_cu/paged_attention_v2.cu``."""

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
def kernels(dtype: str, d: int, page: int) -> tuple[Any, Any]:
    """The two kernels of one specialisation: partitions, and the reduction over them."""
    f = classic.functions(dtype, d, page)
    stage_q, qk, pv, close, finish, finish_empty = f.stage_q, f.qk, f.pv, f.close, f.finish, f.finish_empty
    softmax, join_weights = classic.softmax, classic.join_weights
    D, OWNED, SUMS, ROWS = d, classic.owned(d), WARPS * d, 2 * WARPS

    @cuda.jit
    def partition_kernel(  # noqa: ANN202
        q_in, k_cache, v_cache, block_tables, seq_lens, alibi_slopes, tmp_out, exp_sums, max_logits, scale, scale2, first_sequence  # noqa: ANN001
    ):  # fmt: skip
        logits = cuda.shared.array(PARTITION, float32)
        q = cuda.shared.array(D, float32)
        sums = cuda.shared.array(SUMS, float32)  # [warp, d]
        rows = cuda.shared.array(ROWS, float32)

        n, h, part = np.int64(first_sequence + cuda.blockIdx.y), np.int64(cuda.blockIdx.x), np.int64(cuda.blockIdx.z)
        length, first = np.int64(seq_lens[n]), part * PARTITION
        if first >= length:
            return
        tokens = min(length - first, PARTITION)
        g = h // (q_in.shape[1] // k_cache.shape[1])
        stage_q(q_in, n, h, q)
        cuda.syncthreads()
        qk(q, k_cache, block_tables, alibi_slopes, scale, scale2, n, h, g, length, first, first + tokens, logits)
        cuda.syncthreads()
        m, total = softmax(logits, 0, tokens, rows)
        pv(v_cache, block_tables, n, g, first, tokens, logits, 0, sums)
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, D, THREADS):
            tmp_out[n, h, part, i] = c.canonical_nan(close(sums, i))  # C9
        if cuda.threadIdx.x == 0:
            exp_sums[n, h, part] = c.canonical_nan(total)
            max_logits[n, h, part] = m  # never NaN (C6)

    @cuda.jit
    def reduce_kernel(out, seq_lens, lse, tmp_out, exp_sums, max_logits, first_sequence):  # noqa: ANN001, ANN202
        n, h = np.int64(first_sequence + cuda.blockIdx.y), np.int64(cuda.blockIdx.x)
        length = np.int64(seq_lens[n])
        if length <= 0:
            finish_empty(out, lse, n, h)
            return
        m, total = max_logits[n, h, 0], exp_sums[n, h, 0]
        a = cuda.local.array(OWNED, float32)  # a[d], d = thread + 128 i
        for i in range(cuda.threadIdx.x, D, THREADS):
            a[i // THREADS] = tmp_out[n, h, 0, i]
        for part in range(1, (length + PARTITION - 1) // PARTITION):
            m, w, w_u = join_weights(m, max_logits[n, h, part])  # C13
            total = c.join_scalar(total, w, exp_sums[n, h, part], w_u)
            for i in range(cuda.threadIdx.x, D, THREADS):
                a[i // THREADS] = c.join_scalar(a[i // THREADS], w, tmp_out[n, h, part, i], w_u)
        finish(out, lse, n, h, a, m, total)

    return partition_kernel, reduce_kernel


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    n, h = call.axes["n"], call.axes["h"]
    if n == 0 or h == 0:
        return  # an empty grid cannot be launched
    partition_kernel, reduce_kernel = kernels(call.dtypes["T"], call.axes["d"], call.axes["page"])
    out, *inputs, lse = classic.common(call)
    seq_lens, work = call["seq_lens"], (call["tmp_out"], call["exp_sums"], call["max_logits"])
    parts = (call["max_seq_len"] + PARTITION - 1) // PARTITION
    for first in range(0, n, MAX_GRID):
        sequences = min(n - first, MAX_GRID)
        if parts > 0:
            partition_kernel[(h, sequences, parts), THREADS](*inputs, *work, call["scale"], call["scale2"], first)
        reduce_kernel[(h, sequences), THREADS](out, seq_lens, lse, *work, first)
