"""Decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans: the definition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyref import cache_types, decode_spec
from pyref import contract as c
from pyref.cache_types import FLOATS, FP8
from pyref.decode_spec import SPAN, TILE, cache_views, choose_split, first_token, spans, tiles
from pyref.spec import Array, Call, Kernel, Scalar, Tensor, reference

__all__ = ["SPAN", "SPEC", "TILE", "cache_views", "choose_split", "run", "spans", "tiles"]

_STEPS = 1 << 16  # elements of one block of the reference's arrays, so that a block stays in a core's cache

SPEC = Kernel(
    stem="paged_decode",
    does="decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans",
    spills="e4m3 caches on sm_80, whose conversions are integer work: 8 to 64 bytes, not measured there",
    args={
        "out": Tensor("n h | d", "T", "the result", role="out"),
        "lse": Tensor("n h |", "f32", "natural log-sum-exp of each row, -inf where it is empty", role="out", optional=True),
        "q": Tensor("n h | d", "T", "query; may be a slice of qkv"),
        "k_cache": Tensor("pages g d/x page | x", "C", "keys, x = 16 bytes of head dimensions; other layouts by strides", align=16),
        "v_cache": Tensor("pages g d page |", "C", "values; the stride of d or of page is 1"),
        "block_tables": Tensor("n | max_pages", "i32", "pages of each sequence; entries without a token that takes part are not read"),
        "seq_lens": Tensor("n", "i32", "tokens of each sequence; 0 gives +0 and an LSE of -inf"),
        "alibi_slopes": Tensor("h", "f32", "slope of each head's bias", optional=True),
        "sinks": Tensor("h", "f32", "natural logit of each head that joins the denominator alone", optional=True),
        **cache_types.SCALES,
        "part_a": Tensor("n h states | d", "f32", "workspace: unnormalised outputs of stored states", role="work"),
        "part_l": Tensor("n h states", "f32", "workspace: their sums", role="work"),
        "part_m": Tensor("n h states", "f32", "workspace: their maxima", role="work"),
        "scale": Scalar("f32", "factor of the logits"),
        "scale2": Scalar("f32", "RN(RN32(scale) * log2 e)", default=lambda call: c.scale2(call["scale"]), computed=True),
        "cap": Scalar("f32", "logits become cap * tanh(logit / cap); 0: as they are", default=lambda call: 0.0),
        "window": Scalar("i64", "tokens of the sliding window; 0: all", default=lambda call: 0),
        "max_seq_len": Scalar("i64", "bound of seq_lens", default=lambda call: call.axes["max_pages"] * call.axes["page"]),
        "split": Scalar(
            "i64",
            "spans a block takes; 0: one tile; -k: at most its share of the batch's, were there k blocks",
            default=decode_spec.default_split,
        ),
        "warps": Scalar("i64", "warps a tile where blocks take spans, 1 or 2; 0: as the device has room", default=lambda call: 0),
    },
    dtypes={"T": FLOATS, "C": (*FLOATS, *FP8)},
    constants={"SB_T": "T", "SB_C": "C", "SB_D": "d", "SB_PAGE": "page", "SB_GROUP": "group", "SB_ROWS": "rows", "SB_DENSE": "dense"},
    derived={
        "x": cache_types.x("q"),
        "group": lambda call: call.axes["h"] // max(call.axes["g"], 1),
        "rows": lambda call: int(decode_spec.token_major(call)),
        "dense": lambda call: int(decode_spec.whole_pages(call)),
    },
    sizes={**cache_types.SCALE_SIZES, "states": decode_spec.states},
    checks=decode_spec.CHECKS,
    values=decode_spec.VALUES,
    work=lambda call: _work(call),
)


def _work(call: Call) -> int:
    """Steps: ten for every head dimension of every token and head (loads, conversions, sums), and what every block does besides."""
    n, g, h, d = (call.axes[axis] for axis in "nghd")
    tokens = sum(length - first_token(call, length) for length in call["seq_lens"].tolist() if length > 0)
    return 10 * tokens * h * d + 8 * 128 * n * g * decode_spec.shares(call)


def _values(call: Call, which: str, kv_head: int, pages: Array, slots: Array) -> c.F32:
    """K or V of a kv head's tokens in binary32, [tokens, ...]: exact, or of fp8 dequantised (C11)."""
    stored, scale = call[f"{which}_cache"][pages, kv_head, :, slots], call[f"{which}_scale"]
    return c.to_f32(stored) if scale is None else c.dequantize(stored, scale[kv_head if scale.size > 1 else 0])


