"""Bad input of paged_attention_v1 and _v2: every fault is an error that names it, before any buffer is touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from pyref import classic_spec, paged_attention_v1, paged_attention_v2
from pyref.spec import DTYPES, MAX_SHARED_BYTES
from tests import harness
from tests.paged_inputs import case, inputs
from tools import cases
from tools.arena import Region, place, sentinel, sentinel_bits
from tools.compare import bits

V1, V2 = STEMS = ("paged_attention_v1", "paged_attention_v2")
F16, F32, BF16, E4M3, I32 = (DTYPES[name][0] for name in ("f16", "f32", "bf16", "e4m3", "i32"))
GOOD = case("good", "what the bad input is made of", h=4, g=2, d=32, page=8, lens=(9, 0, 16), slopes="classic")
PAGES, COLUMNS = 7, 3
Change = dict[str, Any]
Bad = tuple[str, Change, type[Exception], tuple[str, ...]]


def zeros(*shape: int, dtype: np.dtype = F16, **layout: Any) -> Region:
    """A placed array of zeros."""
    return place(np.zeros(shape, dtype), **layout)


def shifted(shape: tuple[int, ...], elements: int) -> Region:
    """An array that begins so many elements after an aligned address."""
    return place(np.zeros(shape, F16), offset=elements)


def gap(shape: tuple[int, ...], axis: int, more: int) -> Region:
    """An array whose parent has ``more`` elements along its last axis: the strides of the axes before it grow by that much."""
    whole = place(np.zeros((*shape[:axis], int(np.prod(shape[axis:])) + more), F16))
    inner = np.cumprod((1, *shape[:axis:-1]))[::-1] * F16.itemsize
    return Region(whole.buffer, np.ndarray(shape, F16, whole.buffer, whole.offset, (*whole.view.strides[:axis], *inner)))


def repeated(shape: tuple[int, ...]) -> Region:
    """An output whose rows are one and the same."""
    one = sentinel((1, *shape[1:]), F16)
    return Region(one.buffer, np.ndarray(shape, F16, one.buffer, one.offset, (0, *one.view.strides[1:])))


def endless(heads: int) -> Region:
    """q of so many heads, all of which are one and the same."""
    one = place(np.zeros((3, 1, 32), F16))
    return Region(one.buffer, np.ndarray((3, heads, 32), F16, one.buffer, one.offset, (one.view.strides[0], 0, 2)))


NEEDED = ("q", "k_cache", "v_cache", "block_tables", "seq_lens", "scale")
ABSENT = dict.fromkeys(("out", "lse", "alibi_slopes", "tmp_out", "exp_sums", "max_logits"))
K, V = (PAGES, 2, 4, 8, 8), (PAGES, 2, 32, 8)
ONE = zeros(1, dtype=F32)
FP8: Change = {"k_cache": zeros(PAGES, 2, 2, 8, 16, dtype=E4M3), "v_cache": zeros(*V, dtype=E4M3)}
COMMON: list[Bad] = [
    # missing, unknown, of another kind
    *((f"without-{name}", {name: None}, TypeError, (name, "missing")) for name in NEEDED),
    ("unknown", {"kv_scale": 1.0}, TypeError, ("kv_scale", "expected out, q, k_cache")),
    ("scale2-given", {"scale2": 1.0}, TypeError, ("scale2", "computed")),
    ("scale-text", {"scale": "1"}, TypeError, ("scale", "got str", "expected a number")),
    ("max-seq-len-float", {"max_seq_len": 17.0}, TypeError, ("max_seq_len", "got float", "expected an integer")),
    ("lengths-list", {"seq_lens": [9, 0, 16]}, TypeError, ("seq_lens", "got list", "NumPy array")),
    # dtypes
    ("q-f64", {"q": zeros(3, 4, 32, dtype=np.dtype(float))}, TypeError, ("q", "got float64", "expected f32 or f16 or bf16")),
    ("caches-other", {"k_cache": zeros(*K, dtype=BF16), "v_cache": zeros(*V, dtype=BF16)}, TypeError,
     ("k_cache", "got bf16", "expected f16 (from q) or e4m3 or e5m2")),
    ("v-fp8", {"v_cache": sentinel(V, E4M3)}, TypeError, ("v_cache", "got e4m3", "expected f16 (from k_cache)")),
    ("v-i32", {"v_cache": zeros(*V, dtype=I32)}, TypeError, ("v_cache", "got i32", "expected f32 or f16 or bf16 or e4m3 or e5m2")),
    ("needless-scale", {"v_scale": zeros(1, dtype=F32)}, TypeError, ("v_scale", "got a scale", "expected none", "cache of f16")),
    ("fp8-without-scales", FP8, TypeError, ("k_scale", "missing", "cache of e4m3")),
    ("fp8-without-v-scale", {**FP8, "k_scale": ONE}, TypeError, ("v_scale", "missing", "cache of e4m3")),
    ("scale-f16", {**FP8, "k_scale": zeros(1), "v_scale": ONE}, TypeError, ("k_scale", "got f16", "expected f32")),
    ("scales-of-3-heads", {**FP8, "k_scale": ONE, "v_scale": zeros(3, dtype=F32)}, ValueError,
     ("v_scale", "got 3", "expected 1 or 2 (axis g)")),
    ("x-of-f16-for-fp8", {**FP8, "k_cache": zeros(*K, dtype=E4M3), "k_scale": ONE, "v_scale": ONE}, ValueError,
     ("k_cache", "axis x", "got 8", "expected 16")),
    ("cap-text", {"cap": "2"}, TypeError, ("cap", "got str", "expected a number")),
    ("window-float", {"window": 2.0}, TypeError, ("window", "got float", "expected an integer")),
    ("out-f32", {"out": sentinel((3, 4, 32), F32)}, TypeError, ("q", "got f16", "expected f32 (from out)")),
    ("tables-i64", {"block_tables": zeros(3, COLUMNS, dtype=np.dtype(np.int64))}, TypeError, ("block_tables", "got i64", "expected i32")),
    ("lengths-i64", {"seq_lens": zeros(3, dtype=np.dtype(np.int64))}, TypeError, ("seq_lens", "got i64", "expected i32")),
    ("slopes-f16", {"alibi_slopes": zeros(4)}, TypeError, ("alibi_slopes", "got f16", "expected f32")),
    ("lse-f16", {"lse": sentinel((3, 4), F16)}, TypeError, ("lse", "got f16", "expected f32")),
    # shapes
    ("q-rank", {"q": zeros(12, 32)}, ValueError, ("q", "got 2 axes", "expected 3")),
    ("q-more-rows", {"q": zeros(4, 4, 32)}, ValueError, ("q", "axis n", "got 4", "expected 3 (from out)")),
    ("k-rank", {"k_cache": zeros(PAGES, 2, 32, 8)}, ValueError, ("k_cache", "got 4 axes", "expected 5")),
    ("k-x-of-f32", {"k_cache": zeros(PAGES, 2, 8, 8, 4)}, ValueError, ("k_cache", "axis x", "got 4", "expected 8")),
    ("k-head-size", {"k_cache": zeros(PAGES, 2, 5, 8, 8)}, ValueError, ("k_cache", "axis d/x", "got 5", "expected 32/8")),
    ("v-head-size", {"v_cache": zeros(PAGES, 2, 40, 8)}, ValueError, ("v_cache", "axis d", "got 40", "expected 32 (from out)")),
    ("v-page", {"v_cache": zeros(PAGES, 2, 32, 16)}, ValueError, ("v_cache", "axis page", "got 16", "expected 8 (from k_cache)")),
    ("v-pages", {"v_cache": zeros(PAGES + 1, 2, 32, 8)}, ValueError, ("v_cache", "axis pages", "got 8", "expected 7 (from k_cache)")),
    ("v-heads", {"v_cache": zeros(PAGES, 4, 32, 8)}, ValueError, ("v_cache", "axis g", "got 4", "expected 2 (from k_cache)")),
    ("tables-rows", {"block_tables": zeros(2, COLUMNS, dtype=I32)}, ValueError, ("block_tables", "axis n", "got 2", "expected 3")),
    ("lengths-rows", {"seq_lens": zeros(4, dtype=I32)}, ValueError, ("seq_lens", "axis n", "got 4", "expected 3")),
    ("slopes-heads", {"alibi_slopes": zeros(2, dtype=F32)}, ValueError, ("alibi_slopes", "axis h", "got 2", "expected 4")),
    ("lse-heads", {"lse": sentinel((3, 2), F32)}, ValueError, ("lse", "axis h", "got 2", "expected 4")),
    ("out-head-size", {"out": sentinel((3, 4, 40), F16)}, ValueError, ("q", "axis d", "got 32", "expected 40 (from out)")),
    # strides, addresses, memory
    ("q-not-dense", {"q": zeros(3, 4, 32, swap=(1, 2))}, ValueError, ("q", "axis d", "stride of 8 bytes", "expected 2")),
    ("k-not-dense", {"k_cache": zeros(*K, swap=(3, 4))}, ValueError, ("k_cache", "axis x", "stride of 16 bytes", "expected 2")),
    ("k-gap-inside", {"k_cache": zeros(*K, pad={3: 1})}, ValueError, ("k_cache", "axis d/x", "stride of 144 bytes", "expected 128")),
    ("v-not-dense", {"v_cache": zeros(*V, swap=(2, 3))}, ValueError, ("v_cache", "axis page", "stride of 64 bytes", "expected 2")),
    ("tables-not-dense", {"block_tables": zeros(3, COLUMNS, dtype=I32, swap=(0, 1))}, ValueError, ("axis max_pages", "dense")),
    ("k-address", {"k_cache": shifted(K, 1)}, ValueError, ("k_cache", "address 2 bytes", "multiple of 16")),
    ("v-address", {"v_cache": shifted(V, 4)}, ValueError, ("v_cache", "address 8 bytes", "multiple of 16")),
    ("k-page-stride", {"k_cache": gap(K, 1, 4)}, ValueError, ("k_cache", "axis pages", "stride of 1032 bytes", "multiple of 16")),
    ("v-head-stride", {"v_cache": gap(V, 2, 1)}, ValueError, ("v_cache", "axis pages", "stride of 1028 bytes", "multiple of 16")),
    ("out-shares-rows", {"out": repeated((3, 4, 32))}, ValueError, ("out", "axis n", "stride of 0 bytes", "share memory")),
    # sizes
    ("head-ratio", {**ABSENT, "q": zeros(3, 3, 32)}, ValueError, ("q", "axis h", "got 3", "multiple of g = 2")),
    ("grid-x", {**ABSENT, "q": endless(2**31)}, ValueError, ("q", "axis h", "got 2147483648", "at most 2147483647", "grid")),
    ("no-kv-heads", {"k_cache": zeros(PAGES, 0, 4, 8, 8), "v_cache": zeros(PAGES, 0, 32, 8)}, ValueError, ("axis h", "g = 0")),
    ("longest-negative", {"max_seq_len": -1}, ValueError, ("max_seq_len", "got -1", "expected 0 to 24")),
    ("longest-too-long", {"max_seq_len": 25}, ValueError, ("max_seq_len", "got 25", "expected 0 to 24", "max_pages 3", "page 8")),
    ("window-negative", {"window": -1}, ValueError, ("window", "got -1", "0 (none) or more")),
    *((f"cap-{cap}", {"cap": cap}, ValueError, ("cap", f"got {cap}", "0 (none) or a positive finite number"))
      for cap in (-1.0, np.inf, np.nan)),
    *((f"{name}-negative", {name: -1}, ValueError, (name, "got -1", "expected 0 to 2147483647"))
      for name in ("tp_rank", "blocksparse_local_blocks", "blocksparse_vert_stride")),
    *((f"pattern-of-blocks-of-{size}", {"blocksparse_vert_stride": 4, "blocksparse_block_size": size}, ValueError,
       ("blocksparse_block_size", f"got {size}", "multiple of page 8 (from k_cache)")) for size in (0, 4, 12, 2**31)),
    ("pattern-slides-too-far", {"blocksparse_vert_stride": 4, "blocksparse_head_sliding_step": 2**28, "tp_rank": 1}, ValueError,
     ("blocksparse_head_sliding_step", "got 268435456", "at most 268435455", "8 heads", "rank 1")),
    ("pattern-slides-back-too-far", {"blocksparse_vert_stride": 4, "blocksparse_head_sliding_step": -(2**30), "tp_rank": 0}, ValueError,
     ("blocksparse_head_sliding_step", "got -1073741824", "at most 1073741823", "2 heads")),
    # what only checked=True reads
    ("length-negative", {"seq_lens": place(np.int32([9, -1, 16]))}, ValueError, ("seq_lens", "[1]", "got -1", "0 to 24")),
    ("length-too-long", {"max_seq_len": 15}, ValueError, ("seq_lens", "[2]", "got 16", "expected 0 to 15")),
    ("page-7-of-7", {"block_tables": place(np.int32([[0, 7, -1], [-1] * 3, [2, 3, -1]]))}, ValueError, ("[0, 1]", "got 7", "0 to 6")),
    ("page-stale", {"block_tables": place(np.int32([[0, 1, -1], [-1] * 3, [2, -1, -1]]))}, ValueError, ("[2, 1]", "got -1", "0 to 6")),
]  # fmt: skip


def sized(dtype: str, d: int, page: int, columns: int = 1, n: int = 1, h: int = 1, cache: str = "") -> Change:
    """Arguments of other sizes, with one page; outputs are left to the call."""
    storage = DTYPES[cache or dtype][0]
    x = 16 // storage.itemsize
    arrays = {"k_cache": (1, 1, d // x, page, x), "v_cache": (1, 1, d, page)}
    found: Change = {name: place(np.zeros(shape, storage)) for name, shape in arrays.items()}
    found["q"] = place(np.zeros((n, h, d), DTYPES[dtype][0]))
    found["block_tables"] = place(np.zeros((n, columns), np.int32))
    found["seq_lens"] = place(np.zeros(n, np.int32))
    return {**ABSENT, **found}


SIZES: list[Bad] = [
    *((f"head-size-{d}", sized(t, d, 16), ValueError, ("q", "axis d", f"got {d}", "multiple of 8 from 8 to 512"))
      for t, d in (("f32", 12), ("f32", 4), ("f16", 520), ("f16", 0))),
    *((f"page-{page}", sized("f16", 32, page), ValueError, ("k_cache", "axis page", f"got {page}", "power of two from 1 to 256"))
      for page in (0, 3, 24, 512)),
    ("fp8-head-size", sized("f16", 40, 16, cache="e4m3"), ValueError, ("q", "axis d", "got 40", "multiple of 16 (x for a cache of e4m3)")),
    ("lanes-page1", sized("f16", 40, 1), ValueError, ("k_cache", "axis d", "got 40", "multiple of 32", "page 1", "32 lanes")),
    ("lanes-page2", sized("f32", 24, 2), ValueError, ("k_cache", "axis d", "got 24", "multiple of 16", "page 2", "16 lanes")),
]  # fmt: skip

ONLY: dict[str, list[Bad]] = {
    V1: [
        ("shared-memory", sized("f16", 128, 16, columns=3592), ValueError,
         ("max_seq_len", "got 57472", "at most 57464", "232480 bytes", "232448", "paged_attention_v2")),
    ],
    V2: [
        ("grid-z", sized("f16", 32, 256, columns=131_071), ValueError,
         ("max_seq_len", "got 33554176", "at most 33553920", "65536 partitions", "65535")),
        ("few-partitions", {"max_seq_len": 24, **{name: sentinel((3, 4, 0, *rest), F32) for name, rest in
         (("tmp_out", (32,)), ("exp_sums", ()), ("max_logits", ()))}}, ValueError, ("tmp_out", "axis parts", "got 0", "at least 1", "24")),
        ("partitions-differ", {"exp_sums": sentinel((3, 4, 2), F32)}, ValueError, ("exp_sums", "axis parts", "got 2", "expected 1")),
        ("workspace-heads", {"max_logits": sentinel((3, 2, 1), F32)}, ValueError, ("max_logits", "axis h", "got 2", "expected 4")),
        ("workspace-f16", {"tmp_out": sentinel((3, 4, 1, 32), F16)}, TypeError, ("tmp_out", "got f16", "expected f32")),
        ("workspace-not-dense", {"exp_sums": sentinel((3, 4, 1), F32, pad={1: 1})}, ValueError, ("exp_sums", "axis n", "dense")),
    ],
}  # fmt: skip

BAD = [pytest.param(stem, *bad[1:], id=f"{stem}-{bad[0]}") for stem in STEMS for bad in (*COMMON, *SIZES, *ONLY[stem])]


@pytest.mark.parametrize(("stem", "change", "kind", "texts"), BAD)
def test_bad_input_is_refused(stem: str, change: Change, kind: type[Exception], texts: tuple[str, ...]) -> None:
    arguments = {**inputs(stem, GOOD), **change}
    known = cases.kernel(stem).args
    given = {name: value for name, value in arguments.items() if value is not None and (name in known or name in ("kv_scale", "scale2"))}
    harness.refuses(stem, given, kind, *texts)


@pytest.mark.parametrize("stem", STEMS)
def test_the_good_input_is_good(stem: str) -> None:
    arguments = inputs(stem, GOOD)
    assert arguments["k_cache"].view.shape == K
    assert arguments["block_tables"].view.shape == (3, COLUMNS)
    assert set(harness.compute(stem, arguments)) == set(cases.kernel(stem).outputs)


def refused_in_place(stem: str, arguments: Change, *texts: str) -> None:
    """``harness.refuses`` for arguments that a copy would change: a ValueError with these texts, and no byte is written."""
    before = {name: value.buffer.copy() for name, value in arguments.items() if isinstance(value, Region)}
    with pytest.raises(ValueError, match=f"^{stem}: ") as caught:
        cases.kernel(stem).bind(cases.views(arguments), checked=True)
    assert all(text in str(caught.value) for text in texts), caught.value
    assert all(np.array_equal(arguments[name].buffer, buffer) for name, buffer in before.items())


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize(("written", "read"), [("out", "q"), ("out", "v_cache"), ("lse", "alibi_slopes"), ("out", "lse")])
def test_outputs_have_memory_of_their_own(stem: str, written: str, read: str) -> None:
    arguments = inputs(stem, GOOD)
    target, source = arguments[written].view, place(np.zeros(4096, np.uint8))
    arguments[written] = Region(source.buffer, np.ndarray(target.shape, target.dtype, source.buffer, source.offset))
    other = arguments[read].view
    strides = other.strides
    arguments[read] = Region(source.buffer, np.ndarray(other.shape, other.dtype, source.buffer, source.offset, strides))
    refused_in_place(stem, arguments, written, f"overlaps {read}", "memory of its own")


@pytest.mark.parametrize(("stem", "name"), [(stem, name) for stem in STEMS for name in cases.kernel(stem).outputs])
def test_outputs_are_writable(stem: str, name: str) -> None:
    arguments = inputs(stem, GOOD)
    arguments[name].view.flags.writeable = False
    refused_in_place(stem, arguments, name, "read-only", "writable")


@pytest.mark.parametrize("run", [paged_attention_v1.run, paged_attention_v2.run])
def test_the_references_check_their_input(run: Callable[..., Any]) -> None:
    arguments = cases.views(inputs(V1, GOOD))
    with pytest.raises(ValueError, match="seq_lens"):
        run(**{**arguments, "max_seq_len": 15})
    assert (bits(arguments["out"]) == sentinel_bits(arguments["out"].dtype)).all()


def test_the_greatest_length_of_version_1_fills_shared_memory() -> None:
    assert classic_spec.shared_bytes(128, 57464) == MAX_SHARED_BYTES
    given = {name: value for name, value in sized("f16", 128, 16, 3592).items() if value is not None and name in cases.kernel(V1).args}
    assert cases.kernel(V1).bind(cases.views({**given, "scale": 1.0, "max_seq_len": 57464}))["max_seq_len"] == 57464


@pytest.mark.parametrize(("shared_bytes", "longest"), [(65_536, 16_216), (65_538, 16_216), (65_540, 16_217), (101_376, 25_176)])
def test_version_1_knows_the_shared_memory_of_the_device(shared_bytes: int, longest: int) -> None:
    """What sm_75 and sm_86 have, and around the ends of a logit."""
    arguments = cases.views({name: value for name, value in inputs(V1, GOOD).items() if name in cases.kernel(V1).args})
    arguments["block_tables"] = np.full((3, 4000), -1, np.int32)
    bind = partial(cases.kernel(V1).bind, shared_bytes=shared_bytes)
    assert bind({**arguments, "max_seq_len": longest})["max_seq_len"] == longest
    text = f"{V1}: max_seq_len: got {longest + 1}, expected at most {longest}: .* a block has {shared_bytes}; use paged_attention_v2"
    with pytest.raises(ValueError, match=text):
        bind({**arguments, "max_seq_len": longest + 1})
