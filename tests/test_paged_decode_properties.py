"""What paged_decode promises beyond equal legs (C13): no trace of shares, layout, page size and batch; what sinks and windows are."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from kernels_cu import build
from pyref import contract, paged_decode
from pyref.cache_types import FP8
from pyref.decode_spec import SEARCHED, SPAN, TILE, choose_split, spans
from tests import harness
from tests.decode_cases import CASES
from tests.decode_inputs import LAYOUTS, case, derived, inputs
from tools import cases, compare, legs, verify
from tools.arena import Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "paged_decode"
BY_ID = {case.id: case for case in CASES}
ORDERS = ("host", "host reverse", "host shuffle:5")
PLAIN = {"lens": (700, 0, 130, 35)}
EVERYTHING = {"lens": (700, 0, 130, 35), "slopes": "classic", "cap": 3.0, "window": 600, "sinks": "mixed"}
both = pytest.mark.parametrize("rest", [PLAIN, EVERYTHING], ids=["plain", "everything"])


def variant(found: Case, **changed: Any) -> Case:
    """A case with the same tokens in other surroundings."""
    shape = {**found.shape, **changed}
    return dataclasses.replace(found, shape={**shape, **derived(shape)})


def runners(*names: str) -> list[str]:
    """Those of the legs that run here; the definition always does."""
    return ["ref", *(name for name in names or ("host",) if not legs.leg(name).missing())]


def results(found: Case, leg: str = "ref") -> dict[str, np.ndarray]:
    """Outputs of a case on a leg."""
    return harness.compute(STEM, inputs(found), leg)


def assert_same(got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], what: object = "") -> None:
    """Every output has the same bytes."""
    assert set(got) == set(expected)
    for name, values in got.items():
        assert compare.difference(name, values, expected[name]) is None, what


# -- shares, layouts, pages --


@both
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_page_size_and_share_play_no_part(layout: str, rest: dict[str, Any]) -> None:
    base = case("surroundings", "", split=0, **rest)
    expected = results(base)
    for page in (1, 2, 4, 8, 16, 32, 64, 128, 256) if layout == "classic" else (1, 16, 256):
        for split in (0, 1, 2):
            other = variant(base, layout=layout, page=page, split=split, warps=split)
            for leg in runners() if split != 1 else runners(*ORDERS):
                assert_same(results(other, leg), expected, (page, split, leg))


SHARED = [
    case("many-spans", "", h=1, d=8, lens=(5500, 1025)),
    case("gqa", "", "bf16", h=4, g=1, d=128, lens=(1100, 640)),
    case("window", "", h=2, lens=(2100, 900), window=1300, sinks="mixed"),
    case("fp8", "", "bf16", cache="e5m2", scales=(0.7, 1.3), lens=(1100, 3)),
]


@harness.each(SHARED)
def test_every_share_gives_the_same_bytes(case: Case) -> None:
    expected = results(case)
    longest = max(case.shape["lens"])
    for split, leg in itertools.product((*range(spans(longest) + 2), -1, -2, -3, -9), runners(*ORDERS)):
        for warps in (1, 2) if split > 0 else (0,):
            assert_same(results(variant(case, split=split, warps=warps), leg), expected, (split, warps, leg))


def test_the_launcher_chooses_among_shares_that_exist() -> None:
    rows_of, lengths = (1, 2, 8, 32, 100, 528, 1000, 5000, 10**6), (0, 1, 128, 129, 513, 1024, 4096, 65536, 10**6)
    for rows, longest, group in itertools.product(rows_of, lengths, (1, 4, 9)):
        split = choose_split(rows, 1, longest, group)
        assert split < 0 or split <= max(1, spans(longest))
        assert rows > SEARCHED or split == choose_split(1, rows, longest, group), "sequences and kv heads count alike"


CHOICES = [
    ((1, 8, 1024, 4), 0, "few rows: a tile a block"),
    ((128, 1, 128, 8), 0, "rows of one tile: that block needs no second kernel"),
    ((4, 8, 256, 4), 0, "128 blocks of two heads"),
    ((8, 8, 256, 4), 1, "more than multiprocessors: the whole row a block"),
    ((2, 32, 256, 1), 1, "one head: the whole row at once"), ((1, 4, 256, 1), 1, "however few"), ((1, 4, 256, 2), 1, "two heads likewise"),
    ((22, 1, 256, 5), 0, "132 blocks of two heads, one of them of one head"), ((23, 1, 256, 5), 1, "138 of them"),
    ((33, 1, 512, 4), 0, "132 tiles"), ((34, 1, 512, 4), 1, "136"),
    ((2, 8, 1024, 8), 0, "rows of two spans: tiles, however many heads"),
    ((132, 1, 1024, 1), 2, "132 rows of two spans"), ((133, 1, 1024, 1), 1, "133"),
    ((66, 1, 1024, 1), 1, "132 spans"), ((67, 1, 1024, 1), 2, "134"),
    ((4, 8, 512, 4), 0, "128 blocks of four heads"), ((3, 8, 512, 8), 1, "192 of them"),
    ((16, 8, 1024, 4), 2, "a row of two spans a block, where spans would be more blocks than multiprocessors"),
    ((8, 8, 1024, 4), 1, "where they are not"), ((17, 8, 1024, 4), 1, "where even rows are more"),
    ((16, 8, 4096, 4), 2, "blocks that fill the GPU"),
    ((256, 8, 4096, 4), 8, "many short rows: a block each"),
    ((256, 8, 8192, 4), -528, "many rows that may be long: balanced"),
    ((SEARCHED, 1, 8192, 4), -528, "the last that is searched"),
    ((SEARCHED + 1, 1, 8192, 4), 16, "blocks times sequences would grow as their square: a row a block"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "split"), [choice[:2] for choice in CHOICES], ids=[choice[2] for choice in CHOICES])
def test_what_the_launcher_chooses(call: tuple[int, int, int, int], split: int) -> None:
    assert choose_split(*call) == split


def test_the_launcher_knows_the_device() -> None:
    assert choose_split(64, 8, 2048, 4, multiprocessors=10**6) == 0


@pytest.mark.parametrize(("n", "h", "g", "longest"), [(5, 8, 8, 256), (3, 64, 8, 256), (SEARCHED + 1, 2, 1, 8192), (2, 64, 8, 1024)])
def test_a_call_without_a_split_takes_the_launcher_s(n: int, h: int, g: int, longest: int) -> None:
    arguments = inputs(case("default", "", h=h, g=g, d=8, n=n, lens={0: 1}, columns=longest // 16, max_seq_len=longest))
    call = paged_decode.SPEC.bind(cases.views(arguments))
    assert call["split"] == choose_split(n, g, longest, h // g)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_120"])
def test_every_device_has_room(arch: str) -> None:
    """Blocks of a GPU have 64 to 227 KiB of shared memory, and 46 to 132 multiprocessors to be alone on: no mapping asks for more."""
    if missing := legs.leg("host").missing():
        pytest.skip(missing)
    for d, group in ((128, 8), (64, 1), *([(256, 1)] if arch != "sm_75" else [])):  # beyond 128 dimensions a block needs 88 KiB
        base = case("devices", "", h=group, d=d, lens=(1100, 3))
        expected = results(base)
        for split, warps in ((0, 0), (1, 0), (1, 1), (1, 2), (2, 2)):
            arguments = inputs(variant(base, split=split, warps=warps))
            call = paged_decode.SPEC.bind(cases.views(arguments))
            library = build.load(build.host_library(call.kernel, call.constants()))
            assert library.samebits_set_arch(arch.encode()) == 0
            try:
                legs.Host().launch(library, call)
            finally:
                library.samebits_set_arch(b"sm_90")
            assert_same({name: arguments[name].view for name in expected}, expected, (arch, d, split, warps))


@pytest.mark.parametrize(("split", "warps", "order"), [(*share, order) for share in ((0, 0), (1, 1), (1, 2), (-3, 0)) for order in ORDERS])
def test_the_workspace_serves_the_next_launch(split: int, warps: int, order: str) -> None:
    """The workspace needs no preparation: what a launch leaves in it serves another one, whatever its lengths."""
    if legs.leg(order).missing():
        pytest.skip(legs.leg(order).missing() or "")
    held: dict[str, Any] = {}
    for lens in ((1100, 300, 0), (20, 1025, 513), (0, 129, 1100)):
        arguments = {**inputs(case("launch", "", lens=lens, columns=70 - -(-max(lens) // 16), split=split, warps=warps)), **held}
        after, declined, _ = verify.run_leg(STEM, legs.leg(order), arguments)
        assert after is not None, declined
        expected = harness.compute(STEM, arguments)
        assert_same({name: after[name].view for name in expected}, expected, lens)
        held = {name: after[name] for name in ("part_a", "part_l", "part_m")}


# -- fp8 caches --


@pytest.mark.parametrize("cache", FP8)
def test_fp8_caches_give_the_bytes_of_their_dequantised_values(cache: str) -> None:
    """C11: dequantised values stay in binary32, so that caches of f32 that hold them give the same bytes."""
    before = inputs(case("fp8", "", "f32", cache=cache, h=4, g=2, scales=([0.3, 1.7], [2.1, 0.013]), lens=(140, 3)))
    k, v, k_scale, v_scale = (before[name].view for name in ("k_cache", "v_cache", "k_scale", "v_scale"))
    pages, g, d, page = v.shape
    slots = contract.dequantize(k, k_scale[:, None, None, None]).swapaxes(2, 3).reshape(pages, g, page, d)
    wide = {
        "k_cache": place(slots.reshape(pages, g, page, d // 4, 4).swapaxes(2, 3)),
        "v_cache": place(contract.dequantize(v, v_scale[:, None, None])),
    }
    others = {name: value for name, value in before.items() if name not in ("k_scale", "v_scale")}
    assert_same(harness.compute(STEM, {**others, **wide}), harness.compute(STEM, before))


# -- pages, batch, what must not be read --

MIXED = [
    *(BY_ID[f"{t}-classic-around-a-span-split{split}"] for t in ("f16", "bf16", "f32") for split in (0, 1)),
    BY_ID["f16-nhd-third-span-split0"],
    BY_ID["f16-classic-all-split0"],
    BY_ID["bf16-hnd-all-split1"],
    BY_ID["bf16-d256-page256-group5-classic-tile"],
    BY_ID["pages-of-256-split0"],
    BY_ID["f16-e4m3-nhd-head-scales-split0"],
]


@harness.each(MIXED)
def test_the_place_of_pages_plays_no_part(case: Case) -> None:
    before = inputs(case)
    pages = len(before["k_cache"].view)
    order = np.roll(np.arange(pages)[::-1], 1)  # page i moves to order[i]
    table = before["block_tables"].view
    moved = {**before, "block_tables": place(np.where(table >= 0, order[table], table).astype(np.int32))}
    for name in ("k_cache", "v_cache"):
        copy = before[name].copy()
        copy.view[order] = before[name].view
        moved[name] = copy
    for leg in runners():
        assert_same(harness.compute(STEM, moved, leg), harness.compute(STEM, before))


def of_rows(before: Mapping[str, Any], rows: list[int]) -> dict[str, Any]:
    """The arguments for a batch of some of the sequences, with a workspace and a share of its own."""
    some = {name: value for name, value in before.items() if name not in ("part_a", "part_l", "part_m", "split")}
    some |= {name: place(before[name].view[rows]) for name in ("q", "block_tables", "seq_lens")}
    for name in ("out", "lse"):
        if name in before:
            some[name] = sentinel((len(rows), *before[name].view.shape[1:]), before[name].view.dtype)
    return some


@harness.each(MIXED)
def test_the_batch_around_a_sequence_plays_no_part(case: Case) -> None:
    before = inputs(case)
    whole = harness.compute(STEM, before)
    count = len(before["seq_lens"].view)
    for rows in ([count - 1], [0], list(range(count))[::-1], [0, count - 1, 0, count - 1, count - 1]):
        some = of_rows(before, rows)
        for leg in runners():
            assert_same(harness.compute(STEM, some, leg), {name: values[rows] for name, values in whole.items()}, (rows, leg))


@pytest.mark.parametrize("count", [1, 2, 255, 300, 1024])
def test_batches_of_any_size(count: int) -> None:
    """The launcher shares out large batches in another way than small ones."""
    before = inputs(case("batches", "", h=1, d=8, lens=(1100, 513, 130, 1, 0, 640)))
    rows = [(5 * i) % 6 for i in range(count)]
    whole = harness.compute(STEM, before)
    for leg in runners() if count < 3 else runners()[1:] or ["ref"]:
        got = harness.compute(STEM, of_rows(before, rows), leg)
        assert_same(got, {name: values[rows] for name, values in whole.items()}, (count, leg))


def unpoisoned(region: Region) -> Region:
    """The same array with every NaN of poison set to zero."""
    copy = region.copy()
    storage = copy.view.view(f"u{copy.view.itemsize}")
    poison = storage == np.iinfo(storage.dtype).max
    assert poison.any()
    storage[poison] = 0
    return copy


@harness.each(MIXED)
def test_what_must_not_be_read_plays_no_part(case: Case) -> None:
    before = inputs(case)
    clean = {**before, "block_tables": place(np.maximum(before["block_tables"].view, 0))}
    clean |= {name: unpoisoned(before[name]) for name in ("k_cache", "v_cache")}
    for leg in runners():
        assert_same(harness.compute(STEM, clean, leg), harness.compute(STEM, before))


# -- sinks and windows --


def tokens_of(k: np.ndarray, v: np.ndarray, q: np.ndarray, lens: Iterable[int], **numbers: Any) -> dict[str, Any]:
    """Arguments over tokens k and v [tokens, g, d], one page a tile, in order."""
    lens = list(lens)
    page, d = TILE, k.shape[2]
    counts = [-(-length // page) for length in lens]
    table = np.full((len(lens), max(counts)), -1, np.int32)
    caches = np.full((2, sum(counts), page, *k.shape[1:]), np.nan, k.dtype)
    first = at = 0
    for n, (length, count) in enumerate(zip(lens, counts, strict=True)):
        table[n, :count] = np.arange(first, first + count)
        for cache, values in zip(caches, (k, v), strict=True):
            cache[first : first + count].reshape(count * page, *k.shape[1:])[:length] = values[at : at + length]
        first, at = first + count, at + length
    views = paged_decode.cache_views("NHD", *caches)
    found = {"q": q, **views, "block_tables": table, "seq_lens": np.array(lens, np.int32), "scale": d**-0.5}
    return {**found, "lse": np.zeros(q.shape[:2], np.float32), **numbers}


def normal(seed: int, *shape: int, dtype: str = "f16") -> np.ndarray:
    return Stream(seed).normal(shape, dtype)


@pytest.mark.parametrize("length", [512, 1024, 1536])
def test_a_sink_is_one_more_span(length: int) -> None:
    """After whole spans, a token with V of 0 and the sink's logit makes a span of its own with the same state."""
    sinks = np.float32([0.5, -1.25, 4.0, -7.5])
    q, k, v = (normal(i, *size) for i, size in enumerate(((1, 4, 64), (length + 1, 1, 64), (length + 1, 1, 64))))
    q[0, :, 0] = sinks  # scale 1 and k = e_0 make the dot product the sink
    k[length], v[length] = 0, 0
    k[length, :, 0] = 1
    longer = paged_decode.run(**tokens_of(k, v, q, [length + 1], scale=1.0))
    with_sink = paged_decode.run(**tokens_of(k[:length], v[:length], q, [length], scale=1.0, sinks=sinks))
    for name, got, expected in zip(("out", "lse"), with_sink, longer, strict=True):
        assert compare.difference(name, got, expected) is None