def _logits(call: Call, s: c.F32, length: int, first: int, heads: slice) -> c.F32:
    """Base-2 logits s2[h,t] of dot products s[h,t], t counted from ``first`` (C12)."""
    if call["alibi_slopes"] is None and not call["cap"]:
        return c.mul(s, call["scale2"])
    s = c.mul(s, call["scale"])
    if call["cap"]:
        s = c.mul(call["cap"], c.tanh(c.div(s, call["cap"])))
    if call["alibi_slopes"] is not None:
        distance = (np.arange(first, first + s.shape[1]) - (length - 1)).astype(np.float32)
        s = c.add(s, c.mul(call["alibi_slopes"][heads, None], distance))
    return c.logits2(s)


def _tile_states(s2: c.F32, v: c.F32, live: Array) -> c.State:
    """States (m[h,u], l[h,u], a[h,u,d]) of whole tiles, of logits s2[h,u,t], v[u,t,d] and live[u,t]: who takes part (C13.2)."""
    m = c.ceil_max(np.where(live, s2, np.float32(-np.inf)))  # C12
    p = np.where(live, c.weights_p(s2, m[..., None]), np.float32(0))
    a = np.zeros((*m.shape, v.shape[2]), np.float32)
    whole = live.all(axis=0)
    for t in np.flatnonzero(live.any(axis=0)):  # C8: a token that takes no part executes nothing
        summed = c.fma(p[..., t, None], v[:, t], a)
        a = summed if whole[t] else np.where(live[:, t, None], summed, a)
    return m, c.tree_sum(p), a


def _tiles_of(call: Call, n: int, kv_head: int, length: int, heads: slice) -> Iterator[tuple[int, c.State]]:
    """(u, the state (m[h], l[h], a[h,d]) of tile u) of those tiles of a sequence that have tokens, for the heads of one kv head."""
    start = first_token(call, length)
    page, d = call.axes["page"], call.axes["d"]
    q = c.to_f32(call["q"][n, heads])
    step = max(1, _STEPS // (TILE * len(q)))  # tiles at a time
    for begin in range(start // TILE, tiles(length), step):
        end = min(begin + step, tiles(length))
        t = np.arange(begin * TILE, end * TILE)
        live = (t >= start) & (t < length)
        read = np.minimum(np.maximum(t, start), length - 1)  # others are not read: their place is taken by one that is
        pages, slots = call["block_tables"][n, read // page], read % page
        k = _values(call, "k", kv_head, pages, slots).reshape(-1, d)
        v = _values(call, "v", kv_head, pages, slots).reshape(-1, TILE, d)
        s2 = _logits(call, c.chain(q[:, None, :], k[None, :, :]), length, begin * TILE, heads)  # C13.1
        m, l, a = _tile_states(s2.reshape(len(q), -1, TILE), v, live.reshape(-1, TILE))  # noqa: E741
        for u in range(end - begin):
            yield begin + u, (m[:, u], l[:, u], a[:, u])


def _row_state(call: Call, n: int, kv_head: int, length: int, heads: slice) -> c.State:
    """State (m[h], l[h], a[h,d]) of one sequence's heads of one kv head, its sink included (C13.3, C13.4)."""
    by_span: dict[int, c.State] = {}
    for u, state in _tiles_of(call, n, kv_head, length, heads):
        span = u // SPAN
        by_span[span] = c.join(by_span[span], state) if span in by_span else state  # C13.3
    first, *rest = by_span.values()
    for state in rest:
        first = c.join(first, state)  # C13.4
    if call["sinks"] is None:
        return first
    s2 = c.logits2(call["sinks"][heads])
    m = c.ceil_max(s2[:, None])
    return c.join(first, (m, c.weights_p(s2, m), np.zeros_like(first[2])))  # C13.4: one more span


@reference(SPEC)
def run(call: Call) -> None:
    """out[n,h,:] = sum over t of softmax(scale * q[n,h,:] . k[t,:]) v[t,:], t over the sequence's tokens (or its window's), C13.

    Shapes and dtypes are those of SPEC; query head h reads kv head h // (h/g). Caches in another layout than the classic one are passed as
    views (``cache_views``); those of fp8 are dequantised with the scales of their kv head (C11). Returns out, or (out, lse) where an array
    for lse was given. The bytes depend on dtypes and on the row's own tokens alone: neither the batch, nor ``split``, nor the layout, nor
    the page size changes them. A row of no tokens is +0 with an LSE of -inf, also where it has a sink (C10).
    """
    group, lengths = call.axes["group"], call["seq_lens"]
    out, lse, empty = call["out"], call["lse"], lengths <= 0
    out[empty] = c.from_f32(np.float32(0), call.dtypes["T"])  # C10
    if lse is not None:
        lse[empty] = -np.inf
    for n in np.flatnonzero(~empty):
        for kv_head in range(call.axes["g"]):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            m, l, a = _row_state(call, n, kv_head, int(lengths[n]), heads)  # noqa: E741
            out[n, heads] = c.from_f32(c.div(a, l[:, None]), call.dtypes["T"])  # C13.5
            if lse is not None:
                lse[n, heads] = c.canonical_nan(c.lse(m, l))
