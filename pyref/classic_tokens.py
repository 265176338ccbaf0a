"""Which tokens take part in paged_attention_v1 and paged_attention_v2: those of the sliding window (C12) and of the block-sparse pattern.

The *pattern* cuts a sequence into blocks of ``blocksparse_block_size`` tokens, counted from token 0. A query head sees the last
``blocksparse_local_blocks`` blocks, the one with the last token included, and of the others every ``blocksparse_vert_stride``-th. Where
these begin slides with the number of the head by ``blocksparse_head_sliding_step`` blocks: of the query head, or of the kv head where the
step is negative; heads of rank ``tp_rank`` are numbered behind those of the ranks before. A stride of 0 or 1 leaves no block out.
"""

from __future__ import annotations

import numpy as np

from pyref.spec import Array, Call


def first_token(call: Call, length: int) -> int:
    """The first token of a sequence in the window: a window of w admits t >= length - w, 0 admits all."""
    return max(0, length - call["window"]) if call["window"] else 0


def has_pattern(call: Call) -> bool:
    """Whether some blocks may take no part."""
    return call["blocksparse_vert_stride"] > 1


def offsets(call: Call) -> Array:
    """[h] of the pattern: block i is one of the vertical ones of a head where i + offset is a multiple of the stride."""
    h, g, step, rank = call.axes["h"], call.axes["g"], call["blocksparse_head_sliding_step"], call["tp_rank"]
    head = np.arange(h)
    return (rank * h + head) * step + 1 if step >= 0 else (rank * g + head // (h // g)) * -step + 1


def takes_part(call: Call, n: int) -> Array:
    """[h, len] of bool, or [1, len] where all heads see the same: whether a token of sequence n takes part."""
    length = int(call["seq_lens"][n])
    t = np.arange(length, dtype=np.int32)
    inside = t >= first_token(call, length)
    if not has_pattern(call):
        return inside[None]
    size = call["blocksparse_block_size"]
    block, last = np.arange(-(-length // size)), (length - 1) // size
    local = block > last - call["blocksparse_local_blocks"]
    vertical = (block + offsets(call)[:, None]) % call["blocksparse_vert_stride"] == 0
    return inside & (local | vertical)[:, t // size]


def pages(call: Call) -> Array:
    """[n, max_pages] of bool: whether a page holds a token that takes part for some head. Its entry of the table is read then."""
    page, lengths = call.axes["page"], call["seq_lens"].astype(np.int64)[:, None]
    begins = np.maximum(lengths - call["window"], 0) if call["window"] else 0
    first = np.arange(call.axes["max_pages"]) * page
    inside = (first < lengths) & (first + page > begins)
    if not has_pattern(call):
        return inside
    block, last = first // call["blocksparse_block_size"], (lengths - 1) // call["blocksparse_block_size"]
    local = block > last - call["blocksparse_local_blocks"]
    vertical = ((block + np.unique(offsets(call))[:, None]) % call["blocksparse_vert_stride"] == 0).any(axis=0)
    return inside & (local | vertical)
