"""Bad input of paged_decode: every fault is an error that names it, before any buffer is touched. And offsets that 32 bits would cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyref import paged_decode
from pyref.spec import DTYPES
from tests import harness
from tests.decode_inputs import arranged, case, inputs
from tests.sparse import sparse
from tools import cases, compare, legs
from tools.arena import Region, place, sentinel

STEM = "paged_decode"
F16, F32, BF16, E4M3, I32, I64 = (DTYPES[name][0] for name in ("f16", "f32", "bf16", "e4m3", "i32", "i64"))
GOOD = case("good", "what the bad input is made of", h=4, g=2, d=32, page=8, lens=(9, 0, 16), split=0, slopes="classic", sinks="mixed")
PAGES, COLUMNS, LONGEST = 7, 3, 24
Change = dict[str, Any]
Bad = tuple[str, Change, type[Exception], str]  # the texts that the error must have, separated by semicolons


def zeros(*shape: int, dtype: np.dtype = F16, **layout: Any) -> Region:
    """A placed array of zeros."""
    return place(np.zeros(shape, dtype), **layout)


def repeated(shape: tuple[int, ...]) -> Region:
    """An output whose rows are one and the same."""
    one = sentinel((1, *shape[1:]), F16)
    return Region(one.buffer, np.ndarray(shape, F16, one.buffer, one.offset, (0, *one.view.strides[1:])))


def misplaced(shape: tuple[int, ...], *strides: int) -> Region:
    """An array with these strides in bytes."""
    buffer = zeros(2 * int(np.prod(shape))).buffer
    return Region(buffer, np.ndarray(shape, F16, buffer, 16384, strides))


NEEDED = ("q", "k_cache", "v_cache", "block_tables", "seq_lens", "scale")
OUTPUTS = dict.fromkeys(("out", "lse", "part_a", "part_l", "part_m", "alibi_slopes", "sinks"))
K, V, SLOTS = (PAGES, 2, 4, 8, 8), (PAGES, 2, 32, 8), (PAGES, 8, 2, 32)
PART = (3, 4, 1)
ONE = zeros(1, dtype=F32)
FP8: Change = {"k_cache": zeros(PAGES, 2, 2, 8, 16, dtype=E4M3), "v_cache": zeros(*V, dtype=E4M3)}
BAD: list[Bad] = [
    # missing, unknown, of another kind
    *((f"without-{name}", {name: None}, TypeError, f"{name}; missing") for name in NEEDED),
    ("unknown", {"kv_scale": 1.0}, TypeError, "kv_scale; expected out, lse, q, k_cache"),
    ("scale2-given", {"scale2": 1.0}, TypeError, "scale2; computed"),
    ("scale-text", {"scale": "1"}, TypeError, "scale; got str; expected a number"),
    ("split-float", {"split": 1.0}, TypeError, "split; got float; expected an integer"),
    ("window-bool", {"window": True}, TypeError, "window; got bool; expected an integer"),
    ("cap-array", {"cap": np.zeros(1)}, TypeError, "cap; got ndarray; expected a number"),
    ("lengths-list", {"seq_lens": [9, 0, 16]}, TypeError, "seq_lens; got list; NumPy array"),
    # dtypes
    ("q-f64", {"q": zeros(3, 4, 32, dtype=np.dtype(float))}, TypeError, "q; got float64; expected f32 or f16 or bf16"),
    ("caches-other", {"k_cache": zeros(*K, dtype=BF16), "v_cache": zeros(*V, dtype=BF16)}, TypeError,
     "k_cache; got bf16; expected f16 (from q) or e4m3 or e5m2"),
    ("v-fp8", {"v_cache": sentinel(V, E4M3)}, TypeError, "v_cache; got e4m3; expected f16 (from k_cache)"),
    ("v-i32", {"v_cache": zeros(*V, dtype=I32)}, TypeError, "v_cache; got i32; expected f32 or f16 or bf16 or e4m3 or e5m2"),
    ("needless-scale", {"v_scale": zeros(1, dtype=F32)}, TypeError, "v_scale; got a scale; expected none; cache of f16"),
    ("fp8-without-scales", FP8, TypeError, "k_scale; missing; cache of e4m3"),
    ("fp8-without-v-scale", {**FP8, "k_scale": ONE}, TypeError, "v_scale; missing; cache of e4m3"),
    ("scale-f16", {**FP8, "k_scale": zeros(1), "v_scale": ONE}, TypeError, "k_scale; got f16; expected f32"),
    ("scales-of-3-heads", {**FP8, "k_scale": ONE, "v_scale": zeros(3, dtype=F32)}, ValueError, "v_scale; got 3; expected 1 or 2 (axis g)"),
    ("x-of-32-bytes", {**FP8, "k_cache": zeros(PAGES, 2, 1, 8, 32, dtype=E4M3), "k_scale": ONE, "v_scale": ONE}, ValueError,
     "k_cache; axis x; got 32; expected 16"),
    ("out-f32", {"out": sentinel((3, 4, 32), F32)}, TypeError, "q; got f16; expected f32 (from out)"),
    ("tables-i64", {"block_tables": zeros(3, COLUMNS, dtype=I64)}, TypeError, "block_tables; got i64; expected i32"),
    ("lengths-i64", {"seq_lens": zeros(3, dtype=I64)}, TypeError, "seq_lens; got i64; expected i32"),
    ("slopes-f16", {"alibi_slopes": zeros(4)}, TypeError, "alibi_slopes; got f16; expected f32"),
    ("sinks-bf16", {"sinks": zeros(4, dtype=BF16)}, TypeError, "sinks; got bf16; expected f32"),
    ("lse-f16", {"lse": sentinel((3, 4), F16)}, TypeError, "lse; got f16; expected f32"),
    ("part-a-f16", {"part_a": sentinel((*PART, 32), F16)}, TypeError, "part_a; got f16; expected f32"),
    # shapes
    ("q-rank", {"q": zeros(12, 32)}, ValueError, "q; got 2 axes; expected 3"),
    ("q-rows", {"q": zeros(4, 4, 32)}, ValueError, "q; axis n; got 4; expected 3 (from out)"),
    ("q-heads", {"q": zeros(3, 6, 32)}, ValueError, "q; axis h; got 6; expected 4 (from out)"),
    ("k-rank", {"k_cache": zeros(*SLOTS)}, ValueError, "k_cache; got 4 axes; expected 5"),
    ("k-head-size", {"k_cache": zeros(PAGES, 2, 5, 8, 8)}, ValueError, "k_cache; axis d/x; got 5; expected 32/8"),
    ("v-token-major", {"v_cache": zeros(*SLOTS)}, ValueError, "v_cache; axis g; got 8; expected 2 (from k_cache)"),
    ("v-head-size", {"v_cache": zeros(PAGES, 2, 40, 8)}, ValueError, "v_cache; axis d; got 40; expected 32 (from out)"),
    ("v-page", {"v_cache": zeros(PAGES, 2, 32, 16)}, ValueError, "v_cache; axis page; got 16; expected 8 (from k_cache)"),
    ("v-pages", {"v_cache": zeros(PAGES + 1, 2, 32, 8)}, ValueError, "v_cache; axis pages; got 8; expected 7 (from k_cache)"),
    ("tables-rows", {"block_tables": zeros(2, COLUMNS, dtype=I32)}, ValueError, "block_tables; axis n; got 2; expected 3"),
    ("lengths-rows", {"seq_lens": zeros(4, dtype=I32)}, ValueError, "seq_lens; axis n; got 4; expected 3"),
    ("slopes-heads", {"alibi_slopes": zeros(2, dtype=F32)}, ValueError, "alibi_slopes; axis h; got 2; expected 4"),
    ("sinks-heads", {"sinks": zeros(2, dtype=F32)}, ValueError, "sinks; axis h; got 2; expected 4"),
    ("lse-heads", {"lse": sentinel((3, 2), F32)}, ValueError, "lse; axis h; got 2; expected 4"),
    ("states-differ", {"part_l": zeros(3, 4, 2, dtype=F32)}, ValueError, "part_l; axis states; got 2; expected 1 (from part_a)"),
    # strides, addresses, memory
    ("q-not-dense", {"q": zeros(3, 4, 32, swap=(1, 2))}, ValueError, "q; axis d; stride of 8 bytes; expected 2"),
    ("out-not-dense", {"out": sentinel((3, 4, 32), F16, swap=(1, 2))}, ValueError, "out; axis d; stride of 8 bytes; expected 2"),
    ("k-x-not-dense", {"k_cache": zeros(*K, swap=(3, 4))}, ValueError, "k_cache; axis x; stride of 16 bytes; expected 2"),
    ("k-address", {"k_cache": zeros(*K, offset=1)}, ValueError, "k_cache; address 2 bytes; multiple of 16"),
    ("k-head-stride", {"k_cache": arranged("nhd", "k_cache", zeros(*SLOTS).view, {"pad": {3: 4}})}, ValueError,
     "k_cache; axis g; stride of 72 bytes; multiple of 16"),
    ("v-neither-dense", {"v_cache": misplaced(V, 2048, 1024, 32, 4)}, ValueError,
     "v_cache; strides of 4 bytes for axis page and 32 for axis d; expected 2"),
    ("v-address", {"v_cache": zeros(*V, offset=4)}, ValueError, "v_cache; address 8 bytes; multiple of 16; page is dense"),
    ("v-dimension-stride", {"v_cache": zeros(*V, pad={3: 4})}, ValueError, "v_cache; axis d; stride of 24 bytes; multiple of 16"),
    ("v-nhd-address", {"v_cache": arranged("nhd", "v_cache", zeros(*SLOTS).view, {"offset": 4})}, ValueError,
     "v_cache; address 8 bytes; multiple of 16; d is dense"),
    ("v-nhd-head-stride", {"v_cache": arranged("nhd", "v_cache", zeros(*SLOTS).view, {"pad": {3: 4}})}, ValueError,
     "v_cache; axis g; stride of 72 bytes; multiple of 16"),
    ("tables-not-dense", {"block_tables": zeros(3, COLUMNS, dtype=I32, swap=(0, 1))}, ValueError, "block_tables; axis max_pages; dense"),
    ("workspace-not-dense", {"part_l": zeros(*PART, dtype=F32, pad={1: 1})}, ValueError, "part_l; axis n; dense"),
    ("out-shares-rows", {"out": repeated((3, 4, 32))}, ValueError, "out; axis n; stride of 0 bytes; share memory"),
    # numbers
    ("longest-negative", {"max_seq_len": -1}, ValueError, f"max_seq_len; got -1; expected 0 to {LONGEST}"),
    ("longest-too-long", {"max_seq_len": 25}, ValueError, f"max_seq_len; got 25; expected 0 to {LONGEST}; max_pages 3; page 8"),
    ("split-below", {"split": -65536}, ValueError, "split; got -65536; expected 0; -65535"),
    ("split-enormous", {"split": 2**40}, ValueError, "split; got 1099511627776; 2147483647"),
    ("window-negative", {"window": -5}, ValueError, "window; got -5; expected 0 (none) or more"),
    ("cap-negative", {"cap": -1.0}, ValueError, "cap; got -1.0; expected 0 (none) or a positive"),
    ("cap-nan", {"cap": float("nan")}, ValueError, "cap; got nan; positive finite"),
    ("cap-infinite", {"cap": 1e300}, ValueError, "cap; got inf; positive finite"),
    # what only checked=True reads
    ("length-negative", {"seq_lens": place(np.int32([9, -1, 16]))}, ValueError, f"seq_lens; [1]; got -1; 0 to {LONGEST}"),
    ("length-too-long", {"max_seq_len": 15}, ValueError, "seq_lens; [2]; got 16; expected 0 to 15 (max_seq_len)"),
    ("page-7-of-7", {"block_tables": place(np.int32([[0, 7, -1], [-1] * 3, [2, 3, -1]]))}, ValueError,
     "block_tables; [0, 1]; got 7; 0 to 6"),
    ("page-stale", {"block_tables": place(np.int32([[0, 1, -1], [-1] * 3, [2, -1, -1]]))}, ValueError,
     "block_tables; [2, 1]; got -1; 0 to 6"),
    ("page-in-the-window", {"window": 9, "block_tables": place(np.int32([[-1, 1, -1], [-1] * 3, [-1, 3, -1]]))}, ValueError,
     "block_tables; [0, 0]; got -1; 0 to 6"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(change: Change, kind: type[Exception], texts: str) -> None:
    harness.refuses(STEM, {**inputs(GOOD), **change}, kind, *texts.split("; "))


OVERLAPS = [("out", "q"), ("lse", "part_a"), ("part_l", "v_cache"), ("part_l", "part_m"), ("lse", "sinks")]


@pytest.mark.parametrize(("name", "other"), OVERLAPS)
def test_memory_that_is_written_and_shared_is_refused(name: str, other: str) -> None:
    def call(**given: Any) -> None:
        big, small = (other, name) if given[other].nbytes >= given[name].nbytes else (name, other)
        flat = given[big].reshape(-1).view(np.uint8)[: given[small].nbytes]
        given[small] = flat.view(given[small].dtype).reshape(given[small].shape)
        paged_decode.SPEC.bind(given)

    harness.refuses(STEM, inputs(GOOD), ValueError, f"{name}: ", f"overlaps {other}", "memory of its own", call=call)


@pytest.mark.parametrize("name", ["out", "lse", "part_a", "part_l", "part_m"])
def test_what_cannot_be_written_is_refused(name: str) -> None:
    def call(**given: Any) -> None:
        given[name].flags.writeable = False
        paged_decode.SPEC.bind(given)

    harness.refuses(STEM, inputs(GOOD), ValueError, f"{name}: ", "read-only", call=call)


def sized(dtype: str, d: int, page: int, columns: int = 1, n: int = 1, h: int = 1, g: int = 1, cache: str = "") -> Change:
    """Arguments of other sizes, with one page; the rest is left to the call."""
    storage = DTYPES[cache or dtype][0]
    x = 16 // storage.itemsize
    found = {"q": zeros(n, h, d, dtype=DTYPES[dtype][0]), "k_cache": zeros(1, g, d // x, page, x, dtype=storage),
             "v_cache": zeros(1, g, d, page, dtype=storage)}  # fmt: skip
    return {**OUTPUTS, **found, "block_tables": zeros(n, columns, dtype=I32), "seq_lens": zeros(n, dtype=I32)}


SIZES: list[Bad] = [
    *((f"head-size-{d}", sized(t, d, 16), ValueError, f"q; axis d; got {d}; multiple of 8 from 8 to 256")
      for t, d in (("f32", 12), ("f32", 4), ("f16", 264), ("f16", 0))),
    *((f"page-{page}", sized("f16", 32, page), ValueError, f"k_cache; axis page; got {page}; power of two from 1 to 256")
      for page in (0, 3, 24, 512)),
    ("fp8-head-size", sized("f16", 40, 16, cache="e4m3"), ValueError, "q; axis d; got 40; multiple of 16 (x for a cache of e4m3)"),
    ("x-of-f16", {**sized("f32", 32, 16), "k_cache": zeros(1, 1, 4, 16, 8, dtype=F32)}, ValueError, "k_cache; axis x; got 8; expected 4"),
    ("head-ratio", sized("f16", 32, 16, h=3, g=2), ValueError, "q; axis h; got 3; multiple of g = 2"),
    ("no-kv-heads", sized("f16", 32, 16, h=2, g=0), ValueError, "q; axis h; got 2; g = 0; at least 1"),
    ("no-heads", sized("f16", 32, 16, h=0, g=1), ValueError, "q; axis h; got 0; both at least 1"),
    ("no-heads-at-all", sized("f16", 32, 16, h=0, g=0), ValueError, "q; axis h; got 0; both at least 1"),
    ("few-states", {**sized("f16", 32, 16, columns=9), "split": 0, "part_a": zeros(1, 1, 1, 32, dtype=F32)}, ValueError,
     "part_a; axis states; got 1; expected at least 2; max_seq_len 144; split 0"),
    ("few-states-of-spans", {**sized("f16", 32, 256, columns=5), "split": 2, "part_m": zeros(1, 1, 2, dtype=F32)}, ValueError,
     "part_m; axis states; got 2; expected at least 3; max_seq_len 1280; split 2"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "texts"), [bad[1:] for bad in SIZES], ids=[bad[0] for bad in SIZES])
def test_sizes_that_have_no_kernel_are_refused(change: Change, kind: type[Exception], texts: str) -> None:
    harness.refuses(STEM, {**inputs(GOOD), **change}, kind, *texts.split("; "))


def test_a_grid_beyond_its_limits_is_refused() -> None:
    good = cases.views(inputs(case("long", "", h=1, d=8, lens=(3,), page=16, work=False)))
    tables = np.lib.stride_tricks.as_strided(np.zeros(2**20, np.int32), (1, 2**20), (0, 4))
    text = "paged_decode: split: got 0, expected more: 131072 blocks would share a row of 16777216 tokens, at most 65535 can"
    with pytest.raises(ValueError, match=text):
        paged_decode.SPEC.bind({**good, "block_tables": tables, "split": 0})
    given = {name: good[name] for name in ("k_cache", "v_cache", "block_tables", "seq_lens", "scale")}
    with pytest.raises(ValueError, match="paged_decode: q: axis h: got 65536, expected at most 65535"):
        paged_decode.SPEC.bind({**given, "q": np.zeros((1, 65536, 8), good["q"].dtype)})


def test_strides_that_32_bits_cannot_hold_are_refused() -> None:
    good = cases.views(inputs(case("long", "", h=1, d=8, lens=(3,), page=16, work=False)))
    for name, axis, stride, text in (
        ("k_cache", 0, 2**32, "axis pages: got a stride of 4294967296 bytes, expected 0 to 4294967295"),
        ("v_cache", 0, -(2**12), "axis pages: got a stride of -4096 bytes, expected 0 to 4294967295"),
    ):
        cache = good[name]
        strides = tuple(stride if i == axis else old for i, old in enumerate(cache.strides))
        wide = np.lib.stride_tricks.as_strided(cache, (2, *cache.shape[1:]), strides)
        other = "v_cache" if name == "k_cache" else "k_cache"
        same = np.concatenate([good[other][:1], good[other][:1]])
        with pytest.raises(ValueError, match=f"paged_decode: {name}: {text}"):
            paged_decode.SPEC.bind({**good, name: wide, other: same}, checked=False)


def test_rows_beyond_31_bits_are_refused() -> None:
    good = cases.views(inputs(case("long", "", h=1, d=8, lens=(3,), page=16, work=False)))
    good["block_tables"] = np.lib.stride_tricks.as_strided(np.zeros(2**20, np.int32), (1, 2**27), (0, 4))
    with pytest.raises(ValueError, match="paged_decode: max_seq_len: got 2147483648, expected at most 2147483136"):
        paged_decode.SPEC.bind({**good, "split": 1})


def test_more_rows_than_balanced_parts_are_counted_for() -> None:
    good = cases.views(inputs(case("rows", "", h=1, d=8, lens=(3,) * 600, page=16, work=False)))
    good["block_tables"] = np.lib.stride_tricks.as_strided(np.zeros(2**20, np.int32), (600, 2**27 - 32), (0, 4))
    with pytest.raises(ValueError, match="paged_decode: split: got -1, expected 0 or more: 600 rows of up to 2147483136 tokens"):
        paged_decode.SPEC.bind({**good, "split": -1}, checked=False)




SMALL = np.zeros((1, 1, 8, 40), E4M3)
VIEWS: list[tuple[str, tuple[Any, ...], str]] = [
    ("fp8-head-size", ("HND", SMALL, SMALL), "k_cache: axis d: got 40, expected a multiple of 16"),
    ("layout", ("classic", np.zeros(SLOTS, F16), np.zeros(SLOTS, F16)), "layout: got 'classic', expected 'NHD' or 'HND'"),
    ("rank", ("NHD", np.zeros(K, F16), np.zeros(SLOTS, F16)), "k_cache: got .* expected four axes"),
    ("shapes", ("NHD", np.zeros(SLOTS, F16), np.zeros((*SLOTS[:3], 40), F16)), "v_cache: got .*40.* as of k_cache"),
    ("stride", ("HND", np.zeros(SLOTS, F16), np.zeros((*SLOTS[:3], 64), F16)[..., ::2]), "v_cache: axis d: .* of 4 bytes, expected 2"),
    ("head-size", ("HND", np.zeros((1, 1, 8, 12), F16), np.zeros((1, 1, 8, 12), F16)), "k_cache: axis d: got 12, expected a multiple of 8"),
]


@pytest.mark.parametrize(("given", "text"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_caches_of_no_layout_are_refused(given: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=f"paged_decode: {text}"):
        paged_decode.cache_views(*given)


def test_views_share_the_memory_of_their_caches() -> None:
    k, v = np.arange(2 * 448 * 8, dtype=np.float16).reshape(2, 7, 8, 2, 32)
    for layout, tokens in (("NHD", (0, 1, 2, 3)), ("HND", (0, 2, 1, 3))):
        shuffled = [np.ascontiguousarray(x.transpose(tokens)) for x in (k, v)]
        views = paged_decode.cache_views(layout, *shuffled)
        assert views["k_cache"].shape == K
        assert np.array_equal(views["k_cache"].transpose(0, 3, 1, 2, 4).reshape(SLOTS), k)
        assert np.array_equal(views["v_cache"].transpose(0, 3, 1, 2), v)
        assert all(np.shares_memory(view, cache) for view, cache in zip(views.values(), shuffled, strict=True))


# -- wide indices --


def far(shape: tuple[int, ...], dtype: np.dtype, step: int) -> np.ndarray:
    """An array whose first axis advances by ``step`` elements, over memory that comes to be where it is written."""
    inner = [int(np.prod(shape[axis + 1 :])) for axis in range(1, len(shape))]
    return sparse(shape, dtype, (step, *inner))


def same_bits(to: np.ndarray, values: np.ndarray) -> None:
    """Copies values, NaN payloads included."""
    bits = f"u{values.itemsize}"
    to.view(bits)[...] = values.view(bits)


@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("layout", ["classic", "nhd"])
@pytest.mark.parametrize("leg", ["ref", "sim", "host"])
def test_no_index_is_cut_to_32_bits(leg: str, layout: str, split: int) -> None:
    """BUGS: block id x stride. Pages are 40 x 128 x 16 elements apart: page 26,215 begins beyond 2^31 of them, page 52,429 beyond 2^32.
    Rows of everything else lie 2^32 elements apart. No big memory is used."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    near = inputs(case("far", "", h=1, d=8, lens=(140, 530), layout=layout, split=split, page=16 if layout == "classic" else 2))
    before, expected = cases.views(near), harness.compute(STEM, near)
    wide, apart = 2**32 + 64, 40 * 128 * 16
    pages = len(before["k_cache"])
    ids = np.int32([(26_215, 52_429)[i % 2] + i // 2 for i in range(pages)])
    arguments: dict[str, Any] = {name: before[name] for name in ("seq_lens", "scale", "split", "part_l", "part_m")}
    for name in ("k_cache", "v_cache"):
        size = before[name].shape
        order = before[name].strides[1:]
        arguments[name] = sparse((52_429 + pages, *size[1:]), F16, (apart, *(stride // 2 for stride in order)))
        arguments[name].view(np.uint16)[ids] = before[name].view(np.uint16)
    table = before["block_tables"]
    arguments["block_tables"] = far(table.shape, I32, wide)
    arguments["block_tables"][...] = np.where(table >= 0, ids[table], table)
    for name in ("q", "out", "lse", "part_a"):
        arguments[name] = far(before[name].shape, before[name].dtype, wide)
        same_bits(arguments[name], before[name])
    runner.run(paged_decode.SPEC.bind(arguments, checked=True), {})
    for name, values in expected.items():
        assert compare.difference(name, arguments[name], values) is None


@pytest.mark.parametrize("leg", ["ref", "sim", "host"])
def test_no_dimension_is_cut_to_32_bits(leg: str) -> None:
    """The dimensions of V lie 2^30 elements apart, pages next to each other."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    near = inputs(case("far-dimensions", "", h=1, d=8, lens=(17, 33)))
    before, expected = cases.views(near), harness.compute(STEM, near)
    v = before["v_cache"]
    arguments = {**before, "v_cache": sparse(v.shape, F16, (16, 16, 2**30, 1))}
    same_bits(arguments["v_cache"], v)
    runner.run(paged_decode.SPEC.bind(arguments, checked=True), {})
    for name, values in expected.items():
        assert compare.difference(name, arguments[name], values) is None


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_no_state_is_stored_at_an_index_of_32_bits(leg: str) -> None:
    """The second head's states begin at element 2^31 + 8 of part_l and part_m."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    near = inputs(case("many-states", "", h=2, g=2, d=8, lens=(600,), split=0))
    before, expected = cases.views(near), harness.compute(STEM, near)
    room = 2**31 + 8
    work = {"part_l": (1, 2, room), "part_m": (1, 2, room), "part_a": (1, 2, room, 8)}
    for name, shape in work.items():
        before[name] = far(shape, F32, int(np.prod(shape, dtype=np.int64)))
    runner.run(paged_decode.SPEC.bind(before, checked=True), {})
    for name, values in expected.items():
        assert compare.difference(name, before[name], values) is None
