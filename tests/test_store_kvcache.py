"""store_kvcache: rows of K and V, mostly slices of a fused qkv, into caches [pages, g, slot, d], bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import reshape_and_cache_flash
from pyref.spec import DTYPES
from pyref.store_kvcache import SPEC, run
from tests import cache_write, harness
from tools import cases, compare, legs
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "store_kvcache"
SAME = ("f32", "f16", "bf16")
MIXED = [5, 0, -1, 23, 16, 17, 18]


def case(name: str, why: str, dtypes: str, g: int, d: int, page: int, slots: list[int], **rest: Any) -> Case:
    """A case. ``dtypes``: "rows" or "rows slots"."""
    rows, *index = dtypes.split()
    return cache_write.case(name, why, " ".join([rows, rows, *index]), g, d, page, slots, **rest)


def qkv(g: int, d: int) -> dict[str, Any]:
    """K and V as the second and third part of every head of qkv [n, g, 3, d]."""
    return {"k": {"pad": {2: 2 * d}, "offset": d}, "v": {"pad": {2: 2 * d}, "offset": 2 * d}}


CASES = [
    *(case(f"{t}-dense", "every dtype, K and V for themselves", t, 2, 64, 8, MIXED) for t in SAME),
    *(case(f"{t}-third-dimension-of-qkv", "qkv [n, g, 3, d]: heads apart", t, 2, 64, 8, MIXED, places=qkv(2, 64)) for t in SAME),
    *(case(f"{t}-i32", "slots of 32 bits", f"{t} i32", 2, 64, 8, MIXED, places=qkv(2, 64)) for t in SAME),
    case("slices-of-qkv", "qkv [n, h + 2 g, d]: rows apart", "bf16", 2, 32, 8, [1, 20],
         places={"k": {"pad": {1: 10}, "offset": 256}, "v": {"pad": {1: 10}, "offset": 320}}),
    case("qkv-of-two-widths", "K and V with row strides of their own", "f16", 2, 32, 8, [1, 20],
         places={"k": {"pad": {1: 3}}, "v": {"pad": {1: 5}, "offset": 8}}),
    case("one-slot-a-page", "slots and heads beside each other: a row is one run", "f16", 3, 46, 1, [2, 0]),
    *(case(f"one-slot-a-page-{a}-apart", "a row is one run but for one tensor", "f16", 3, 46, 1, [2, 0], places={a: {"pad": {2: 2}}})
      for a in ("k", "v")),
    case("head-of-46", "accesses of 4 bytes", "f16", 3, 46, 8, [1, 2, 9], places=qkv(3, 46)),
    case("head-of-46-in-48", "strides allow 16 bytes, the head size does not", "f16", 3, 46, 8, [1, 2, 9],
         places={"k": {"pad": {2: 2}}, "v": {"pad": {2: 2}}, "k_cache": {"pad": {3: 2}}, "v_cache": {"pad": {3: 2}}}),
    case("head-of-47", "accesses of 2 bytes", "bf16", 3, 47, 8, [1, 2, 9], places=qkv(3, 47)),
    *(case(f"head-of-{d}", "head sizes of real models", "bf16", 2, d, 8, [1, 20], places=qkv(2, d)) for d in (80, 112, 120, 128, 256)),
    case("40-heads-of-128", "640 accesses a row", "bf16", 40, 128, 8, [3, 17]),
    case("70-rows", "a second tile with 6 rows", "f16", 2, 64, 16, [*range(72, 2, -1)], pages=5),
    case("1030-rows", "rows of one access: more than a tile of them", "f32", 1, 1, 16, [*range(1030)], pages=65),
    case("page-of-7", "a page size that is no power of two", "f16", 2, 16, 7, [6, 7, 13, 14, 20]),
    case("one-row", "one row", "f16", 1, 8, 1, [2]),
    case("all-padding", "nothing is written", "f16", 1, 16, 8, [-1, -1]),
    case("padding-first", "-1 in the first row", "f16", 1, 16, 8, [-1, 3]),
    case("8-rows-5-slots", "rows without a slot are padding", "bf16", 2, 32, 8, [6, 1, 4, 0, 23], n=8),
    case("no-slots", "rows, but no slots: nothing is launched", "f16", 1, 16, 8, [], n=3),
    case("no-pages", "a cache of no pages takes padding alone", "f16", 1, 16, 8, [-1], pages=0),
    case("own-strides", "pages and heads of both caches, each with another stride", "f16", 2, 32, 8, [*range(8, 16), 2],
         places={"k_cache": {"pad": {1: 1, 2: 2}}, "v_cache": {"pad": {1: 2, 2: 1}}}),
    case("nhd-through-strides", "a cache [pages, slot, g, d] as its permuted view", "f16", 2, 32, 8, MIXED,
         places={"k_cache": {"swap": (1, 2)}, "v_cache": {"swap": (1, 2)}}),
    case("two-orders", "K in one order, V in the other", "f16", 2, 32, 8, MIXED, places={"k_cache": {"swap": (1, 2)}}),
    *(case(f"odd-{a}", f"{a} starts at element 1: single elements", "f16", 2, 32, 8, [1, 9], places={a: {"offset": 1}})
      for a in ("k", "v", "k_cache", "v_cache")),
    case("8-bytes-off", "V starts at element 4: 8-byte accesses", "f16", 2, 32, 8, [1, 9], places={"v": {"offset": 4}}),
]  # fmt: skip


def cache_shape(name: str, shape: Mapping[str, Any], x: int) -> tuple[int, ...]:
    """The cache of K or V."""
    return (shape["pages"], shape["g"], shape["page"], shape["d"])


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
    cache_write.check_by_single_elements(STEM, case, inputs(case), lambda name, page, head, i, inside: (page, head, inside, i))


@pytest.mark.parametrize("name", ["f16-dense", "f16-third-dimension-of-qkv", "8-rows-5-slots"])
def test_the_order_of_rows_plays_no_part(name: str) -> None:
    cache_write.check_order_of_rows(STEM, inputs(by_id(name)), seed=3)


def test_negative_slots_are_skipped_unchecked() -> None:
    cache_write.check_negative_slots(STEM, cache_shape, lambda cache: cache.swapaxes(1, 2))


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_places(leg: str) -> None:
    cache_write.check_far_places(STEM, leg, cache_shape)


def test_k_and_v_of_one_qkv_tensor() -> None:
    """Views that interleave without sharing an element, on every leg."""
    fused = place(Stream(5).normal((3, 2, 3, 16), "f16"))
    for leg in (legs.leg("ref"), *harness.available()):
        if leg.name == "gpu":
            continue  # its memory is one buffer an argument; the cases with strides cover it
        mine = fused.copy().view
        caches = [sentinel((2, 2, 4, 16), np.dtype(np.float16)).view for _ in "kv"]
        arguments = {"k": mine[:, :, 1], "v": mine[:, :, 2], "k_cache": caches[0], "v_cache": caches[1], "slots": np.array([6, -1, 1])}
        leg.run(SPEC.bind(arguments, checked=True), {})
        for part, cache in enumerate(caches, start=1):
            assert compare.difference(leg.name, cache[1, :, 2], fused.view[0, :, part]) is None
            assert compare.difference(leg.name, cache[0, :, 1], fused.view[2, :, part]) is None
            assert np.count_nonzero(compare.bits(cache) != 0xFFA5) <= 2 * 2 * 16


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), st.integers(0, 30), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_it_is_the_flash_layout_permuted(page: int, g: int, d: int, rows: int, seed: int) -> None:
    stream = Stream(seed)
    slots = stream.permutation(4 * page)[:rows]
    k, v = (stream.normal((rows, g, d), "bf16") for _ in "kv")
    ours = [sentinel((4, g, page, d), DTYPES["bf16"][0]).view for _ in "kv"]
    theirs = [sentinel((4, page, g, d), DTYPES["bf16"][0]).view for _ in "kv"]
    k, v, slots = k[: slots.size], v[: slots.size], slots
    run(k=k, v=v, k_cache=ours[0], v_cache=ours[1], slots=slots)
    reshape_and_cache_flash.run(k=k, v=v, k_cache=theirs[0], v_cache=theirs[1], slots=slots)
    assert all(np.array_equal(compare.bits(a.swapaxes(1, 2)), compare.bits(b)) for a, b in zip(ours, theirs, strict=True))


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16", 2, 16, 8, [3, 0, -1, 23, 9])), **changed}


F16 = np.dtype(np.float16)
BAD: list[cache_write.Bad] = [
    *cache_write.bad_input(good, None),
    ("cache-of-heads-of-24", good(k_cache=sentinel((3, 2, 8, 24), F16)), ValueError, ("k_cache", "axis d", "got 24", "from k")),
    ("cache-in-the-other-order", good(k_cache=sentinel((3, 8, 2, 16), F16)), ValueError, ("k_cache", "axis g", "got 8", "from k")),
    ("v-cache-of-4-pages", good(v_cache=sentinel((4, 2, 8, 16), F16)), ValueError, ("v_cache", "axis pages", "got 4", "from k_cache")),
    ("v-cache-of-pages-of-16", good(v_cache=sentinel((3, 2, 16, 16), F16)), ValueError, ("v_cache", "axis page", "got 16", "expected 8")),
    ("cache-of-fp8", good(k_cache=sentinel((3, 2, 8, 16), DTYPES["e4m3"][0])), TypeError, ("k_cache", "got e4m3", "f32 or f16 or bf16")),
    ("cache-of-bf16", good(v_cache=sentinel((3, 2, 8, 16), DTYPES["bf16"][0])), TypeError, ("v_cache", "got bf16", "from k")),
    ("pages-of-0", good(k_cache=sentinel((3, 2, 0, 16), F16), v_cache=sentinel((3, 2, 0, 16), F16)), ValueError, ("axis page", "got 0")),
    ("a-scale", good(k_scale=place(np.float32([1]))), TypeError, ("no argument 'k_scale'",)),
]


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in cache_write.bad_memory()], ids=[bad[0] for bad in cache_write.bad_memory()])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_a_grid_beyond_its_limit_is_refused() -> None:
    """Without memory: all rows are one row."""
    strided = np.lib.stride_tricks.as_strided
    row, slots = strided(np.zeros((1, 2, 16), F16), (2**36, 2, 16), (0, 32, 2)), strided(np.zeros(1, np.int64), (2**36,), (8,))
    caches = cases.views({name: value for name, value in good().items() if "cache" in name})
    with pytest.raises(ValueError, match=f"{STEM}: slots: axis m: got {2**36}, expected at most {(2**31 - 1) * 32}"):
        SPEC.bind({"k": row, "v": row, "slots": slots, **caches})
