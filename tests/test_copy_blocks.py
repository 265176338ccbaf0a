"""copy_blocks: pages of K and V to other pages of the same caches, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref.copy_blocks import SPEC, run
from pyref.spec import DTYPES
from tests import harness
from tests.cache_write import anything
from tests.sparse import sparse
from tools import compare, legs
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "copy_blocks"
ALL = ("f32", "f16", "bf16", "e4m3", "e5m2")
Pairs = list[tuple[int, int]]


def case(name: str, why: str, dtype: str, w: int, pairs: Pairs, pages: int = 9, v: bool = True, **places: Any) -> Case:
    """A case: ``places`` says how ``place`` lays out an argument, ``v`` whether there is a V cache."""
    return Case(name, why, {"T": dtype}, {"w": w, "pairs": tuple(pairs), "pages": pages, "v": v, "places": places}, seed=sum(name.encode()))


FEW: Pairs = [(1, 4), (0, 8), (7, 2)]
CASES = [
    *(case(f"{t}", "every dtype", t, 256, FEW) for t in ALL),
    *(case(f"{t}-k-alone", "a latent cache", t, 256, FEW, v=False) for t in ("bf16", "e4m3")),
    case("one-source", "a page that is copied to several", "f16", 64, [(3, 0), (3, 8), (3, 4), (1, 2)]),
    case("all-pages", "every page is read or written", "f16", 64, [(i, 8 - i) for i in range(4)]),
    case("one-pair", "a single pair", "f16", 64, [(8, 0)]),
    case("no-pairs", "nothing is launched", "f16", 64, []),
    case("no-pages", "caches of no pages", "f16", 64, [], pages=0),
    *(case(f"w{w}-access{a}", f"pages of {w} elements allow accesses of {a} bytes", "f16", w, FEW)
      for w, a in ((8, 16), (4, 8), (2, 4), (1, 2), (855, 2))),
    *(case(f"e4m3-w{w}", f"pages of {w} bytes", "e4m3", w, FEW) for w in (1, 2, 12, 17)),
    case("page-of-16x8x128", "2,048 accesses a page: blocks side by side", "bf16", 16_384, [(0, 2)], pages=3),
    case("257-accesses", "one access more than a block has threads", "f16", 257 * 8, [(0, 2)], pages=3),
    case("520-accesses", "four blocks a page", "f16", 520 * 8, [(0, 2), (1, 3)], pages=4),
    case("1030-pairs", "more pairs than a tile of the shortest pages has", "f16", 8, [(2 * i, 2 * i + 1) for i in range(1030)], pages=2060),
    case("65537-pairs", "more pairs than grid.y takes", "e4m3", 16, [(2 * i, 2 * i + 1) for i in range(65_537)], pages=131_074, v=False),
    case("padded-pages", "576 used of 640, each cache with its stride", "f16", 576, FEW, k_cache={"pad": {1: 64}}, v_cache={"pad": {1: 8}}),
    case("46-in-48", "strides allow 16 bytes, the pages do not", "f16", 46, FEW, k_cache={"pad": {1: 2}}, v_cache={"pad": {1: 2}}),
    *(case(f"odd-{a}", f"{a} starts at element 1", "f16", 64, FEW, **{a: {"offset": 1}}) for a in ("k_cache", "v_cache")),
    case("8-bytes-off", "8-byte accesses", "f16", 64, FEW, v_cache={"offset": 4}),
    case("odd-stride", "pages an odd number of elements apart", "f16", 64, FEW, k_cache={"pad": {1: 1}}),
    case("f16-every-nan", "payloads and signs of NaN stay (C9)", "f16", 1024, FEW),
]  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Pages that are neither read nor written hold the sentinel, pages that are written begin with it."""
    shape, storage, stream = case.shape, DTYPES[case.dtypes["T"]][0], Stream(case.seed)
    pairs = np.array(shape["pairs"], np.int64).reshape(-1, 2)
    found: dict[str, Any] = {"pairs": place(pairs)}
    for name in ("k_cache", "v_cache") if shape["v"] else ("k_cache",):
        found[name] = sentinel((shape["pages"], shape["w"]), storage, **shape["places"].get(name, {}))
        read = np.unique(pairs[:, 0])
        cache = compare.bits(anything(stream, (read.size, shape["w"]), storage))
        if case.id.endswith("every-nan"):
            signs = 0x8000 * (np.arange(read.size, dtype=np.uint16) % 2)
            cache[:] = 0x7C01 + np.arange(shape["w"], dtype=np.uint16) % 1023 + signs[:, None]
        found[name].view.view(cache.dtype)[read] = cache
    return found


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


