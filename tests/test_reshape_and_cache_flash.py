"""reshape_and_cache_flash: rows of K and V into caches [pages, slot, g, d] or [pages, g, slot, d], as they are or as fp8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import layout
from pyref.reshape_and_cache_flash import SPEC, run
from pyref.spec import DTYPES
from tests import cache_write, harness
from tests.cache_write import case
from tools import cases
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "reshape_and_cache_flash"
SAME = ("f32", "f16", "bf16")
TO_FP8 = [f"{rows} {cache}" for rows in SAME for cache in ("e4m3", "e5m2")]
HND = {"k_cache": {"swap": (1, 2)}, "v_cache": {"swap": (1, 2)}}  # [pages, g, slot, d] in memory
MIXED = [5, 0, -1, 23, 16, 17, 18]
CASES = [
    *(case(f"{t}-nhd", "every dtype, heads beside each other", f"{t} {t}", 2, 64, 8, MIXED) for t in SAME),
    *(case(f"{t}-hnd", "every dtype, slots beside each other", f"{t} {t}", 2, 64, 8, MIXED, places=HND) for t in SAME),
    *(case(f"{t.replace(' ', '-')}", "every value that fp8 finds hard", t, 2, 64, 8, MIXED) for t in TO_FP8),
    *(case(f"{t.replace(' ', '-')}-hnd", "the same, permuted", t, 2, 64, 8, MIXED, places=HND) for t in TO_FP8[::2]),
    case("f16-i32", "slots of 32 bits", "f16 f16 i32", 3, 32, 16, [47, 3, 16, -1, 31]),
    case("bf16-e4m3-i32", "slots of 32 bits, fp8", "bf16 e4m3 i32", 3, 32, 16, [47, 3, 16, -1, 31]),
    case("head-of-46-nhd", "46 elements, 92 bytes: 16-byte accesses over all 8 heads", "f16 f16", 8, 46, 8, [1, 2, 9]),
    case("head-of-46-hnd", "accesses of 4 bytes: no vector divides a head", "f16 f16", 3, 46, 8, [1, 2, 9], places=HND),
    case("head-of-46-fp8", "two elements at a time", "bf16 e4m3", 3, 46, 8, [1, 2, 9], places=HND),
    case("head-of-46-in-48", "strides allow 16 bytes, the head size does not", "f16 f16", 3, 46, 8, [1, 2, 9],
         places={"k": {"pad": {2: 2}}, "v": {"pad": {2: 2}}, "k_cache": {"pad": {3: 2}}, "v_cache": {"pad": {3: 2}}}),
    case("head-of-47", "single elements, one head after another", "bf16 bf16", 3, 47, 8, [1, 2, 9], places=HND),
    case("head-of-47-fp8", "single elements", "f16 e5m2", 3, 47, 8, [1, 2, 9]),
    case("head-of-1", "heads of one element", "f32 f32", 5, 1, 8, [1, 2, 9]),
    *(case(f"head-of-{d}", "head sizes of real models", "bf16 bf16", 2, d, 8, [1, 20]) for d in (80, 96, 112, 120, 192, 256)),
    case("40-heads-of-128", "640 accesses a row: four blocks", "bf16 bf16", 40, 128, 8, [3, 17]),
    case("25-heads-of-128", "400 accesses a row: two blocks, their shares not whole heads", "bf16 bf16", 25, 128, 8, [3, 17], places=HND),
    case("32-heads-of-128-f32", "1,024 accesses a row", "f32 f32", 32, 128, 8, [3, 17]),
    case("257-accesses", "one access more than a block has threads", "f16 f16", 257, 8, 8, [3, 17]),
    case("70-rows", "a second tile with 6 rows", "f16 f16", 2, 64, 16, [*range(3, 73)], pages=5),
    case("70-rows-i32", "32-bit slots, permuted, backwards", "f16 f16 i32", 2, 64, 16, [*range(72, 2, -1)], pages=5, places=HND),
    case("1030-rows", "rows of one access: more than a tile of them", "f32 f32", 1, 1, 16, [*range(1030)], pages=65),
    case("5-rows-fp8", "129 accesses a row, 5 rows a thread: it takes up to 8 where it stores fp8", "f32 e4m3", 3, 172, 8, [*range(5, 10)]),
    case("one-row", "one row", "f16 f16", 1, 8, 1, [2]),
    case("all-padding", "nothing is written", "f16 f16", 1, 16, 8, [-1, -1]),
    case("8-rows-5-slots", "rows without a slot are padding", "bf16 bf16", 2, 32, 8, [6, 1, 4, 0, 23], n=8),
    case("no-slots", "rows, but no slots: nothing is launched", "f16 f16", 1, 16, 8, [], n=3),
    case("no-rows", "no rows at all", "f16 f16", 1, 16, 8, []),
    case("no-pages", "a cache of no pages takes padding alone", "f16 f16", 1, 16, 8, [-1], pages=0),
    case("page-of-7", "a page size that is no power of two", "f16 f16", 2, 16, 7, [6, 7, 13, 20]),
    case("page-of-7-hnd", "the same permuted: a slot in the wrong page is seen", "f16 f16", 2, 16, 7, [6, 7, 13, 14, 20], places=HND),
    case("qkv-slice", "K and V are slices of qkv: rows apart", "f16 f16", 2, 32, 8, [1, 20],
         places={"k": {"pad": {1: 6}, "offset": 64}, "v": {"pad": {1: 6}, "offset": 128}}),
    case("third-dimension-of-qkv", "qkv [n, g, 3, d]: heads apart", "f16 f16", 3, 16, 8, [1, 20],
         places={"k": {"pad": {2: 32}, "offset": 16}, "v": {"pad": {2: 32}, "offset": 32}}),
    case("only-v-apart", "the heads of K are one row, those of V are not", "f16 f16", 3, 16, 8, [1, 20], places={"v": {"pad": {2: 16}}}),
    case("only-v-cache-apart", "the heads of one cache are apart", "f16 f16", 3, 16, 8, [1, 20], places={"v_cache": {"pad": {3: 16}}}),
    case("own-strides", "rows, pages and slots of K and V, each with another stride", "bf16 bf16", 2, 32, 8, [*range(8, 16), 2],
         places={"k": {"pad": {1: 1}}, "v": {"pad": {1: 2}}, "k_cache": {"pad": {1: 1, 2: 2}}, "v_cache": {"pad": {1: 2, 2: 1}}}),
    case("padded-pages", "pages of 576 elements in 640", "f16 f16", 1, 36, 16, [*range(14, 20)],
         places={"k_cache": {"pad": {3: 4}}, "v_cache": {"pad": {3: 4}}}),
    *(case(f"odd-{a}", f"{a} starts at element 1: single elements", "f16 f16", 2, 32, 8, [1, 9], places={a: {"offset": 1}})
      for a in ("k", "v", "k_cache", "v_cache")),
    *(case(f"8-bytes-off-{a}", f"{a} starts at element 4: 8-byte accesses", "f16 f16", 2, 32, 8, [1, 9], places={a: {"offset": 4}})
      for a in ("k", "v_cache")),
    case("odd-cache-fp8", "an fp8 cache from byte 1 on: single elements", "bf16 e4m3", 2, 32, 8, [1, 9], places={"k_cache": {"offset": 1}}),
    case("odd-slots", "slots an odd number of elements apart", "f16 f16", 1, 32, 8, [1, 9], places={"v_cache": {"pad": {3: 1}}}),
    case("odd-pages", "pages of one slot, an odd number of elements apart", "f16 f16", 1, 32, 1, [1, 2],
         places={"k_cache": {"pad": {3: 1}}}),
    case("odd-heads", "heads an odd number of elements apart, 8 of them a multiple of 16 bytes", "f16 f16", 8, 32, 1, [1, 2],
         places={"v_cache": {"pad": {3: 1}}}),
    case("scales-a-head", "one scale for K, one a head for V: heads are not taken together", "bf16 e5m2", 3, 32, 8, MIXED,
         scales=(0.5, [2.0, 0.7, 1e-2])),
    case("scales-a-head-k", "one a head for K, one for V", "f32 e4m3", 3, 20, 8, MIXED, scales=([2.0, 0.7, 1e-2], 0.5)),
    case("one-head-one-scale", "g = 1: a scale a head is one scale", "f16 e4m3", 1, 64, 8, MIXED, scales=([2.0], [0.3])),
    case("tiny-scale", "quotients overflow and saturate", "f16 e4m3", 1, 64, 8, MIXED, scales=(1e-38, 1e-45)),
    case("scale-0-and-nan", "0/0 and x/NaN are NaN, x/0 saturates", "f16 e4m3", 2, 32, 8, MIXED, scales=(0.0, [np.nan, np.inf])),
]  # fmt: skip


def cache_shape(name: str, shape: Mapping[str, Any], x: int) -> tuple[int, ...]:
    """The cache of K or V."""
    return (shape["pages"], shape["page"], shape["g"], shape["d"])


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    return cache_write.inputs(case, cache_shape)


def by_id(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


@harness.each([case for case in CASES if case.shape["m"] * case.shape["g"] * case.shape["d"] <= 2048])
def test_the_definition_by_single_elements(case: Case) -> None:
    cache_write.check_by_single_elements(STEM, case, inputs(case), lambda name, page, head, i, inside: (page, inside, head, i))


@pytest.mark.parametrize("name", ["f16-nhd", "f16-hnd", "bf16-e4m3", "8-rows-5-slots"])
def test_the_order_of_rows_plays_no_part(name: str) -> None:
    cache_write.check_order_of_rows(STEM, inputs(by_id(name)), seed=3)


def test_negative_slots_are_skipped_unchecked() -> None:
    cache_write.check_negative_slots(STEM, cache_shape, lambda cache: cache)


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_places(leg: str) -> None:
    cache_write.check_far_places(STEM, leg, cache_shape)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_unpacking_gives_the_rows_back(data: st.DataObject) -> None:
    """What was written through slots is what pyref.layout reads through a block table, whatever the order of heads and slots."""
    page, g = data.draw(st.integers(1, 16)), data.draw(st.integers(1, 3))
    d, length = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 40))
    entries = -(-length // page)
    table = np.array([data.draw(st.permutations(range(entries + 2)))[:entries]])
    slots = table[0][np.arange(length) // page] * page + np.arange(length) % page
    k, v = (Stream(seed).normal((length, g, d), "bf16") for seed in (1, 2))
    swap = {"swap": (1, 2)} if data.draw(st.booleans()) else {}
    caches = [sentinel((entries + 2, page, g, d), DTYPES["bf16"][0], **swap).view for _ in "kv"]
    k_cache, v_cache = run(k=k, v=v, k_cache=caches[0], v_cache=caches[1], slots=slots)
    got = layout.unpack_nhd(k_cache, v_cache, [length], table)
    assert all(np.array_equal(one, other) for one, other in zip(got, (k, v), strict=True))


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16 f16", 2, 16, 8, [3, 0, -1, 23, 9])), **changed}


def good_fp8(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16 e4m3", 2, 16, 8, [3, 0, -1, 23, 9])), **changed}


F16, BF16 = np.dtype(np.float16), DTYPES["bf16"][0]
BAD: list[cache_write.Bad] = [
    *cache_write.bad_input(good, good_fp8),
    ("cache-of-heads-of-24", good(k_cache=sentinel((3, 8, 2, 24), F16)), ValueError, ("k_cache", "axis d", "got 24", "from k")),
    ("cache-not-permuted", good(k_cache=sentinel((3, 2, 8, 16), F16)), ValueError, ("k_cache", "axis g", "got 8", "expected 2 (from k)")),
    ("cache-of-3-axes", good(k_cache=sentinel((24, 2, 16), F16)), ValueError, ("k_cache", "got 3 axes", "expected 4", "pages page g | d")),
    ("v-cache-of-4-pages", good(v_cache=sentinel((4, 8, 2, 16), F16)), ValueError, ("v_cache", "axis pages", "got 4", "from k_cache")),
    ("v-cache-of-pages-of-16", good(v_cache=sentinel((3, 16, 2, 16), F16)), ValueError, ("v_cache", "axis page", "got 16", "expected 8")),
    ("v-cache-of-bf16", good(v_cache=sentinel((3, 8, 2, 16), BF16)), TypeError, ("v_cache", "got bf16", "expected f16 (from k_cache)")),
    ("caches-of-bf16", good(k_cache=sentinel((3, 8, 2, 16), BF16), v_cache=sentinel((3, 8, 2, 16), BF16)), TypeError,
     ("k_cache", "got bf16", "expected f16 (from k) or e4m3 or e5m2")),
    ("no-heads", good(k=sentinel((5, 0, 16), F16), v=sentinel((5, 0, 16), F16), k_cache=sentinel((3, 8, 0, 16), F16),
                      v_cache=sentinel((3, 8, 0, 16), F16)), ValueError, ("k: axis g", "got 0", "at least 1")),
    ("pages-of-0", good(k_cache=sentinel((3, 0, 2, 16), F16), v_cache=sentinel((3, 0, 2, 16), F16)), ValueError, ("axis page", "got 0")),
    ("heads-of-cache-not-dense", good(k_cache=sentinel((3, 8, 2, 16), F16, swap=(2, 3))), ValueError, ("k_cache", "axis d", "stride of 4")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in cache_write.bad_memory()], ids=[bad[0] for bad in cache_write.bad_memory()])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_rows_and_grids_beyond_their_limits_are_refused() -> None:
    """Without memory: all rows, or all heads, are one."""
    strided = np.lib.stride_tricks.as_strided
    caches = cases.views({name: value for name, value in good().items() if "cache" in name})
    row, slots = strided(np.zeros((1, 2, 16), F16), (2**36, 2, 16), (0, 32, 2)), strided(np.zeros(1, np.int64), (2**36,), (8,))
    with pytest.raises(ValueError, match=f"{STEM}: slots: axis m: got {2**36}, expected at most {(2**31 - 1) * 32}"):
        SPEC.bind({"k": row, "v": row, "slots": slots, **caches})
    long, one = strided(np.zeros((1, 1, 16), F16), (1, 2**27, 16), (0, 0, 2)), place(np.array([0])).view
    wide = {f"{name}_cache": strided(np.zeros((1, 1, 1, 16), F16), (1, 1, 2**27, 16), (2**40, 2**40, 32, 2)) for name in "kv"}
    with pytest.raises(ValueError, match=f"{STEM}: k: axis g: got {2**27} heads of 16, expected a row of at most {2**31 - 1} elements"):
        SPEC.bind({"k": long, "v": long, "slots": one, **wide})
