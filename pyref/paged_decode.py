"""Decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans: the definition."""

from __future__ import annotations

import numpy as np

from pyref import contract as c
from pyref.spec import Call, Kernel, Scalar, Tensor, itemsize, reference

TILE = 128  # tokens, C13
SPAN = 4  # tiles, C13
_STEPS = 1 << 16  # elements of one block of the reference's arrays, so that a block stays in a core's cache


def tiles(tokens: int) -> int:
    """Tiles that ``tokens`` tokens lie in."""
    return -(-tokens // TILE)


def spans(tokens: int) -> int:
    """Spans that ``tokens`` tokens lie in."""
    return -(-tokens // (TILE * SPAN))


def choose_split(sequences: int, kv_heads: int, max_seq_len: int, multiprocessors: int = 132) -> int:
    """How the kernel shares out the work: 0 for a tile a block, k for k spans a block. It changes speed and never a byte (C13).

    Few sequences want many small blocks. With enough rows a block takes a whole one, and nothing has to be stored in between.
    """
    rows, resident = sequences * kv_heads, 4 * multiprocessors
    if rows * tiles(max_seq_len) <= resident:
        return 0
    for share in range(spans(max_seq_len), 1, -1):  # as few blocks as still fill the GPU
        if rows * -(-spans(max_seq_len) // share) >= 2 * resident:
            return share
    return 1


def _states(call: Call) -> int:
    """States that are stored for a row: none where one block takes all its spans."""
    split, longest = call.scalars["split"], call.scalars["max_seq_len"]
    return tiles(longest) if split == 0 else spans(longest) if spans(longest) > split else 0


def _token_major(call: Call) -> bool:
    """Whether V lies in memory with a token's head dimensions side by side, as in [pages, slot, g, d]; else its tokens are, as in [.., d, page]."""
    v = call["v_cache"]
    return v.strides[3] != v.itemsize and v.strides[2] == v.itemsize


def _v_memory(call: Call) -> None:
    v = call["v_cache"]
    dense, axis = (2, "d") if call.axes["rows"] else (3, "page")
    if v.shape[dense] > 1 and v.strides[dense] != v.itemsize:
        raise call.error(ValueError, "v_cache", f"got strides {v.strides} in bytes, expected {v.itemsize} for axis page or for axis d")
    unit = 16 if call.axes["rows"] else min(16, call.axes["page"] * v.itemsize)  # bytes of the kernel's vectors
    steps = [stride for i, (stride, size) in enumerate(zip(v.strides, v.shape, strict=True)) if i != dense and size > 1]
    if any(step % unit for step in [v.ctypes.data, *steps]):
        text = f"got an address {v.ctypes.data % unit} bytes past a multiple of {unit} and strides {v.strides}, expected multiples of {unit} ({axis} is dense)"
        raise call.error(ValueError, "v_cache", text)


def _shapes(call: Call) -> None:
    axes, scalars = call.axes, call.scalars
    if axes["d"] % 8 or not 8 <= axes["d"] <= 256:
        raise call.error(ValueError, "q", f"axis d: got {axes['d']}, expected a multiple of 8 from 8 to 256")
    if axes["page"] not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        raise call.error(ValueError, "k_cache", f"axis page: got {axes['page']}, expected a power of two from 1 to 256")
    if axes["g"] == 0 or axes["h"] % axes["g"]:
        raise call.error(ValueError, "q", f"axis h: got {axes['h']}, expected a multiple of {axes['g']} (g from k_cache)")
    most = axes["max_pages"] * axes["page"]
    if not 0 <= scalars["max_seq_len"] <= most:
        raise call.error(ValueError, "max_seq_len", f"got {scalars['max_seq_len']}, expected 0 to {most} (max_pages * page of block_tables)")
    if scalars["split"] < 0:
        raise call.error(ValueError, "split", f"got {scalars['split']}, expected 0 or more")
    if scalars["window"] < 0:
        raise call.error(ValueError, "window", f"got {scalars['window']}, expected 0 (none) or more")
    if not scalars["cap"] >= 0 or np.isinf(scalars["cap"]):
        raise call.error(ValueError, "cap", f"got {scalars['cap']}, expected 0 (none) or a positive number")
    if axes["states"] < _states(call):
        raise call.error(ValueError, "part_a", f"axis states: got {axes['states']}, expected at least {_states(call)}")


def _values(call: Call) -> None:
    lengths, most = call["seq_lens"], call.scalars["max_seq_len"]
    wrong = np.flatnonzero((lengths < 0) | (lengths > most))
    if wrong.size:
        raise call.error(ValueError, "seq_lens", f"axis n: got {lengths[wrong[0]]} at {wrong[0]}, expected 0 to {most} (max_seq_len)")
    for n, length in enumerate(lengths.tolist()):
        used = call["block_tables"][n, _first(call, length) // call.axes["page"] : -(-length // call.axes["page"])]
        bad = np.flatnonzero((used < 0) | (used >= call.axes["pages"]))
        if bad.size:
            text = f"axis max_pages: got page {used[bad[0]]} in row {n}, expected 0 to {call.axes['pages'] - 1} (axis pages, from k_cache)"
            raise call.error(ValueError, "block_tables", text)


def _first(call: Call, length: int) -> int:
    """The first token that takes part: a window of w admits t >= length - w."""
    window = call.scalars["window"]
    return max(0, length - window) if window else 0


SPEC = Kernel(
    stem="paged_decode",
    does="decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans",
    args={
        "out": Tensor("n h | d", "T", "the result", role="out"),
        "lse": Tensor("n h |", "f32", "natural log-sum-exp of each row, -inf where it is empty", role="out", optional=True),
        "q": Tensor("n h | d", "T", "query; may be a slice of qkv"),
        "k_cache": Tensor("pages g d/x page | x", "T", "keys, x = 16 bytes of head dimensions; other layouts by strides", align=16),
        "v_cache": Tensor("pages g d page |", "T", "values; the stride of d or of page is 1"),
        "block_tables": Tensor("n | max_pages", "i32", "page of every `page` tokens of a sequence; what lies past its length is not read"),
        "seq_lens": Tensor("n", "i32", "tokens of each sequence, 0 gives +0 and an LSE of -inf"),
        "alibi_slopes": Tensor("h", "f32", "slope of each head's bias", optional=True),
        "sinks": Tensor("h", "f32", "natural logit of each head that joins the denominator alone", optional=True),
        "part_a": Tensor("n h states | d", "f32", "workspace: unnormalised outputs of stored states", role="work"),
        "part_l": Tensor("n h states", "f32", "workspace: their sums", role="work"),
        "part_m": Tensor("n h states", "f32", "workspace: their maxima", role="work"),
        "done": Tensor("n h", "i32", "workspace: blocks that have finished; zero before and after every launch", role="work"),
        "scale": Scalar("f32", "factor of the logits"),
        "scale2": Scalar("f32", "RN(RN32(scale) * log2 e)", default=lambda call: c.scale2(call.scalars["scale"]), computed=True),
        "cap": Scalar("f32", "logits become cap * tanh(logit / cap); 0: as they are", default=lambda call: 0.0),
        "window": Scalar("i64", "tokens of the sliding window; 0: all", default=lambda call: 0),
        "max_seq_len": Scalar("i64", "bound of seq_lens", default=lambda call: call.axes["max_pages"] * call.axes["page"]),
        "split": Scalar(
            "i64",
            "spans a block takes, 0: one tile",
            default=lambda call: choose_split(call.axes["n"], call.axes["g"], call.scalars["max_seq_len"]),
        ),
    },
    dtypes={"T": ("f32", "f16", "bf16")},
    constants={"SB_T": "T", "SB_D": "d", "SB_PAGE": "page", "SB_GROUP": "group", "SB_ROWS": "rows"},
    derived={
        "x": lambda call: 16 // itemsize(call.dtypes["T"]),
        "group": lambda call: call.axes["h"] // max(call.axes["g"], 1),
        "rows": lambda call: int(_token_major(call)),
    },
    sizes={"states": _states},
    checks=(_shapes, _v_memory),
    values=(_values,),
    work=lambda call: 2 * int(call["seq_lens"].sum()) * call.axes["h"] * call.axes["d"],
)


def _logits(call: Call, s: c.F32, length: int, first: int, heads: slice) -> c.F32:
    """Base-2 logits s2[h,t] of dot products s[h,t], t counted from ``first`` (C12)."""
    if call["alibi_slopes"] is None and not call.scalars["cap"]:
        return c.mul(s, call.scalars["scale2"])
    s = c.mul(s, call.scalars["scale"])
    if call.scalars["cap"]:
        s = c.mul(call.scalars["cap"], c.tanh(c.div(s, call.scalars["cap"])))
    if call["alibi_slopes"] is not None:
        distance = (np.arange(first, first + s.shape[1]) - (length - 1)).astype(np.float32)
        s = c.add(s, c.mul(call["alibi_slopes"][heads, None], distance))
    return c.logits2(s)


def _tile_states(call: Call, q: c.F32, k: c.F32, v: c.F32, takes_part: np.ndarray, length: int, first: int, heads: slice) -> c.State:
    """States (m[h,u], l[h,u], a[h,u,d]) of whole tiles: q[h,d]; k[u*128,d] and v[u*128,d] start at token ``first``."""
    s2 = _logits(call, c.chain(q[:, None, :], k[None, :, :]), length, first, heads)  # C13.1
    s2 = s2.reshape(len(q), -1, TILE)
    live = takes_part.reshape(-1, TILE)
    m = c.ceil_max(np.where(live, s2, np.float32(-np.inf)))  # C12
    p = np.where(live, c.weights_p(s2, m[..., None]), np.float32(0))
    a = np.zeros((*m.shape, v.shape[1]), np.float32)
    v = v.reshape(-1, TILE, v.shape[1])
    for t in range(TILE):  # C8: a token that takes no part executes nothing
        a = np.where(live[:, t, None], c.fma(p[..., t, None], v[:, t], a), a)
    return m, c.tree_sum(p), a


def _row_state(call: Call, n: int, kv_head: int, length: int, heads: slice) -> c.State:
    """State (m[h], l[h], a[h,d]) of one sequence's heads of one kv head (C13.2 to C13.4)."""
    start = _first(call, length)
    first, last = start // TILE * TILE, tiles(length) * TILE
    page, d = call.axes["page"], call.axes["d"]
    takes_part = (np.arange(first, last) >= start) & (np.arange(first, last) < length)
    tokens = np.minimum(np.maximum(np.arange(first, last), start), length - 1)  # others are not read: their place is taken by one that is
    pages = call["block_tables"][n, tokens // page]
    q = c.to_f32(call["q"][n, heads])
    k = c.to_f32(call["k_cache"][pages, kv_head, :, tokens % page]).reshape(-1, d)
    v = c.to_f32(call["v_cache"][pages, kv_head, :, tokens % page])
    step = max(1, _STEPS // (TILE * len(q))) * TILE
    blocks = [slice(at, at + step) for at in range(0, last - first, step)]
    parts = [_tile_states(call, q, k[b], v[b], takes_part[b], length, first + b.start, heads) for b in blocks]
    m, l, a = (np.concatenate([part[i] for part in parts], axis=1) for i in range(3))
    walk: c.State | None = None
    for span in range(first // TILE // SPAN, -(-last // TILE // SPAN)):
        own: c.State | None = None
        for tile in range(max(span * SPAN - first // TILE, 0), min((span + 1) * SPAN - first // TILE, m.shape[1])):
            state = (m[:, tile], l[:, tile], a[:, tile])
            own = state if own is None else c.join(own, state)  # C13.3
        assert own is not None
        walk = own if walk is None else c.join(walk, own)  # C13.4
    assert walk is not None
    return walk


@reference(SPEC)
def run(call: Call) -> None:
    """out[n,h,:] = sum over t of softmax(scale * q[n,h,:] . k[t,:]) v[t,:], t over the sequence's tokens (or its window's).

    Shapes and dtypes are those of SPEC; query head h reads kv head h // (h/g). Layouts of the caches: ``pyref.layout``. Returns out,
    or (out, lse) where an array for lse was given. The bytes depend on dtype and on the row's own tokens alone: neither the batch,
    nor ``split``, nor the layout, nor the page size changes them.
    """
    group = call.axes["h"] // call.axes["g"]
    out = call["out"]
    for n, length in enumerate(call["seq_lens"].tolist()):
        if not length:  # C10
            out[n] = c.from_f32(np.zeros(out.shape[1:], np.float32), call.dtypes["T"])
            if call["lse"] is not None:
                call["lse"][n] = -np.inf
            continue
        for kv_head in range(call.axes["g"]):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            state = _row_state(call, n, kv_head, length, heads)
            if call["sinks"] is not None:  # C13.4: one more span
                s2 = c.logits2(call["sinks"][heads])
                m = c.ceil_max(s2[:, None])
                state = c.join(state, (m, c.weights_p(s2, m), np.zeros_like(state[2])))
            m, l, a = state
            out[n, heads] = c.from_f32(c.div(a, l[:, None]), call.dtypes["T"])  # C13.5
            if call["lse"] is not None:
                call["lse"][n, heads] = c.canonical_nan(c.lse(m, l))