@harness.each([case for case in CASES if len(case.shape["pairs"]) < 100])
def test_the_definition_page_by_page(case: Case) -> None:
    before = inputs(case)
    for name, got in harness.compute(STEM, before).items():
        expected = [page.tobytes() for page in compare.bits(before[name].view)]
        for read, written in case.shape["pairs"]:
            expected[written] = before[name].view[read].tobytes()
        assert [page.tobytes() for page in compare.bits(got)] == expected, name


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_pairs_plays_no_part(data: st.DataObject) -> None:
    pages, w = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 40))
    order = data.draw(st.permutations(range(pages)))
    split = data.draw(st.integers(1, pages - 1))
    pairs = np.array([(data.draw(st.sampled_from(order[:split])), to) for to in order[split:]])
    cache = anything(Stream(pages), (pages, w), np.dtype(np.float16))
    once, again = cache.copy(), cache.copy()
    run(k_cache=once, pairs=pairs)
    run(k_cache=again, pairs=pairs[::-1].copy())
    assert once.tobytes() == again.tobytes()
    assert all(once[to].tobytes() == cache[read].tobytes() for read, to in pairs)


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_pages(leg: str) -> None:
    """BUGS: block id x stride in 32 bits. Page 262,145 of 16,384 elements begins at 2^32 + 16,384."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    f16, last = np.dtype(np.float16), 262_145
    k, v = (sparse((last + 1, 16_384), f16, (16_384, 1)) for _ in "kv")
    k[last], v[3] = anything(Stream(1), (2, 16_384), f16)
    runner.run(SPEC.bind({"k_cache": k, "v_cache": v, "pairs": np.array([[last, 5], [3, last - 1]])}, checked=True), {})
    assert k[5].tobytes() == k[last].tobytes(), "the page was read at an offset that was cut to 32 bits"
    assert v[last - 1].tobytes() == v[3].tobytes(), "the page did not arrive"
    assert not compare.bits(v[:3]).any(), "the page went to an offset that was cut to 32 bits"


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(*pairs: tuple[int, int], **changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16", 32, FEW)), **({"pairs": place(np.array(pairs))} if pairs else {}), **changed}


F16 = np.dtype(np.float16)
BAD: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ("chain", good((0, 1), (1, 2)), ValueError, ("pairs", "page 1 read by pair 1 and written by pair 0", "no chain")),
    ("chain-backwards", good((5, 6), (1, 2), (0, 1)), ValueError, ("pairs", "page 1 read by pair 1 and written by pair 2")),
    ("exchange", good((0, 1), (1, 0)), ValueError, ("pairs", "page 0 read by pair 0 and written by pair 1")),
    ("to-itself", good((2, 3), (4, 4)), ValueError, ("pairs", "page 4 read by pair 1 and written by pair 1")),
    ("written-twice", good((0, 3), (1, 4), (2, 3)), ValueError, ("pairs", "page 3 written by pair 0 and by pair 2", "every page once")),
    ("from-the-end", good((0, 1), (9, 2)), ValueError, ("pairs", "pair 1", "from page 9", "0 to 8")),
    ("to-the-end", good((0, 9)), ValueError, ("pairs", "pair 0", "to page 9", "0 to 8")),
    ("from-minus-1", good((-1, 2)), ValueError, ("pairs", "from page -1")),
    ("beyond-32-bits", good((0, 2**32 + 1)), ValueError, ("pairs", "to page 4294967297")),
    ("three-columns", good(pairs=place(np.zeros((2, 3), np.int64))), ValueError, ("pairs", "axis 1", "got 3", "expected 2")),
    ("flat", good(pairs=place(np.arange(4))), ValueError, ("pairs", "got 1 axes", "expected 2")),
    ("pairs-of-i32", good(pairs=place(np.array([[0, 1]], np.int32))), TypeError, ("pairs", "got i32", "expected i64")),
    ("v-of-8-pages", good(v_cache=sentinel((8, 32), F16)), ValueError, ("v_cache", "axis pages", "got 8", "expected 9 (from k_cache)")),
    ("v-of-other-pages", good(v_cache=sentinel((9, 33), F16)), ValueError, ("v_cache", "axis w", "got 33", "expected 32 (from k_cache)")),
    ("v-of-bf16", good(v_cache=sentinel((9, 32), DTYPES["bf16"][0])), TypeError, ("v_cache", "got bf16", "expected f16 (from k_cache)")),
    ("cache-of-3-axes", good(k_cache=sentinel((9, 4, 8), F16)), ValueError, ("k_cache", "got 3 axes", "expected 2")),
    ("cache-of-f64", good(k_cache=place(np.zeros((9, 32)))), TypeError, ("k_cache", "got float64")),
    ("pages-not-dense", good(k_cache=sentinel((9, 32), F16, swap=(0, 1))), ValueError, ("k_cache", "axis w", "stride of 18 bytes")),
    ("pages-of-nothing", good(k_cache=sentinel((9, 0), F16), v_cache=sentinel((9, 0), F16)), ValueError, ("k_cache: axis w", "got 0")),
    ("no-cache", good(k_cache=None), TypeError, ("k_cache", "missing")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


VIEWS: list[tuple[str, Callable[..., dict[str, Any]], tuple[str, ...]]] = [
    ("v-is-k", lambda k_cache, **rest: {"v_cache": k_cache}, ("k_cache: got memory that overlaps v_cache",)),
    ("pairs-in-v", lambda v_cache, **rest: {"pairs": v_cache[3, :24].view(np.int64).reshape(3, 2)}, ("v_cache: got memory", "pairs")),
    ("read-only", lambda k_cache, **rest: {"k_cache": np.lib.stride_tricks.as_strided(k_cache, writeable=False)}, ("k_cache", "read-only")),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_a_grid_beyond_its_limit_is_refused() -> None:
    """Without memory: all pairs are one pair."""
    pairs = np.lib.stride_tricks.as_strided(np.zeros((1, 2), np.int64), (2**36, 2), (16, 8))
    with pytest.raises(ValueError, match=f"copy_blocks: pairs: axis m: got {2**36}, expected at most {(2**31 - 1) * 4}"):
        SPEC.bind({"k_cache": np.zeros((2, 256), np.float16), "pairs": pairs})
