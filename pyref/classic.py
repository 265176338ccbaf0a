"""The classic order of paged attention (C14): what paged_attention_v1 and paged_attention_v2 compute, in NumPy.

One query token a sequence attends to ``len`` tokens in pages. Everything below is about one query head h of one sequence n; the
order depends on the dtype of q, head size and page size alone. Tokens that take no part (``pyref.classic_tokens``) execute nothing, and
their slots may hold anything; so may table entries of pages without one that does.

QK. A *thread group* of ``max(32 / page, 1)`` lanes computes the logit of one token. The head dimensions are cut into vectors of
``max(16 / (group * itemsize), 1)`` elements; lane i takes the vectors i, i + group, i + 2 group, ... For every position e in a
vector there is one chain (C8) over the lane's vectors in ascending order; then the positions are added in ascending order,
((c0 + c1) + c2) + ...; then the lanes of the group by an xor butterfly, distance group/2 first. The logit to base 2 by C12: plain,
or with a cap or ALiBi where they are given. fp8 caches are dequantised by C11 and change nothing else: ``itemsize`` is that of q.

Softmax. A *partition* is 512 tokens counted from token 0. m = ceil(max) of its logits and p by C12; 128 threads each add the p of
their tokens thread, thread + 128, ... in ascending order from +0; l = the tree of C7 over the threads.

PV. Four warps take the pages of a partition in turn: warp w has the pages w, w + 4, ... counted from its start. A row of V, the
tokens of a page in one head dimension, is cut into vectors of ``min(16 / itemsize, page)`` tokens; of the lanes on a row, lane i
takes vector i, and i + 32 where a row has more than 32. The lane's sum is a chain (C8) over its tokens in ascending order. Lanes are
added by an xor butterfly, greatest distance first; then warps, (0 + 2) + (1 + 3).

Partitions are joined in ascending order by the walk of C13, those without a token that takes part are skipped; out = a / l, C11 to the
output type. A row in which no token takes part gives +0, LSE -inf (C10).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyref import classic_tokens, contract
from pyref.contract import F32, State
from pyref.spec import Array, Call

WARPS = 4
THREADS = 128
PARTITION = 512
VECTOR = 16
"""Bytes of the widest read of a lane where the cache has the dtype of q."""
_BLOCK = 16384  # elements of a step that still lie in a core's cache: a matter of speed alone


@dataclass(frozen=True)
class Mapping:
    """Which lane reads what (C14)."""

    d: int
    page: int
    itemsize: int

    @property
    def group(self) -> int:
        """Lanes of a thread group."""
        return max(32 // self.page, 1)

    @property
    def k_vector(self) -> int:
        """Elements of K that a lane reads at once."""
        return max(VECTOR // (self.group * self.itemsize), 1)

    @property
    def span(self) -> int:
        """Elements of K that a thread group reads at once; it must divide d."""
        return self.group * self.k_vector

    @property
    def v_vector(self) -> int:
        """Tokens of a row of V that a lane reads at once."""
        return min(VECTOR // self.itemsize, self.page)

    @property
    def v_lanes(self) -> int:
        """Lanes on one row of V."""
        return min(self.page // self.v_vector, 32)


@dataclass(frozen=True)
class _Row:
    """What a sequence's partitions share. ``takes_part``: [h, len] or [1, len]; ``table``: its pages, 0 for those without such a token."""

    call: Call
    n: int
    takes_part: Array
    table: Array

    @classmethod
    def of(cls, call: Call, n: int) -> _Row:
        takes_part, page = classic_tokens.takes_part(call, n), call.axes["page"]
        used = np.logical_or.reduceat(takes_part.any(axis=0), np.arange(0, takes_part.shape[1], page))
        return cls(call, n, takes_part, np.where(used, call["block_tables"][n, : used.size], 0))


