"""pyref.layout: contiguous K and V into paged caches by a block table, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import layout
from pyref.spec import DTYPES
from tools.compare import bits
from tools.data import Stream

FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2", "u8")
PACK = {"classic": layout.pack_classic, "nhd": layout.pack_nhd}
UNPACK = {"classic": layout.unpack_classic, "nhd": layout.unpack_nhd}
both = pytest.mark.parametrize("kind", PACK)


def rows(tokens: int, g: int, d: int, dtype: str = "f16", seed: int = 0) -> np.ndarray:
    """Rows of any bits, NaN payloads too."""
    storage = DTYPES[dtype][0]
    count = tokens * g * d
    return Stream(seed).words(count).view(np.uint8)[: count * storage.itemsize].view(storage).reshape(tokens, g, d)


def element(kind: str, cache: np.ndarray, what: str, page: int, slot: int, g: int, i: int) -> Any:
    """Element i of head g of the token in a slot, by the layout's definition."""
    if kind == "nhd":
        return bits(cache)[page, slot, g, i]
    x = 16 // cache.itemsize
    return bits(cache)[page, g, i // x, slot, i % x] if what == "k" else bits(cache)[page, g, i, slot]


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_element_lies_where_the_layout_says(kind: str, dtype: str) -> None:
    g, d, page, lengths, table = 2, 16, 4, [5, 0, 9], [[6, 1, 0], [9, 9, 9], [3, 7, 2]]
    k, v = rows(14, g, d, dtype, 1), rows(14, g, d, dtype, 2)
    caches = PACK[kind](k, v, lengths, table, page=page, pages=8)
    token = 0
    for n, length in enumerate(lengths):
        for t in range(length):
            for what, cache, source in (("k", caches[0], k), ("v", caches[1], v)):
                for head in range(g):
                    for i in range(d):
                        assert element(kind, cache, what, table[n][t // page], t % page, head, i) == bits(source)[token, head, i]
            token += 1


@both
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_unpack_is_the_inverse_and_the_rest_stays(kind: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    page, g = data.draw(st.sampled_from([1, 2, 8, 16])), data.draw(st.integers(1, 3))
    d = data.draw(st.integers(1, 3)) * (16 if kind == "classic" else 5)
    lengths = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
    width = max(-(-length // page) for length in lengths) + 1
    pages = len(lengths) * width
    table = np.array(data.draw(st.permutations(range(pages)))).reshape(len(lengths), width)
    tokens = sum(lengths)
    k, v = rows(tokens, g, d, dtype, 3), rows(tokens, g, d, dtype, 4)
    caches = PACK[kind](k, v, lengths, table, page=page, pages=pages, poison=0xA5)
    back = UNPACK[kind](*caches, lengths, table)
    for got, expected in zip(back, (k, v), strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(bits(got), bits(expected))
    others = PACK[kind](k, v, lengths, table, page=page, pages=pages, poison=0x5A)
    for cache, other in zip(caches, others, strict=True):
        written = bits(cache).view(np.uint8) == bits(other).view(np.uint8)
        assert written.sum() == tokens * g * d * cache.itemsize
        assert (bits(cache).view(np.uint8)[~written] == 0xA5).all()


@both
def test_given_caches_keep_their_other_slots(kind: str) -> None:
    """Also where the caches are views with strides of their own: pages padded, and K and V in one pool."""
    k, v = rows(5, 2, 8, seed=5), rows(5, 2, 8, seed=6)
    shapes = ((6, 2, 1, 4, 8), (6, 2, 8, 4)) if kind == "classic" else ((6, 4, 2, 8),) * 2
    fresh = PACK[kind](k, v, [5], [[4, 1]], page=4, pages=6, poison=0x3C)
    pool = np.full((6, 2, 80), 0x3C3C, np.uint16).view(np.float16)
    caches = [pool[:, side, :64].reshape(shape) for side, shape in enumerate(shapes)]
    assert all(np.shares_memory(cache, pool) for cache in caches)
    got = PACK[kind](k, v, [5], [[4, 1]], k_cache=caches[0], v_cache=caches[1])
    assert all(a is b for a, b in zip(got, caches, strict=True))
    for cache, expected in zip(caches, fresh, strict=True):
        assert np.array_equal(bits(cache), bits(expected))
    assert (bits(pool)[:, :, 64:] == 0x3C3C).all()


@both
def test_pages_may_be_shared_by_equal_prefixes(kind: str) -> None:
    shared, own = rows(4, 1, 8, seed=7), rows(3, 1, 8, seed=8)
    k = np.concatenate([shared, own[:1], shared, own[1:]])
    caches = PACK[kind](k, k, [5, 6], [[2, 0], [2, 1]], page=4, pages=3)
    assert np.array_equal(bits(UNPACK[kind](*caches, [5, 6], [[2, 0], [2, 1]])[0]), bits(k))


@both
def test_a_repeated_page_is_read_twice(kind: str) -> None:
    k = rows(4, 1, 8)
    caches = PACK[kind](k, k, [4], [[3]], page=4, pages=4)
    assert np.array_equal(bits(UNPACK[kind](*caches, [8], [[3, 3]])[0]), bits(np.concatenate([k, k])))


@both
def test_nothing_to_pack(kind: str) -> None:
    none = rows(0, 2, 8)
    caches = PACK[kind](none, none, [], np.zeros((0, 3), np.int32), page=4, pages=2)
    assert all((cache.view(np.uint8) == 0xFF).all() for cache in caches)
    assert UNPACK[kind](*caches, [0, 0], [[], []])[0].shape == (0, 2, 8)


K = rows(6, 2, 8)
GOOD = {"k": K, "v": K, "lengths": [6], "block_table": [[1, 0]], "page": 4, "pages": 2}
BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [  # the texts that the error must have, separated by semicolons
    ("length-beyond-table", {"lengths": [9], "k": rows(9, 2, 8), "v": rows(9, 2, 8)}, ValueError, "lengths; sequence 0; got 9; at most 8"),
    ("negative-length", {"lengths": [7, -1], "block_table": [[1, 0]] * 2}, ValueError, "lengths; sequence 1; got -1; at least 0"),
    ("sum-of-lengths", {"lengths": [5]}, ValueError, "k; axis tokens; got 6; expected 5"),
    ("page-at-the-end", {"block_table": [[1, 2]]}, ValueError, "block_table; sequence 0, entry 1; got page 2; 0 to 1"),
    ("page-minus-1", {"block_table": [[-1, 0]]}, ValueError, "block_table; sequence 0, entry 0; got page -1; 0 to 1"),
    ("page-twice", {"block_table": [[1, 1]]}, ValueError, "block_table; tokens 0 and 4; page 1, slot 0; the same bits"),
    ("table-rows", {"block_table": [[1, 0], [0, 1]]}, ValueError, "block_table; axis n; got 2; expected 1"),
    ("table-of-1-axis", {"block_table": [1, 0]}, ValueError, "block_table; got 1 axes; expected 2"),
    ("table-of-floats", {"block_table": [[1.0, 0.0]]}, TypeError, "block_table; got float64; integers"),
    ("lengths-of-floats", {"lengths": [6.0]}, TypeError, "lengths; got float64; integers"),
    ("v-shape", {"v": rows(6, 1, 8)}, ValueError, "v; got (6, 1, 8); expected (6, 2, 8)"),
    ("v-dtype", {"v": rows(6, 2, 8, "f32")}, TypeError, "v; got float32; expected float16"),
    ("k-of-2-axes", {"k": K[0], "v": K[0]}, ValueError, "k; got 2 axes; tokens, g, d"),
    ("no-page", {"page": None}, ValueError, "no caches; page and pages"),
    ("page-0", {"page": 0}, ValueError, "page 0; at least 1"),
    ("poison", {"poison": 256}, ValueError, "poison; got 256"),
    ("one-cache", {"k_cache": np.zeros((2, 4, 2, 8), np.float16)}, ValueError, "one of k_cache and v_cache"),
]


@both
@pytest.mark.parametrize(("changed", "kind_of_error", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(kind: str, changed: dict[str, Any], kind_of_error: type[Exception], texts: str) -> None:
    with pytest.raises(kind_of_error) as caught:
        PACK[kind](**{**GOOD, **changed})
    for text in ("layout", *texts.split("; ")):
        assert text in str(caught.value)


CLASSIC = ((2, 2, 1, 4, 8), (2, 2, 8, 4))
CACHES: list[tuple[str, Callable[..., Any], tuple[Any, Any], type[Exception], str]] = [
    ("classic-k-x", layout.pack_classic, ((2, 2, 2, 4, 4), CLASSIC[1]), ValueError, "k_cache; axis 2; got 2; expected 1"),
    ("classic-v-d", layout.pack_classic, (CLASSIC[0], (2, 2, 4, 8)), ValueError, "v_cache; axis 2; got 4; expected 8"),
    ("classic-v-pages", layout.pack_classic, (CLASSIC[0], (3, 2, 8, 4)), ValueError, "v_cache; axis 0; got 3; expected 2"),
    ("classic-axes", layout.pack_classic, ((2, 4, 2, 8), (2, 4, 2, 8)), ValueError, "k_cache; got 4 axes; 5 axes"),
    ("nhd-heads", layout.pack_nhd, ((2, 4, 2, 8), (2, 4, 1, 8)), ValueError, "v_cache; axis 2; got 1; expected 2"),
    ("nhd-page", layout.pack_nhd, ((2, 8, 2, 8), (2, 8, 2, 8)), ValueError, "page; got 4; expected 8 (from k_cache)"),
]


@pytest.mark.parametrize(("pack", "shapes", "kind_of_error", "texts"), [bad[1:] for bad in CACHES], ids=[bad[0] for bad in CACHES])
def test_bad_caches_are_refused_unchanged(
    pack: Callable[..., Any], shapes: tuple[Any, Any], kind_of_error: type[Exception], texts: str
) -> None:
    caches = [np.full(shape, 7, np.float16) for shape in shapes]
    with pytest.raises(kind_of_error) as caught:
        pack(**GOOD, k_cache=caches[0], v_cache=caches[1])
    for text in ("layout", *texts.split("; ")):
        assert text in str(caught.value)
    assert all((cache == 7).all() for cache in caches)


@both
def test_dtype_and_read_only_caches_are_refused_unchanged(kind: str) -> None:
    fresh = [np.full_like(cache, 7) for cache in PACK[kind](**GOOD)]
    other = [fresh[0], fresh[1].astype(np.float32)]
    locked = [fresh[0], fresh[1].copy()]
    locked[1].flags.writeable = False
    for caches, error, text in (
        (other, TypeError, "v_cache: got float32, expected float16"),
        (locked, ValueError, "v_cache: got a read-only"),
    ):
        with pytest.raises(error, match=text):
            PACK[kind](**GOOD, k_cache=caches[0], v_cache=caches[1])
        assert all((cache == 7).all() for cache in caches)


def test_the_classic_layout_needs_whole_vectors() -> None:
    with pytest.raises(ValueError, match="k: axis d: got 12, expected a multiple of 8"):
        layout.pack_classic(rows(1, 1, 12), rows(1, 1, 12), [1], [[0]], page=4, pages=1)
    caches = layout.pack_nhd(rows(1, 1, 12), rows(1, 1, 12), [1], [[0]], page=4, pages=1)
    assert caches[0].shape == (1, 4, 1, 12)


def test_unpack_refuses_what_pack_refuses() -> None:
    caches = layout.pack_classic(**GOOD)
    for arguments, text in (
        (([9], [[1, 0]]), "lengths: sequence 0: got 9"),
        (([6], [[1, 2]]), "got page 2"),
        (([6], [[0, -1]]), "got page -1"),
    ):
        with pytest.raises(ValueError, match=text):
            layout.unpack_classic(*caches, *arguments)
    with pytest.raises(ValueError, match="v_cache: axis 2: got 4, expected 8"):
        layout.unpack_classic(caches[0], caches[1][:, :, :4], [6], [[1, 0]])
    with pytest.raises(TypeError, match="v_cache: got float32"):
        layout.unpack_classic(caches[0], caches[1].astype(np.float32), [6], [[1, 0]])
