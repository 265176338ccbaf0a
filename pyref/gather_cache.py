"""Copies tokens of several sequences from their pages into contiguous rows, sequence after sequence: the definition.

Where attention over contiguous K and V is wanted, as by a prefill that continues a cached prefix, this undoes paging.
"""

from __future__ import annotations

import numpy as np

from pyref import cache_write, checks, row_tiles
from pyref.cache_write import INDEX, bits
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, itemsize, reference


def _shapes(call: Call) -> None:
    for argument, axis in (("k", "g"), ("k", "d"), ("k_cache", "page")):
        checks.at_least_one(call, argument, axis)
    if (call["v"] is None) != (call["v_cache"] is None):
        absent, present = ("v", "v_cache") if call["v"] is None else ("v_cache", "v")
        raise call.error(TypeError, absent, f"missing: {present} is given")
    if call.axes["bounds"] != call.axes["n"] + 1:
        text = f"axis bounds: got {call.axes['bounds']}, expected {call.axes['n'] + 1} (axis n from block_table, and the end)"
        raise call.error(ValueError, "offsets", text)
    row = call.axes["g"] * call.axes["d"]
    if row > cache_write.ROW:
        text = f"got {call.axes['g']} heads of {call.axes['d']}, expected a row of at most {cache_write.ROW} elements"
        raise call.error(ValueError, "k", f"axis g: {text}")
    row_tiles.fits(call, "k", "t", RowTiles(call.axes["t"], row))


def _memory(call: Call) -> None:
    inputs = ("k_cache", "v_cache", "block_table", "offsets", "starts")
    checks.separate(call, "k", ("v", *inputs))
    checks.separate(call, "v", inputs)


def _values(call: Call) -> None:
    offsets, rows = call["offsets"].astype(np.int64), call.axes["t"]
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0]) + 1
        raise call.error(ValueError, "offsets", f"got {offsets[at]} at {at}, expected at least {offsets[at - 1]}, the offset before it")
    if offsets[0] < 0 or offsets[-1] > rows:
        at = 0 if offsets[0] < 0 else offsets.size - 1
        raise call.error(ValueError, "offsets", f"got {offsets[at]} at {at}, expected 0 to {rows} (axis t, from k)")
    starts = _starts(call)
    reach = call.axes["entries"] * call.axes["page"]
    wrong = np.flatnonzero((starts < 0) | (starts + np.diff(offsets) > reach))
    if wrong.size:
        n = int(wrong[0])
        text = f"{call.axes['entries']} entries of {call.axes['page']}, from block_table"
        got = f"tokens {starts[n]} to {starts[n] + offsets[n + 1] - offsets[n] - 1}"
        raise call.error(ValueError, "starts", f"sequence {n}: got {got}, expected 0 to {reach - 1} ({text})")
    sequence, _, entry, _ = _tokens(call)
    ids = call["block_table"][sequence, entry]
    wrong = np.flatnonzero((ids < 0) | (ids >= call.axes["pages"]))
    if wrong.size:
        at = int(wrong[0])
        where = f"sequence {sequence[at]}, entry {entry[at]}"
        raise call.error(ValueError, "block_table", f"{where}: got page {ids[at]}, expected 0 to {call.axes['pages'] - 1}")


def _starts(call: Call) -> np.ndarray:
    return np.zeros(call.axes["n"], np.int64) if call["starts"] is None else call["starts"].astype(np.int64)


def _tokens(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(sequence, row, table entry, place in the page) of every token that a row takes and a table names."""
    offsets, page = call["offsets"].astype(np.int64), call.axes["page"]
    row = np.arange(max(offsets[0], 0), min(offsets[-1], call.axes["t"]))
    sequence = np.searchsorted(offsets, row, side="right") - 1
    token = _starts(call)[sequence] + row - offsets[sequence]
    named = (token >= 0) & (token < call.axes["entries"] * page)
    return sequence[named], row[named], token[named] // page, token[named] % page


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    tiles = RowTiles(call.axes["t"], -(-call.axes["g"] * call.axes["d"] // piece))
    return (1 if call["v"] is None else 2) * (row_tiles.steps(tiles, piece) + call.axes["t"] * 20)


SPEC = Kernel(
    stem="gather_cache",
    does="copies tokens of several sequences from their pages into contiguous rows, sequence after sequence, bit for bit",
    spills="ptxas keeps copies of 1-byte elements at 32 registers by a rule of its own and spills two of them",
    args={
        "k": Tensor("t g | d", "T", "rows of K: those that a sequence has are written", role="inout"),
        "v": Tensor("t g | d", "T", "rows of V, likewise; may be absent together with v_cache", role="inout", optional=True),
        "k_cache": Tensor("pages page g | d", "T", "cache of K, in any order of slots and heads"),
        "v_cache": Tensor("pages page g | d", "T", "cache of V", optional=True),
        "block_table": Tensor("n | entries", "I", "pages of each sequence; entries beyond its tokens may be anything"),
        "offsets": Tensor("bounds", "I", "row of the first token of each sequence, ascending, and the end of the last: n + 1 numbers"),
        "starts": Tensor("n", "I", "the token of each sequence that is copied first; 0 where absent", optional=True),
    },
    dtypes={"T": ("f32", "f16", "bf16", "e4m3", "e5m2"), "I": INDEX},
    constants={"SB_T": "T", "SB_INDEX": "I"},
    checks=(_shapes, _memory),
    values=(_values,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Copies token ``starts[n] + r - offsets[n]`` of sequence n to row r of ``k`` and ``v``, for offsets[n] <= r < offsets[n+1].

    k, v: [t, g, d]; k_cache, v_cache: [pages, page, g, d] (a cache [pages, g, page, d] is given as its permuted view); all of one dtype
    (f32, f16, bf16, e4m3 or e5m2: nothing is converted), heads dense, other strides free; v and v_cache may be absent. block_table:
    [n, entries]; offsets: [n + 1]; starts: [n] or absent; all three int32 or all int64. Token t of a sequence lies in page
    block_table[n, t // page], place t % page. Every bit is kept; rows outside the offsets stay as they are.

    Returns k, or (k, v), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes, dtypes, strides,
    v without v_cache, outputs that overlap each other or an input; with ``checked`` also offsets that fall or leave k, tokens that no
    table entry has, ids outside the cache. Without it bounds are kept: such rows stay as they are (offsets must ascend).
    """
    if call.axes["n"] == 0:
        return
    sequence, row, entry, place = _tokens(call)
    ids = call["block_table"][sequence, entry].astype(np.int64)
    inside = (ids >= 0) & (ids < call.axes["pages"])
    for name in ("k", "v"):
        if call[name] is not None:
            bits(call[name])[row[inside]] = bits(call[f"{name}_cache"])[ids[inside], place[inside]]
