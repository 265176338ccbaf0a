"""reshape_and_cache: rows of K and V into the caches of the classic attention kernels, as they are or as fp8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import layout
from pyref.reshape_and_cache import SPEC, run
from pyref.spec import DTYPES
from tests import cache_write, harness
from tests.cache_write import case
from tools import cases
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "reshape_and_cache"
TWO_PAGES = [*range(16, 32), *range(16)]  # page 1, then page 0
SAME = ("f32", "f16", "bf16")
TO_FP8 = [f"{rows} {cache}" for rows in SAME for cache in ("e4m3", "e5m2")]
SIXTEEN = list(range(16))
CASES = [
    *(case(f"{t}-two-pages", "all slots of two pages: V goes in whole vectors", f"{t} {t}", 2, 64, 16, TWO_PAGES) for t in SAME),
    *(case(f"{t.replace(' ', '-')}-two-pages", "the same, with every value that fp8 finds hard", t, 2, 64, 16, TWO_PAGES) for t in TO_FP8),
    case("f16-i32", "slots of 32 bits, scattered", "f16 f16 i32", 3, 32, 16, [47, 3, 16, -1, 31]),
    case("bf16-e4m3-i32", "slots of 32 bits, scattered, fp8", "bf16 e4m3 i32", 3, 32, 16, [47, 3, 16, -1, 31]),
    case("decode", "each row in its own page: single elements", "bf16 bf16", 4, 32, 16, [16 * i + 7 * i % 16 for i in range(9)], pages=9),
    case("chunk-that-begins-inside", "slots from 5 on: 3 single, 16 in vectors, 2 single", "f16 f16", 1, 32, 16, [*range(5, 26)]),
    case("descending", "no two rows in ascending slots", "f16 f16", 1, 32, 16, [*range(20, -1, -1)]),
    case("two-sequences", "runs that meet inside a tile", "f16 f16", 1, 32, 16, [*range(24, 40), *range(3, 17)]),
    case("vector-over-the-page-end", "8 consecutive slots of two pages of 4", "f16 f16", 1, 16, 4, [*range(4, 16)], pages=4),
    case("33-rows", "a second tile with one row", "f16 f16", 1, 16, 8, [*range(8, 40), 0], pages=5),
    case("70-rows-i32", "three tiles, runs cut by their ends", "f16 f16 i32", 1, 16, 8, [*range(3, 73)], pages=10),
    case("run-cut-before-its-last", "7 of 8 consecutive slots end a tile", "f16 f16", 1, 16, 8, [*range(7, 40)], pages=5),
    case("one-row", "a tile with one row", "f32 f32", 1, 8, 8, [9]),
    case("padding-in-the-middle", "-1 in a run: no vector over it", "f16 f16", 1, 16, 16, [0, 1, 2, -1, *range(4, 16), -1], pages=1),
    case("all-padding", "nothing is written", "f16 f16", 1, 16, 8, [-1, -1]),
    case("8-rows-5-slots", "rows without a slot are padding", "bf16 bf16", 2, 32, 8, [6, 1, 4, 0, 23], n=8),
    case("no-slots", "rows, but no slots: nothing is launched", "f16 f16", 1, 16, 8, [], n=3),
    case("no-rows", "no rows at all", "f16 f16", 1, 16, 8, []),
    case("no-pages", "a cache of no pages takes padding alone", "f16 f16", 1, 16, 8, [-1], pages=0),
    case("40-heads-of-128", "g * d / x = 640, more than a block's threads", "bf16 bf16", 40, 128, 8, [3, 17]),
    case("32-heads-of-128-f32", "g * d / x = 1,024", "f32 f32", 32, 128, 8, [3, 17]),
    case("7-heads-of-80", "tiles that cut heads", "f16 f16", 7, 80, 16, [4, 33]),
    case("3-heads-of-120", "a head size that is no multiple of 16", "bf16 bf16", 3, 120, 16, [*range(8, 24)]),
    case("5-heads-of-112-fp8", "tiles that cut heads, a scale a head", "f16 e4m3", 5, 112, 16, SIXTEEN,
         scales=([1, 0.5, 2, 0.25, 3], [4, 0.1, 1, 7, 0.3])),
    case("head-of-512", "tiles inside a head", "f16 f16", 1, 512, 8, [1, 2]),
    case("head-of-4-f32", "a head is one x", "f32 f32", 2, 4, 8, [*range(4, 12)]),
    *(case(f"page-{p}", "pages smaller than a vector", "f16 f16", 2, 16, p, [*range(1, 9)], pages=9) for p in (1, 2)),
    case("page-8-fp8", "a page of 8 holds no vector of 16 fp8 slots", "f16 e5m2", 1, 16, 8, [*range(24)]),
    case("page-24-fp8", "a page that is no multiple of 16", "f16 e5m2", 1, 16, 24, [*range(32)]),
    case("page-256", "a large page", "bf16 bf16", 1, 16, 256, [*range(250, 262)], pages=2),
    case("qkv-slice", "K and V are slices of qkv: rows apart", "f16 f16", 2, 32, 8, [1, 20],
         places={"k": {"pad": {1: 6}, "offset": 64}, "v": {"pad": {1: 6}, "offset": 128}}),
    case("third-dimension-of-qkv", "qkv [n, g, 3, d]: heads apart", "f16 f16", 3, 16, 8, [1, 20],
         places={"k": {"pad": {2: 32}, "offset": 16}, "v": {"pad": {2: 32}, "offset": 32}}),
    case("only-v-heads-apart", "the heads of V lie apart, those of K do not", "f16 f16", 3, 16, 8, [1, 20], places={"v": {"pad": {2: 16}}}),
    case("own-strides", "rows and pages of K and V, each with another stride", "bf16 bf16", 2, 32, 8, [*range(8, 16), 2],
         places={"k": {"pad": {1: 1}}, "v": {"pad": {1: 2}}, "k_cache": {"pad": {1: 1}}, "v_cache": {"pad": {1: 2}}}),
    case("padded-heads", "each head of the caches has room behind it", "f16 f16", 2, 32, 8, [*range(8, 16), 2],
         places={"k_cache": {"pad": {2: 1}}, "v_cache": {"pad": {2: 4}}}),
    *(case(f"odd-{a}", f"{a} starts at element 1: no vectors", "f16 f16", 2, 32, 16, [*range(16, 32)], places={a: {"offset": 1}})
      for a in ("k", "v", "v_cache")),
    case("odd-rows-fp8", "rows an odd number of elements apart", "bf16 e4m3", 1, 16, 16, SIXTEEN,
         places={"k": {"pad": {2: 1}}, "v": {"pad": {2: 3}}}),
    case("v-cache-8-bytes-off", "the V cache lies 8 bytes past a vector", "f16 f16", 2, 16, 16, SIXTEEN, places={"v_cache": {"offset": 4}}),
    case("scales-a-head", "one scale for K, one a head for V", "bf16 e5m2", 3, 32, 16, SIXTEEN, scales=(0.5, [2.0, 0.7, 1e-2])),
    case("tiny-scale", "quotients overflow and saturate", "f16 e4m3", 1, 32, 16, SIXTEEN, scales=(1e-38, 1e-45)),
    case("scale-0-and-nan", "0/0 and x/NaN are NaN, x/0 saturates", "f16 e4m3", 2, 32, 16, SIXTEEN, scales=(0.0, [np.nan, np.inf])),
]  # fmt: skip


def cache_shape(name: str, shape: Mapping[str, Any], x: int) -> tuple[int, ...]:
    """The cache of K or V."""
    if name == "k":
        return (shape["pages"], shape["g"], shape["d"] // x, shape["page"], x)
    return (shape["pages"], shape["g"], shape["d"], shape["page"])


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
    before = inputs(case)
    x = before["k_cache"].view.shape[-1]

    def index(name: str, page: int, head: int, i: int, inside: int) -> tuple[int, ...]:
        return (page, head, i // x, inside, i % x) if name == "k" else (page, head, i, inside)

    cache_write.check_by_single_elements(STEM, case, before, index)


@pytest.mark.parametrize("name", ["f16-two-pages", "bf16-e4m3-two-pages", "decode", "8-rows-5-slots"])
def test_the_order_of_rows_plays_no_part(name: str) -> None:
    cache_write.check_order_of_rows(STEM, inputs(by_id(name)), seed=3)


def test_negative_slots_are_skipped_unchecked() -> None:
    cache_write.check_negative_slots(STEM, cache_shape, lambda cache: np.moveaxis(cache, 3, 1))


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_places(leg: str) -> None:
    cache_write.check_far_places(STEM, leg, cache_shape)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_unpacking_gives_the_rows_back(data: st.DataObject) -> None:
    """What was written through slots is what pyref.layout reads through a block table."""
    page, g, x = data.draw(st.sampled_from([1, 4, 8, 16])), data.draw(st.integers(1, 3)), 8
    d, length = x * data.draw(st.integers(1, 4)), data.draw(st.integers(1, 40))
    entries = -(-length // page)
    table = np.array([data.draw(st.permutations(range(entries + 2)))[:entries]])
    slots = table[0][np.arange(length) // page] * page + np.arange(length) % page
    k, v = (Stream(seed).normal((length, g, d), "f16") for seed in (1, 2))
    shape = {"pages": entries + 2, "g": g, "d": d, "page": page}
    caches = {f"{name}_cache": place(np.zeros(cache_shape(name, shape, x), np.float16)).view for name in "kv"}
    k_cache, v_cache = run(k=k, v=v, slots=slots, **caches)
    got = layout.unpack_classic(k_cache, v_cache, [length], table)
    assert all(np.array_equal(one, other) for one, other in zip(got, (k, v), strict=True))


KNOWN = [  # cache, scale, value, the pattern: limits saturate, ties go to even, nothing is rounded toward zero
    ("e4m3", 1.0, 447.0, 0x7E), ("e4m3", 1.0, 449.0, 0x7E), ("e4m3", 1.0, -1e6, 0xFE), ("e4m3", 1.0, np.inf, 0x7E),
    ("e4m3", 1.0, np.nan, 0x7F), ("e4m3", 2.0, 2 * 2.7, 0x43), ("e4m3", 2.0, 2 * 2.6, 0x42), ("e4m3", 0.5, 0.5 * 1e-3, 0x01),
    ("e4m3", 1.0, 2.0**-10, 0x00), ("e4m3", 1.0, -(2.0**-10), 0x80), ("e4m3", 1.0, 1.0625, 0x38), ("e4m3", 1.0, 1.1875, 0x3A),
    ("e5m2", 1.0, 57345.0, 0x7B), ("e5m2", 1.0, -np.inf, 0xFB), ("e5m2", 1.0, np.nan, 0x7F), ("e5m2", 2.0, 2 * 2.8, 0x42),
    ("e5m2", 0.5, 0.5 * 2.0**-16, 0x01), ("e5m2", 1.0, 1.125, 0x3C), ("e5m2", 1.0, 1.375, 0x3E),
]  # fmt: skip


@pytest.mark.parametrize(("cache", "scale", "value", "bits"), KNOWN)
def test_fp8_of_known_values(cache: str, scale: float, value: float, bits: int) -> None:
    """Patterns worked out by hand. The scale of V is four times that of K, and so are its values."""
    shape = {"pages": 1, "g": 1, "d": 16, "page": 1}
    rows = np.full((1, 1, 16), value, np.float32)
    caches = {f"{name}_cache": place(np.zeros(cache_shape(name, shape, 16), DTYPES[cache][0])).view for name in "kv"}
    scales = {"k_scale": np.float32([scale]), "v_scale": np.float32([scale * 4])}
    k, v = run(k=rows, v=rows * np.float32(4), slots=np.array([0]), **scales, **caches)
    assert k.view(np.uint8).ravel().tolist() == [bits] * 16
    assert v.view(np.uint8).ravel().tolist() == [bits] * 16


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16 f16", 2, 16, 8, [3, 0, -1, 23, 9])), **changed}


def good_fp8(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16 e4m3", 2, 16, 8, [3, 0, -1, 23, 9])), **changed}


F16, BF16, E4M3 = np.dtype(np.float16), DTYPES["bf16"][0], DTYPES["e4m3"][0]
TWELVE = {name: sentinel((5, 2, 12), F16) for name in "kv"}
TWENTY_FOUR = {name: sentinel((5, 2, 24), F16) for name in "kv"}
APART = np.lib.stride_tricks.as_strided(np.zeros(4000, F16), (3, 2, 2, 8, 8), (600, 264, 128, 16, 2))
BAD: list[cache_write.Bad] = [
    *cache_write.bad_input(good, good_fp8),
    ("head-of-12", good(**TWELVE, v_cache=sentinel((3, 2, 12, 8), F16)), ValueError, ("k: axis d", "got 12", "multiple of 8", "f16")),
    ("head-of-24-for-fp8", good_fp8(**TWENTY_FOUR, k_cache=sentinel((3, 2, 1, 8, 16), E4M3), v_cache=sentinel((3, 2, 24, 8), E4M3)),
     ValueError, ("k: axis d", "got 24", "multiple of 16", "e4m3")),
    ("x-of-f16-for-fp8", good_fp8(k_cache=sentinel((3, 2, 2, 8, 8), E4M3)), ValueError, ("k_cache", "axis x", "got 8", "expected 16")),
    ("k-cache-of-heads-of-24", good(k_cache=sentinel((3, 2, 3, 8, 8), F16)), ValueError, ("k_cache", "axis d/x", "got 3", "16/8")),
    ("v-cache-of-heads-of-24", good(v_cache=sentinel((3, 2, 24, 8), F16)), ValueError, ("v_cache", "axis d", "got 24", "expected 16")),
    ("v-cache-of-4-pages", good(v_cache=sentinel((4, 2, 16, 8), F16)), ValueError, ("v_cache", "axis pages", "got 4", "from k_cache")),
    ("v-cache-of-pages-of-16", good(v_cache=sentinel((3, 2, 16, 16), F16)), ValueError, ("v_cache", "axis page", "got 16", "expected 8")),
    ("v-cache-of-bf16", good(v_cache=sentinel((3, 2, 16, 8), BF16)), TypeError, ("v_cache", "got bf16", "expected f16 (from k_cache)")),
    ("caches-of-bf16", good(k_cache=sentinel((3, 2, 2, 8, 8), BF16), v_cache=sentinel((3, 2, 16, 8), BF16)), TypeError,
     ("k_cache", "got bf16", "expected f16 (from k) or e4m3 or e5m2")),
    ("no-heads", good(k=sentinel((5, 0, 16), F16), v=sentinel((5, 0, 16), F16), k_cache=sentinel((3, 0, 2, 8, 8), F16),
                      v_cache=sentinel((3, 0, 16, 8), F16)), ValueError, ("k: axis g", "got 0", "at least 1")),
    ("pages-of-0", good(k_cache=sentinel((3, 2, 2, 0, 8), F16), v_cache=sentinel((3, 2, 16, 0), F16)), ValueError, ("axis page", "got 0")),
    ("k-cache-misaligned", good(k_cache=sentinel((3, 2, 2, 8, 8), F16, offset=4)), ValueError, ("k_cache", "8 bytes past a multiple of")),
    ("k-cache-not-dense", good(k_cache=sentinel((3, 2, 2, 8, 8), F16, pad={4: 4})), ValueError, ("k_cache", "axis page", "16")),
    ("k-cache-heads-misaligned", good(k_cache=APART), ValueError, ("k_cache", "multiple of 16")),
    ("v-cache-not-dense", good(v_cache=sentinel((3, 2, 16, 8), F16, pad={3: 1})), ValueError, ("v_cache", "axis d", "18", "expected 16")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in cache_write.bad_memory()], ids=[bad[0] for bad in cache_write.bad_memory()])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_a_grid_beyond_its_limit_is_refused() -> None:
    """Without memory: all rows are one row."""
    strided = np.lib.stride_tricks.as_strided
    row, slots = strided(np.zeros((1, 2, 16), F16), (2**37, 2, 16), (0, 32, 2)), strided(np.zeros(1, np.int64), (2**37,), (8,))
    caches = cases.views({name: value for name, value in good().items() if "cache" in name})
    with pytest.raises(ValueError, match=f"reshape_and_cache: slots: axis m: got {2**37}, expected at most {(2**31 - 1) * 32}"):
        SPEC.bind({"k": row, "v": row, "slots": slots, **caches})