@dataclass(frozen=True)
class _Run:
    """Some neighbouring partitions of one sequence that have the same number of tokens, for some heads: q heads [g, r] of kv heads [g]."""

    row: _Row
    first: int  # partition
    parts: int
    tokens: int  # of each partition
    g: slice
    r: slice

    @property
    def call(self) -> Call:
        return self.row.call

    @property
    def mapping(self) -> Mapping:
        axes = self.call.axes
        return Mapping(axes["d"], axes["page"], self.call["q"].itemsize)

    @property
    def heads(self) -> np.ndarray:
        """[g, r] numbers of query heads."""
        axes = self.call.axes
        return np.arange(axes["h"]).reshape(axes["g"], -1)[self.g, self.r]

    @property
    def takes_part(self) -> Array:
        """[g, r, parts, tokens], g and r 1 where all heads see the same."""
        start = self.first * PARTITION
        found = self.row.takes_part[:, start : start + self.parts * self.tokens].reshape(-1, self.parts, self.tokens)
        return found[None] if len(found) == 1 else found[self.heads]

    def pages(self, multiple: int = 1) -> np.ndarray:
        """[parts, pages] block ids, the number of pages filled up to a multiple by ids that the sequence owns."""
        page = self.mapping.page
        count = -(-self.tokens // page)
        start = self.first * (PARTITION // page)
        ids = self.row.table[start : start + self.parts * count].reshape(self.parts, count)
        return np.concatenate([ids, np.repeat(ids[:, :1], -count % multiple, axis=1)], axis=1)

    def gather(self, name: str, pages: np.ndarray) -> F32:
        """[g, parts, pages, ...] of a cache in binary32: exact, or dequantised."""
        cache = self.call[name]
        bits = cache.view(f"u{cache.itemsize}")  # NumPy moves integers faster than bf16
        heads = np.arange(bits.shape[1])[self.g]
        values = bits[pages[None], heads[:, None, None]].view(cache.dtype)
        scale = self.call[name.replace("cache", "scale")]
        if scale is None:
            return contract.to_f32(values)
        return contract.dequantize(values, np.broadcast_to(scale, bits.shape[1])[heads].reshape(-1, *(1,) * (values.ndim - 1)))  # C11


def _dots(run: _Run) -> F32:
    """q . k: [g, r, parts, tokens]."""
    size = run.mapping
    ids = run.pages()
    k = run.gather("k_cache", ids)  # [g, parts, pages, d/x, page, x]
    g, parts, pages = k.shape[:3]
    x = min(k.shape[-1], size.span)
    k = k.reshape(*k.shape[:5], -1, x).swapaxes(4, 5)  # [g, parts, pages, d/x, x/span, page, span] where 16 bytes hold more than a span
    k = k.reshape(g, 1, parts, pages, size.d // size.span, size.span // x, size.page, x)
    q = contract.to_f32(run.call["q"][run.row.n])[run.heads]  # [g, r, d]
    q = q.reshape(g, -1, 1, 1, size.d // size.span, size.span // x, 1, x)
    chains = contract.chain(q, k, axis=4)  # [g, r, parts, pages, span/x, page, x]
    lanes = np.moveaxis(chains, 5, 4).reshape(*chains.shape[:4], size.page, size.group, size.k_vector)
    dot = lanes[..., 0]
    for e in range(1, size.k_vector):
        dot = contract.add(dot, lanes[..., e])
    dot = _butterfly(dot, axis=-1)
    return dot.reshape(*dot.shape[:3], pages * size.page)[..., : run.tokens]


def _butterfly(x: F32, axis: int) -> F32:
    """The sum over an axis of 2^k lanes by an xor butterfly, greatest distance first: every lane ends with this value."""
    x = np.moveaxis(x, axis, 0)
    while len(x) > 1:
        x = contract.add(x[: len(x) // 2], x[len(x) // 2 :])
    return x[0]


def _logits(run: _Run) -> F32:
    """C12: logits to base 2, [g, r, parts, tokens]; -inf for tokens that take no part: their weight is the +0 of C7's missing values."""
    call, slopes, cap = run.call, run.call["alibi_slopes"], run.call["cap"]
    s = _dots(run)
    if slopes is None and not cap:
        s = contract.mul(s, call["scale2"])
    else:
        s = contract.mul(s, call["scale"])
        if cap:
            s = contract.mul(cap, contract.tanh(contract.div(s, cap)))
        if slopes is not None:
            t = (run.first * PARTITION + np.arange(run.parts * run.tokens)).reshape(run.parts, run.tokens)
            distance = (t - (int(call["seq_lens"][run.row.n]) - 1)).astype(np.float32)  # nearest even beyond 2^24
            s = contract.add(s, contract.mul(slopes[run.heads][..., None, None], distance))
        s = contract.logits2(s)
    return np.where(run.takes_part, s, np.float32(-np.inf))


def _thread_sums(p: F32) -> F32:
    """l of [..., tokens] weights: [...]."""
    sums = np.zeros((*p.shape[:-1], THREADS), np.float32)
    for first in range(0, p.shape[-1], THREADS):
        part = p[..., first : first + THREADS]
        sums[..., : part.shape[-1]] = contract.add(sums[..., : part.shape[-1]], part)
    return contract.tree_sum(sums)  # C7


def _weighted_values(run: _Run, p: F32) -> F32:
    """a of [g, r, parts, tokens] weights: [g, r, parts, d]."""
    size = run.mapping
    ids = run.pages(WARPS)
    turns = ids.shape[1] // WARPS
    shape = (turns, WARPS, -1, size.v_lanes, size.v_vector)  # a partition's tokens: [turn, warp, read, lane, element]
    v = run.gather("v_cache", ids)  # [g, parts, pages, d, page]
    v = v.reshape(*v.shape[:2], turns, WARPS, size.d, -1, size.v_lanes, size.v_vector)
    v = np.ascontiguousarray(v.transpose(2, 5, 7, 0, 1, 3, 6, 4))[:, :, :, :, None]  # [turn, read, element, g, 1, parts, warp, lane, d]
    slots = turns * WARPS * size.page

    def arranged(x: Array) -> Array:
        """[g, r, parts, tokens] as [turn, read, element, g, r, parts, warp, lane, 1], with nothing where no token is."""
        padded = np.zeros((*x.shape[:-1], slots), x.dtype)
        padded[..., : run.tokens] = x
        return padded.reshape(*x.shape[:3], *shape).transpose(3, 5, 7, 0, 1, 2, 4, 6)[..., None]

    weights, takes_part = arranged(p), arranged(run.takes_part)
    acc = np.zeros((*p.shape[:3], WARPS, size.v_lanes, size.d), np.float32)
    for step in np.ndindex(v.shape[:3]):
        here = takes_part[step]
        if here.any():
            following = contract.fma(weights[step], v[step], acc)  # C8
            acc = following if here.all() else np.where(here, following, acc)
    warps = np.moveaxis(_butterfly(acc, axis=-2), -2, 0)
    return contract.add(contract.add(warps[0], warps[2]), contract.add(warps[1], warps[3]))


def _state(run: _Run) -> State:
    """The states of a run's partitions: m, l [g, r, parts], a [g, r, parts, d]."""
    logits = _logits(run)
    m = contract.ceil_max(logits)
    p = contract.weights_p(logits, m[..., None])
    return m, _thread_sums(p), _weighted_values(run, p)


def _runs(row: _Row, first: int, parts: int, tokens: int) -> Iterator[_Run]:
    """Cuts partitions of one sequence, and all heads, into runs whose steps fit a core's cache."""
    call = row.call
    g, r = call.axes["g"], call.axes["h"] // call.axes["g"]
    size = Mapping(call.axes["d"], call.axes["page"], call["q"].itemsize)
    unit = WARPS * size.v_lanes * size.d  # sums of one head and partition
    at_once = max(_BLOCK // unit, 1)
    r_step = max(min(r, at_once), 1)
    g_step = min(g, max(at_once // r_step, 1))
    p_step = min(parts, max(at_once // (r_step * g_step), 1))
    for i in range(0, g, g_step):
        for j in range(0, r, r_step):
            for k in range(0, parts, p_step):
                yield _Run(row, first + k, min(p_step, parts - k), tokens, slice(i, i + g_step), slice(j, j + r_step))


def states(call: Call) -> Iterator[tuple[int, Array, State]]:
    """For every sequence n that has tokens, ascending: n; [h, parts] of bool, which partitions have a token that takes part; and their
    states, m and l [h, parts], a [h, parts, d]."""
    h, d = call.axes["h"], call.axes["d"]
    lengths = call["seq_lens"]
    for n in map(int, np.flatnonzero(lengths > 0)):
        row = _Row.of(call, n)
        full, rest = divmod(int(lengths[n]), PARTITION)
        parts = full + (rest > 0)
        used = np.logical_or.reduceat(row.takes_part, np.arange(0, lengths[n], PARTITION), axis=1)  # [h or 1, parts]
        found = tuple(np.zeros(shape, np.float32) for shape in ((h, parts), (h, parts), (h, parts, d)))
        whole_ones = _runs(row, 0, full, PARTITION) if full else ()
        last = _runs(row, full, 1, rest) if rest else ()
        for run in (*whole_ones, *last):
            where = run.heads.ravel(), slice(run.first, run.first + run.parts)
            if not used[:, where[1]].any():
                continue  # C10
            for whole, part in zip(found, _state(run), strict=True):
                whole[where] = part.reshape(-1, *part.shape[2:])
        yield n, np.broadcast_to(used, (h, parts)), found


def walk(used: Array, partitions: State) -> State:
    """Joins the states of the partitions in use, m and l [h, parts], a [h, parts, d], in ascending order (C13)."""
    begin, *following = np.flatnonzero(used.any(axis=0)) if used.any() else (0,)
    first, begun = tuple(x[:, begin] for x in partitions), used[:, begin]
    for i in following:
        state = tuple(x[:, i] for x in partitions)
        joined = contract.join(first, state)
        kinds = [begun & used[:, i], used[:, i]]  # joined, the first one, or skipped (C10)
        first = tuple(
            np.select([kind.reshape(-1, *(1,) * (x.ndim - 1)) for kind in kinds], (both, x), so_far)
            for so_far, x, both in zip(first, state, joined, strict=True)
        )
        begun = begun | used[:, i]
    return first


def finish(call: Call, n: int, used: Array, state: State) -> None:
    """Writes out[n,:,:] and, where wanted, lse[n,:] of a sequence's state, for heads that have one."""
    heads = used.any(axis=1)
    m, total, a = (x[heads] for x in state)
    call["out"][n, heads] = contract.from_f32(contract.div(a, total[:, None]), call.dtypes["T"])  # C5, C9, C11
    if call["lse"] is not None:
        call["lse"][n, heads] = contract.canonical_nan(contract.lse(m, total))


def finish_empty(call: Call) -> None:
    """C10: +0 and -inf, for every row; those that have a state are written after."""
    call["out"][...] = np.zeros((), call["out"].dtype)
    if call["lse"] is not None:
        call["lse"][...] = np.float32(-np.inf)