def suffix(length: int, window: int) -> tuple[Any, Any]:
    """(out, lse) of a window, and of the window's tokens as a sequence of their own."""
    q, k, v = (normal(i, *size, dtype="f32") for i, size in enumerate(((1, 2, 64), (length, 1, 64), (length, 1, 64))))
    slopes = np.float32([0.01, -0.02])
    whole = paged_decode.run(**tokens_of(k, v, q, [length], window=window, alibi_slopes=slopes))
    return whole, paged_decode.run(**tokens_of(k[-window:], v[-window:], q, [window], alibi_slopes=slopes))


@pytest.mark.parametrize(("length", "start"), [(1200, 512), (1200, 1024), (513, 512), (500, 128), (512, 384), (1200, 896)])
def test_a_window_that_begins_with_a_tile_is_a_sequence_of_its_own(length: int, start: int) -> None:
    """C13 counts tiles and spans from token 0: where those of the window's tokens alone coincide, so do the bytes."""
    kept = {(t // TILE, t // (TILE * SPAN)) for t in range(start, length)}
    alone = {((t + start) // TILE, start // (TILE * SPAN) + t // (TILE * SPAN)) for t in range(length - start)}
    whole, own = suffix(length, length - start)
    if kept == alone:
        for name, got, expected in zip(("out", "lse"), whole, own, strict=True):
            assert compare.difference(name, got, expected) is None
    else:
        assert (length, start) == (1200, 896), "tiles coincide, spans do not"
        assert any(compare.difference(name, got, expected) for name, got, expected in zip(("out", "lse"), whole, own, strict=True))


def test_a_window_that_begins_inside_a_tile_has_sums_of_its_own() -> None:
    whole, own = suffix(700, 300)
    assert compare.difference("out", whole[0], own[0]) is not None
    assert np.abs(whole[0] - own[0]).max() < 1e-5
