"""What a block of the ports of paged_attention_v1 and paged_attention_v2 works on, and which of its tokens take part.

The same steps under the same names as ``kernels_cu/classic_row.cuh``; ``pyref.classic_tokens`` says which tokens these are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from emu import contract as c
from emu.simt import device
from pyref.spec import Array, Call


class Params(NamedTuple):
    """What the kernels are called with, but for the workspace; optional arrays that are absent have size 0."""

    out: Any  # [n, h, d]
    q: Any  # [n, h, d]
    k_cache: Any  # [pages, g, d/x, page, x]
    v_cache: Any  # [pages, g, d, page]
    block_tables: Any  # [n, max_pages]
    seq_lens: Any  # [n]
    alibi_slopes: Any  # [h]
    k_scale: Any  # [1] or [g]
    v_scale: Any  # [1] or [g]
    lse: Any  # [n, h]
    scale: Any
    scale2: Any
    cap: Any
    window: Any
    tp_rank: Any
    blocksparse_local_blocks: Any
    blocksparse_vert_stride: Any
    blocksparse_block_size: Any
    blocksparse_head_sliding_step: Any


class Row(NamedTuple):
    """Query head h of sequence n."""

    n: Any
    h: Any
    g: Any  # its kv head
    len: Any  # tokens
    begin: Any  # the first one in the window
    k_scale: Any
    v_scale: Any


@device
def row_of(p, n):  # noqa: ANN001, ANN201
    """The row of the block, of sequence n."""
    h = np.int64(cuda.blockIdx.x)
    g = h // (p.q.shape[1] // p.k_cache.shape[1])
    length = np.int64(p.seq_lens[n])
    begin = length - p.window if p.window > 0 and p.window < length else np.int64(0)
    k_scale, v_scale = c.ONE, c.ONE
    if p.k_scale.shape[0] > 0:  # an fp8 cache
        k_scale = p.k_scale[g if p.k_scale.shape[0] > 1 else 0]
        v_scale = p.v_scale[g if p.v_scale.shape[0] > 1 else 0]
    return Row(n, h, g, length, begin, k_scale, v_scale)


@device
def in_pattern(p, row, first, last):  # noqa: ANN001, ANN201
    """Whether one of the blocks that tokens [first, last] lie in is in the block-sparse pattern."""
    step, size, stride = p.blocksparse_head_sliding_step, p.blocksparse_block_size, p.blocksparse_vert_stride
    slide = (p.tp_rank * p.q.shape[1] + row.h) * step if step >= 0 else (p.tp_rank * p.k_cache.shape[1] + row.g) * -step
    offset, start, end = slide + 1, first // size, last // size
    local = end + p.blocksparse_local_blocks > (row.len - 1) // size
    return local or (end + offset) // stride * stride >= start + offset  # a multiple of the stride lies in [start, end] + offset


@device
def takes_part(p, row, first, end):  # noqa: ANN001, ANN201
    """Whether one of the tokens [first, end), end <= len, takes part. Of a page: whether those of them in the window do."""
    first = max(first, row.begin)
    if first >= end:
        return False
    return p.blocksparse_vert_stride <= 1 or in_pattern(p, row, first, end - 1)


def storage(array: Array) -> Array:
    """Floats of 8 and 16 bits as integers, as ports take them."""
    return array.view(f"u{array.itemsize}") if array.itemsize < 4 else array


def params(call: Call) -> Params:
    """The arguments of a call."""
    found = {name: call[name] for name in Params._fields}
    found |= {name: storage(call[name]) for name in ("out", "q", "k_cache", "v_cache")}
    for name, axes in (("lse", 2), ("alibi_slopes", 1), ("k_scale", 1), ("v_scale", 1)):
        if found[name] is None:
            found[name] = np.empty((0,) * axes, np.float32)
    return Params(**found)
