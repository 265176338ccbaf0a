"""What paged_attention_v1 and paged_attention_v2 declare in common, their workspace, and the choice between them."""

from __future__ import annotations

import numpy as np

from pyref import cache_types, checks, classic_tokens, contract, paged_checks
from pyref.cache_types import FLOATS, FP8
from pyref.classic import PARTITION, WARPS, Mapping
from pyref.spec import Array, Call, Scalar, Tensor

MAX_GRID_Z = 65_535
INT32 = 2**31 - 1

DTYPES = {"T": FLOATS, "C": (*FLOATS, *FP8)}
CONSTANTS = {"SB_T": "T", "SB_C": "C", "SB_D": "d", "SB_PAGE": "page"}
DERIVED = {"x": cache_types.x("q")}
SIZES = cache_types.SCALE_SIZES


def partitions(max_seq_len: int) -> int:
    """Partitions of 512 tokens that ``max_seq_len`` tokens take, at least 1."""
    return max(-(-max_seq_len // PARTITION), 1)


def arguments(*, workspace: bool = False) -> dict[str, Tensor | Scalar]:
    """The arguments of both kernels, in the order of the C parameter struct; with the workspace of paged_attention_v2."""
    return {
        "out": Tensor("n h | d", "T", "attention output", role="out"),
        "q": Tensor("n h | d", "T", "one query token a sequence"),
        "k_cache": Tensor("pages g | d/x page x", "C", "keys; x elements of a token lie together", align=16),
        "v_cache": Tensor("pages g | d page", "C", "values; the tokens of a page lie together", align=16),
        "block_tables": Tensor("n | max_pages", "i32", "pages of each sequence; entries without a token that takes part are not read"),
        "seq_lens": Tensor("n", "i32", "tokens of each sequence"),
        "alibi_slopes": Tensor("h", "f32", "ALiBi: slope * (t - (len - 1)) is added to the scaled logit", optional=True),
        **cache_types.SCALES,
        "lse": Tensor("n h |", "f32", "natural log-sum-exp of the logits; -inf for a sequence without tokens", role="out", optional=True),
        **(_WORKSPACE if workspace else {}),
        "scale": Scalar("f32", "factor of q . k"),
        "scale2": Scalar("f32", "scale to base 2 (C12)", default=lambda call: contract.scale2(call["scale"]), computed=True),
        "cap": Scalar("f32", "logits become cap * tanh(logit / cap); 0: as they are", default=lambda call: 0.0),
        "window": Scalar("i64", "tokens of the sliding window; 0: all", default=lambda call: 0),
        "tp_rank": Scalar("i64", "number of this part of the heads, where several machines share them", default=lambda call: 0),
        "blocksparse_local_blocks": Scalar("i64", "blocks at the end that take part", default=lambda call: 0),
        "blocksparse_vert_stride": Scalar("i64", "of the others every so manieth takes part; 0 or 1: all", default=lambda call: 0),
        "blocksparse_block_size": Scalar("i64", "tokens of a block", default=lambda call: 64),
        "blocksparse_head_sliding_step": Scalar("i64", "blocks by which the pattern slides a head", default=lambda call: 0),
        "max_seq_len": Scalar("i64", "no sequence is longer", default=lambda call: call.axes["max_pages"] * call.axes["page"]),
    }


_WORKSPACE = {
    "tmp_out": Tensor("n h parts | d", "f32", "a of every partition of 512 tokens, unnormalised", role="out"),
    "exp_sums": Tensor("n h parts", "f32", "l of every partition", role="out"),
    "max_logits": Tensor("n h parts", "f32", "m of every partition: an integral maximum to base 2", role="out"),
}


# -- checks: shapes and limits --


def _check_head_size(call: Call) -> None:
    d = call.axes["d"]
    if d % 8 or not 8 <= d <= 512:
        raise call.error(ValueError, "q", f"axis d: got {d}, expected a multiple of 8 from 8 to 512")


def _check_page_size(call: Call) -> None:
    page, d = call.axes["page"], call.axes["d"]
    if page not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        raise call.error(ValueError, "k_cache", f"axis page: got {page}, expected a power of two from 1 to 256")
    lanes = Mapping(d, page, call["q"].itemsize)
    if d % lanes.span:
        text = f"axis d: got {d} (from q), expected a multiple of {lanes.span}: at page {page}, {lanes.group} lanes share a token (C14)"
        raise call.error(ValueError, "k_cache", text)


def _check_heads(call: Call) -> None:
    h, g = call.axes["h"], call.axes["g"]
    if g < 1 or h % g:
        raise call.error(ValueError, "q", f"axis h: got {h}, expected a multiple of g = {g} (from k_cache), and g at least 1")
    if h > checks.GRID_X:
        raise call.error(ValueError, "q", f"axis h: got {h}, expected at most {checks.GRID_X}: a grid has no more blocks along x")


def _check_pattern(call: Call) -> None:
    for name in ("tp_rank", "blocksparse_local_blocks", "blocksparse_vert_stride"):
        if not 0 <= call[name] <= INT32:
            raise call.error(ValueError, name, f"got {call[name]}, expected 0 to {INT32}")
    if not classic_tokens.has_pattern(call):
        return
    size, page = call["blocksparse_block_size"], call.axes["page"]
    if not page <= size <= INT32 or size % page:
        text = f"got {size}, expected a multiple of page {page} (from k_cache) up to {INT32}: a page takes part or does not"
        raise call.error(ValueError, "blocksparse_block_size", text)
    step, rank = call["blocksparse_head_sliding_step"], call["tp_rank"]
    heads = (rank + 1) * call.axes["h" if step >= 0 else "g"]
    if abs(step) * heads > INT32:
        text = f"got {step}, expected at most {INT32 // heads} either way: {heads} heads up to rank {rank} (tp_rank), offsets of 32 bits"
        raise call.error(ValueError, "blocksparse_head_sliding_step", text)


def _check_memory(call: Call) -> None:
    written = [name for name in call.kernel.outputs if call[name] is not None]
    for i, name in enumerate(written):
        checks.separate(call, name, [other for other in call.kernel.tensors if other not in written[: i + 1]])


CHECKS = (
    cache_types.check("q"),
    _check_head_size,
    _check_page_size,
    _check_heads,
    paged_checks.max_seq_len,
    paged_checks.window_and_cap,
    _check_pattern,
    _check_memory,
)


def shared_bytes(d: int, max_seq_len: int) -> int:
    """Shared memory of a block of paged_attention_v1: q, four warps' sums, eight partial results and a logit a token, in binary32."""
    return 4 * (d + WARPS * d + 2 * WARPS + max_seq_len)


def check_shared_memory(call: Call) -> None:
    """paged_attention_v1 keeps every logit in shared memory."""
    got, most = shared_bytes(call.axes["d"], call["max_seq_len"]), call.shared_bytes
    if got > most:
        longest = call["max_seq_len"] - -(-(got - most) // 4)
        text = f"got {call['max_seq_len']}, expected at most {longest}: {got} bytes of shared memory, a block has {most}"
        raise call.error(ValueError, "max_seq_len", f"{text}; use paged_attention_v2")


def check_workspace(call: Call) -> None:
    """paged_attention_v2 has a block, and a place in the workspace, for every partition."""
    parts, needed = call.axes["parts"], partitions(call["max_seq_len"])
    if needed > MAX_GRID_Z:
        limit = MAX_GRID_Z * PARTITION
        text = f"got {call['max_seq_len']}, expected at most {limit}: {needed} partitions, a grid has {MAX_GRID_Z} blocks along z"
        raise call.error(ValueError, "max_seq_len", text)
    if parts < needed:
        text = f"axis parts: got {parts}, expected at least {needed}: {PARTITION} tokens each of {call['max_seq_len']} (max_seq_len)"
        raise call.error(ValueError, "tmp_out", text)


# -- checks that read arrays (checked=True) --


def _check_page_ids(call: Call) -> None:
    paged_checks.page_ids(call, classic_tokens.pages(call))


VALUES = (paged_checks.lengths, _check_page_ids)


# -- what callers use --


def work(call: Call) -> int:
    """Steps: two for every head dimension of every token and head, and what every block does besides, also one without a token."""
    read = classic_tokens.pages(call).sum(axis=1) * call.axes["page"]
    tokens = int(np.minimum(read, np.maximum(call["seq_lens"], 0)).sum())
    h, n, d, parts = call.axes["h"], call.axes["n"], call.axes["d"], call.axes.get("parts", 1)
    return h * (2 * tokens * d + 8 * 128 * n * parts)


def choose_version(num_seqs: int, num_heads: int, max_seq_len: int) -> int:
    """1 or 2: the kernel that the classic heuristic takes. It can change speed, never bytes (C14).

    Version 1 up to 8,192 tokens, if that is one partition or if there are more than 512 blocks (sequences times heads); else version
    2, which spreads a long sequence over many blocks. 8,192 logits fit into the 48 KiB of shared memory that every device has. Source: the
    serving code around the classic kernels (vLLM).
    """
    return 1 if max_seq_len <= 8192 and (partitions(max_seq_len) == 1 or num_seqs * num_heads > 512) else 2


def workspace(num_seqs: int, num_heads: int, head_size: int, max_seq_len: int) -> dict[str, Array]:
    """Uninitialised arrays tmp_out, exp_sums and max_logits for paged_attention_v2, by argument name."""
    shape = (num_seqs, num_heads, partitions(max_seq_len))
    return {
        "tmp_out": np.empty((*shape, head_size), np.float32),
        "exp_sums": np.empty(shape, np.float32),
        "max_logits": np.empty(shape, np.float32),
    }
