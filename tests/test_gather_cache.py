"""gather_cache: tokens of several sequences from their pages into contiguous rows, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import layout
from pyref.gather_cache import SPEC, run
from pyref.spec import DTYPES
from tests import harness
from tests.cache_write import anything
from tests.sparse import sparse
from tools import cases, compare, legs
from tools.arena import Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "gather_cache"
ALL = ("f32", "f16", "bf16", "e4m3", "e5m2")
HND = {"k_cache": {"swap": (1, 2)}, "v_cache": {"swap": (1, 2)}}


def case(name: str, why: str, dtypes: str, g: int, d: int, page: int, lengths: list[int], **rest: Any) -> Case:
    """A case. ``dtypes``: "elements" or "elements index" (i32 where it is not said). ``rest``: starts (a list), first (row of the first
    token), spare (rows behind the last), pages (beyond those in use), table ("random", "descending", "same"), v (False: none), places."""
    element, *index = dtypes.split()
    usual = {"starts": None, "first": 0, "spare": 0, "pages": 3, "table": "random", "v": True, "places": {}}
    shape = {"g": g, "d": d, "page": page, "lengths": tuple(lengths), **usual, **rest}
    return Case(name, why, {"T": element, "I": index[0] if index else "i32"}, shape, seed=sum(name.encode()))


CASES = [
    *(case(f"{t}-nhd", "every dtype", t, 2, 64, 8, [13, 1, 8]) for t in ALL),
    *(case(f"{t}-hnd", "the permuted cache", t, 2, 64, 8, [13, 1, 8], places=HND) for t in ("f32", "bf16", "e4m3")),
    *(case(f"{t}-i64", "64-bit tables", f"{t} i64", 2, 64, 8, [13, 1, 8]) for t in ("f16", "e5m2")),
    case("k-alone", "no V, as latent caches have none", "bf16", 1, 72, 16, [20, 5], v=False),
    case("lengths-0-1-17", "empty sequences first, last and between others", "f16", 1, 32, 16, [0, 1, 0, 0, 17, 512 // 16, 0]),
    case("no-sequences", "a table of no rows", "f16", 1, 32, 16, [], spare=3),
    case("all-empty", "rows, but no tokens", "f16", 1, 32, 16, [0, 0], spare=2),
    case("no-rows", "nothing to write to", "f16", 1, 32, 16, [0, 0]),
    case("starts", "each sequence from a token of its own", "f16", 2, 32, 8, [5, 9, 0, 16], starts=[3, 8, 7, 1]),
    case("starts-i64", "64-bit starts", "bf16 i64", 2, 32, 8, [5, 9], starts=[30, 8]),
    case("rows-around", "rows before and behind the sequences stay as they are", "f16", 1, 32, 8, [5, 9], first=2, spare=3),
    case("descending-table", "pages from the last to the first", "f16", 1, 32, 8, [30], table="descending"),
    case("repeated-page", "one page for all entries of all sequences", "f16", 1, 32, 8, [30, 9], table="same"),
    case("page-of-1", "a page a token", "f16", 2, 16, 1, [5, 4]),
    case("page-of-7", "a page size that is no power of two", "f16", 2, 16, 7, [15, 7, 6]),
    case("page-of-256", "a large page", "bf16", 1, 16, 256, [300]),
    case("head-of-46", "16-byte accesses over all 8 heads", "f16", 8, 46, 8, [3, 9]),
    case("head-of-46-hnd", "accesses of 4 bytes", "f16", 3, 46, 8, [3, 9], places=HND),
    case("head-of-46-in-48", "strides allow 16 bytes, the head size does not", "f16", 3, 46, 8, [3, 9],
         places={"k": {"pad": {2: 2}}, "v": {"pad": {2: 2}}, "k_cache": {"pad": {3: 2}}, "v_cache": {"pad": {3: 2}}}),
    case("head-of-47-fp8", "single bytes", "e4m3", 3, 47, 8, [3, 9]),
    *(case(f"head-of-{d}", "head sizes of real models", "bf16", 2, d, 8, [3, 9]) for d in (80, 120, 256, 576)),
    case("40-heads-of-128", "640 accesses a row: four blocks side by side", "bf16", 40, 128, 8, [2, 1]),
    case("70-rows", "rows of two tiles, a sequence over their border", "f16", 2, 64, 16, [60, 10]),
    case("1030-rows", "more rows than a tile has of the shortest", "f32", 1, 1, 16, [1000, 0, 30]),
    case("33-sequences", "many short ones", "f16", 1, 8, 4, [i % 4 for i in range(33)]),
    case("rows-apart", "k and v with strides of their own", "f16", 2, 32, 8, [5, 9], places={"k": {"pad": {1: 1}}, "v": {"pad": {2: 8}}}),
    case("only-v-apart", "the heads of K are one row, those of V are not", "f16", 3, 16, 8, [5], places={"v": {"pad": {2: 16}}}),
    case("padded-pages", "pages, slots and heads of the caches with room behind them", "f16", 2, 32, 8, [5, 9],
         places={"k_cache": {"pad": {1: 1, 3: 8}}, "v_cache": {"pad": {2: 1}}}),
    case("wide-table", "a table that is a slice of a wider one", "f16", 1, 32, 8, [5, 9], places={"block_table": {"pad": {1: 5}}}),
    *(case(f"odd-{a}", f"{a} starts at element 1: single elements", "f16", 2, 32, 8, [3, 9], places={a: {"offset": 1}})
      for a in ("k", "v", "k_cache", "v_cache")),
    case("8-bytes-off", "8-byte accesses", "f16", 2, 32, 8, [3, 9], places={"k_cache": {"offset": 4}}),
]  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Places that no token has and entries beyond the tokens are poisoned, k and v begin as sentinels."""
    shape, stream, places = case.shape, Stream(case.seed), case.shape["places"]
    storage, index = DTYPES[case.dtypes["T"]][0], DTYPES[case.dtypes["I"]][0]
    lengths, page = np.array(shape["lengths"], np.int64), shape["page"]
    starts = np.zeros(lengths.size, np.int64) if shape["starts"] is None else np.array(shape["starts"], np.int64)
    used = -(-(starts + lengths) // page) * (lengths > 0)
    pages = int(used.sum()) + shape["pages"]
    table = np.full((lengths.size, max(used, default=0) + 1), -1, index)
    order = stream.permutation(pages)
    order = {"random": order, "descending": np.arange(pages)[::-1], "same": np.ones_like(order)}[shape["table"]]
    for n, (count, end) in enumerate(zip(used, np.cumsum(used), strict=True)):
        table[n, :count] = order[end - count : end]
    rows = shape["first"] + int(lengths.sum()) + shape["spare"]
    found: dict[str, Any] = {
        "block_table": place(table, **places.get("block_table", {})),
        "offsets": place((shape["first"] + np.concatenate([[0], np.cumsum(lengths)])).astype(index)),
    }
    if shape["starts"] is not None:
        found["starts"] = place(starts.astype(index))
    for name in ("k", "v") if shape["v"] else ("k",):
        found[name] = sentinel((rows, shape["g"], shape["d"]), storage, **places.get(name, {}))
        unsigned = np.dtype(f"u{storage.itemsize}")
        cache = np.full((pages, page, shape["g"], shape["d"]), np.iinfo(unsigned).max, unsigned).view(storage)
        for n in range(lengths.size):
            tokens = np.arange(starts[n], starts[n] + lengths[n])
            ids = table[n, tokens // page].astype(np.int64)
            cache[ids, tokens % page] = anything(stream, (tokens.size, shape["g"], shape["d"]), storage)
        found[f"{name}_cache"] = place(cache, **places.get(f"{name}_cache", {}))
    return found


def i32(*values: int) -> Region:
    return place(np.array(values, np.int32))


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


@harness.each([case for case in CASES if sum(case.shape["lengths"]) <= 100])
def test_the_definition_token_by_token(case: Case) -> None:
    before = inputs(case)
    got = harness.compute(STEM, before)
    table, offsets, page = before["block_table"].view, before["offsets"].view, case.shape["page"]
    for name in got:
        cache, expected = compare.bits(before[f"{name}_cache"].view), compare.bits(before[name].view).copy()
        for n, length in enumerate(case.shape["lengths"]):
            for i in range(length):
                token = i + (case.shape["starts"] or [0] * (n + 1))[n]
                expected[offsets[n] + i] = cache[table[n, token // page], token % page]
        assert np.array_equal(compare.bits(got[name]), expected), name


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_it_unpacks_what_layout_packs(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=5))
    page, g, d = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    entries = [-(-length // page) for length in lengths]
    order = Stream(1).permutation(sum(entries) + 2)
    table = np.full((len(lengths), max(entries) + 1), -1)
    for n, end in enumerate(np.cumsum(entries)):
        table[n, : entries[n]] = order[end - entries[n] : end]
    k, v = (Stream(seed).normal((sum(lengths), g, d), "f16") for seed in (2, 3))
    k_cache, v_cache = layout.pack_nhd(k, v, lengths, table, page=page, pages=order.size)
    got = [np.zeros_like(k), np.zeros_like(v)]
    run(k=got[0], v=got[1], k_cache=k_cache, v_cache=v_cache, block_table=table, offsets=np.cumsum([0, *lengths]))
    assert all(np.array_equal(one, other) for one, other in zip(got, (k, v), strict=True))


def test_bounds_are_kept_unchecked() -> None:
    """Rows beyond k, tokens beyond the table, ids outside the cache: such rows stay as they are, on every leg."""
    page, d = 4, 8
    table = np.array([[0, -1, 2, 3], [1, 1, 0, 0], [2, 5, 1, -(2**31)]], np.int32)
    for leg in (legs.leg("ref"), *harness.available()):
        cache, k = place(anything(Stream(1), (3, page, 1, d), np.dtype(np.float16))), sentinel((40, 1, d), np.dtype(np.float16))
        numbers = {"block_table": place(table), "offsets": i32(2, 18, 28, 60), "starts": i32(3, -5, 1)}
        arguments = {"k": k, "k_cache": cache, **numbers}
        call = SPEC.bind(cases.views(arguments))
        leg.run(call, legs.complete(call, {name: value for name, value in arguments.items() if isinstance(value, Region)}))
        expected = compare.bits(sentinel(k.view.shape, k.view.dtype).view).copy()
        for n, (start, first, end) in enumerate(((3, 2, 18), (-5, 18, 28), (1, 28, 60))):
            for row in range(first, min(end, 40)):
                token = start + row - first
                if 0 <= token < 16 and 0 <= table[n, token // page] < 3:
                    expected[row] = compare.bits(cache.view)[table[n, token // page], token % page]
        assert np.array_equal(compare.bits(k.view), expected), leg.name
        assert compare.difference(leg.name, k.outside(), sentinel(k.view.shape, k.view.dtype).outside()) is None


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_cache_that_runs_backwards(axis: int) -> None:
    """Pages, slots or heads at a negative stride: elements lie before the first, which is no sign that there is none."""
    before = inputs(next(case for case in CASES if case.id == "starts"))
    backwards = np.flip(before["k_cache"].view, axis)
    expected = harness.compute(STEM, {**before, "k_cache": place(backwards.copy())})["k"]
    for leg in ("ref", "sim", "host"):
        got = harness.compute(STEM, {**before, "k_cache": Region(before["k_cache"].buffer, backwards)}, leg)["k"]
        assert compare.difference(leg, got, expected) is None


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_places(leg: str) -> None:
    """BUGS: block id x stride, rows x width in 32 bits, with a cache and rows that lie head after head. Page 2^23 + 1 begins at element
    2^32 + 512, the next head 2^32 + 1,024 after it; row 16 begins at element 2^32, its next head 2^32 + 2^28 after it."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    f16, pages = np.dtype(np.float16), 2**23 + 2
    cache = sparse((pages, 4, 4, 128), f16, (512, 128, pages * 512, 1))
    cache[-1, 3] = anything(Stream(1), (4, 128), f16)
    k = sparse((17, 4, 128), f16, (2**28, 17 * 2**28, 1))
    numbers = {"block_table": np.array([[pages - 1]]), "offsets": np.array([16, 17]), "starts": np.array([3])}
    runner.run(SPEC.bind({"k": k, "k_cache": cache, **numbers}, checked=True), {})
    assert np.array_equal(compare.bits(k[-1]), compare.bits(cache[-1, 3])), "the row did not arrive"
    assert not compare.bits(k[0]).any(), "the row went to an offset that was cut to 32 bits"


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16", 2, 16, 8, [5, 9], starts=[1, 2], spare=1)), **changed}


F16 = np.dtype(np.float16)
TABLE = good()["block_table"].view


def table(n: int, entry: int, value: int) -> Region:
    changed = TABLE.copy()
    changed[n, entry] = value
    return place(changed)


BAD: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ("id-at-the-end", good(block_table=table(1, 1, 6)), ValueError, ("block_table", "sequence 1, entry 1", "got page 6", "0 to 5")),
    ("id-minus-1", good(block_table=table(0, 0, -1)), ValueError, ("block_table", "sequence 0, entry 0", "got page -1")),
    ("offsets-fall", good(offsets=i32(0, 5, 4)), ValueError, ("offsets", "got 4 at 2", "at least 5")),
    ("offsets-beyond-k", good(offsets=i32(0, 5, 16)), ValueError, ("offsets", "got 16 at 2", "0 to 15", "axis t")),
    ("offsets-below-0", good(offsets=i32(-1, 5, 14)), ValueError, ("offsets", "got -1 at 0")),
    ("two-offsets", good(offsets=i32(0, 5)), ValueError, ("offsets", "axis bounds", "got 2", "expected 3")),
    ("token-beyond-the-table", good(starts=i32(1, 16)), ValueError, ("starts", "sequence 1", "tokens 16 to 24", "0 to 23")),
    ("start-below-0", good(starts=i32(-1, 0)), ValueError, ("starts", "sequence 0", "tokens -1 to 3")),
    ("one-start", good(starts=i32(1)), ValueError, ("starts", "axis n", "got 1", "from block_table")),
    ("starts-of-i64", good(starts=place(np.array([1, 2]))), TypeError, ("starts", "got i64", "from block_table")),
    ("table-not-dense", good(block_table=place(np.zeros((2, 3), np.int32), swap=(0, 1))), ValueError, ("block_table", "axis entries")),
    ("v-without-cache", good(v_cache=None), TypeError, ("v_cache", "missing", "v is given")),
    ("v-cache-without-v", good(v=None), TypeError, ("v", "missing", "v_cache is given")),
    ("no-k", good(k=None), TypeError, ("k", "missing")),
    ("rows-of-3-heads", good(k=sentinel((15, 3, 16), F16), v=sentinel((15, 3, 16), F16)), ValueError, ("k_cache", "axis g", "got 2")),
    ("cache-of-bf16", good(k_cache=sentinel((6, 8, 2, 16), DTYPES["bf16"][0])), TypeError, ("k_cache", "got bf16", "from k")),
    ("v-of-14-rows", good(v=sentinel((14, 2, 16), F16)), ValueError, ("v", "axis t", "got 14", "expected 15 (from k)")),
    ("heads-not-dense", good(k_cache=sentinel((6, 8, 2, 16), F16, swap=(2, 3))), ValueError, ("k_cache", "axis d", "stride of 4 bytes")),
    ("page-of-0", good(k_cache=sentinel((6, 0, 2, 16), F16), v_cache=sentinel((6, 0, 2, 16), F16)), ValueError, ("axis page", "got 0")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


def rows_in(cache: np.ndarray) -> np.ndarray:
    return cache.reshape(-1)[:480].reshape(15, 2, 16)


VIEWS: list[tuple[str, Callable[..., dict[str, Any]], tuple[str, ...]]] = [
    ("k-is-v", lambda k, **rest: {"v": k}, ("k: got memory that overlaps v,",)),
    ("k-in-its-cache", lambda k_cache, **rest: {"k": rows_in(k_cache)}, ("k: got memory that overlaps k_cache",)),
    ("v-in-the-k-cache", lambda k_cache, **rest: {"v": rows_in(k_cache)}, ("v: got memory that overlaps k_cache",)),
    ("offsets-in-v", lambda v, **rest: {"offsets": v.reshape(-1)[:6].view(np.int32)}, ("v: got memory that overlaps offsets",)),
    ("k-is-read-only", lambda k, **rest: {"k": np.lib.stride_tricks.as_strided(k, writeable=False)}, ("k", "read-only")),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))
