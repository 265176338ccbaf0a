"""The cases of paged_attention_v1 and paged_attention_v2: the same for both, which must give the same bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.paged_inputs import case
from tools.cases import ROOT, Case

FLOATS = ("f16", "bf16", "f32")
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256, 512)


def mapping(dtype: str, d: int, page: int, *, lens: tuple[int, ...] | None = None) -> Case:
    """A case of one specialisation, with lengths around its page size."""
    lens = lens or tuple(sorted({1, max(page - 1, 1), page, page + 1, 2 * page + 3}))
    why = f"{dtype}, head size {d}, page size {page}: a mapping of lanes of its own"
    return case(f"{dtype}-d{d}-page{page}", why, dtype, h=2, g=1, d=d, page=page, lens=lens)


def places(**layouts: dict[str, Any]) -> dict[str, Any]:
    """Layouts by argument."""
    return {"places": layouts}


def padded(**axes: int) -> dict[str, Any]:
    """More elements along axis 0 (``a0``), 1 and so on than the view takes."""
    return {"pad": {int(axis[1:]): more for axis, more in axes.items()}}


SWAPPED = {"swap": (0, 1)}

SPECIALISATIONS = [
    *(mapping(t, d, 16) for t in FLOATS for d in HEAD_SIZES),
    *(mapping(FLOATS[(i + j) % 3], d, page) for j, page in enumerate((8, 32)) for i, d in enumerate(HEAD_SIZES)),
    *(mapping(t, 128, page) for page, others in ((8, ("bf16", "f32")), (32, ("f16", "f32"))) for t in others),
    *(mapping(t, d, page) for page, d in ((64, 64), (128, 128), (256, 64)) for t in FLOATS),
    *(mapping(t, 64, page, lens=(1, 3, 35)) for page in (1, 2, 4) for t in ("f16", "f32")),
    *(mapping(t, d, page, lens=(7, 130)) for t, d, page in (("bf16", 96, 1), ("bf16", 80, 2), ("bf16", 120, 4), ("f32", 120, 4))),
    mapping("f16", 8, 16),
    mapping("f16", 136, 16),
]

LENGTHS = [
    case("empty", "nothing but sequences of length 0", lens=(0, 0, 0)),
    case("no-sequences", "an empty grid cannot be launched", lens=()),
    *(case(f"{t}-mixed-lengths", "length 0 among others, full partitions", t, h=2, lens=(0, 1, 17, 512, 513)) for t in FLOATS),
    *(case(f"length-{n}", "around a partition's end", h=2, lens=(n,)) for n in (511, 512, 513, 1025)),
    case("f32-length-1025", "three partitions are joined", "f32", h=2, d=128, lens=(1025,)),
    case("bf16-length-1025", "three partitions are joined", "bf16", h=2, d=128, lens=(1025,)),
    case("f16-page8-length-1025", "three partitions of 64 pages", h=2, d=128, page=8, lens=(1025,)),
    case("bf16-page32-length-1025", "three partitions of 16 pages", "bf16", h=2, d=128, page=32, lens=(1025,)),
    case("f32-page256-length-770", "two warps have no page; a lane takes two vectors", "f32", h=2, page=256, lens=(770, 257)),
    case("f16-page1-length-600", "a page a token", h=2, page=1, lens=(600,)),
    case("every-page-edge", "lengths around the ends of pages", h=2, lens=(15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65)),
    case("length-12289", "logits beyond 48 KiB of shared memory in version 1", h=1, g=1, lens=(12289,)),
    case("max-seq-len-12200", "beyond 48 KiB by what version 1 keeps in shared memory beside the logits", h=1, g=1, d=96,
         columns=800, max_seq_len=12200),
    case("many-sequences", "more sequences than a grid has blocks along y", h=1, g=1, d=32, n=65537,
         lens={0: 17, 7: 1, 65534: 1, 65535: 3, 65536: 33}),
    case("exact-max-seq-len", "max_seq_len is the longest length", h=2, lens=(513, 20), max_seq_len=513),
    case("generous-max-seq-len", "partitions that no sequence has", h=2, lens=(20, 40), columns=70),
    case("tables-without-room", "the table ends with the last page of the longest sequence", lens=(16, 32), columns=0),
    case("wide-tables", "entries past the lengths are poison", lens=(5, 100), columns=9),
]  # fmt: skip

HEADS = [
    case("mha", "every query head has its own kv head", h=4, g=4),
    case("gqa-8-2", "four query heads a kv head", h=8, g=2),
    case("mqa-8-1", "all query heads share one kv head", h=8, g=1),
    case("mqa-32-1", "all query heads share one kv head", "bf16", h=32, g=1, lens=(17,)),
    case("gqa-28-4", "a group of 7", h=28, g=4, lens=(17, 3)),
    case("gqa-7-1", "a group of 7", "bf16", h=7, g=1),
    case("gqa-32-8", "the usual group of 4", h=32, g=8, d=128, lens=(33,)),
    case("heads-40-d128-bf16", "more kv heads times head size than some kernels have threads", "bf16", h=40, g=40, d=128, lens=(17,)),
    case("heads-32-d128-f32", "more kv heads times head size than some kernels have threads", "f32", h=32, g=32, d=128, lens=(17,)),
    case("one-head", "h and g of 1", h=1, g=1),
]

SCORES = [
    *(case(f"{t}-alibi", "ALiBi over two partitions", t, h=2, slopes="classic", lens=(530, 17)) for t in FLOATS),
    case("alibi-zero-slopes", "the path depends on the presence of slopes, not on their values", slopes="zero"),
    case("alibi-zero-slopes-scale", "the same where scale times log2 e rounds: the two paths differ", "f32", scale=0.11, slopes="zero"),
    case("alibi-steep", "old tokens weigh more; logits far apart", h=4, slopes="steep", lens=(100,)),
    case("f32-alibi-d80", "an inexact product with the scale: a bias fused to it would show", "f32", d=80, slopes="classic", lens=(70,)),
    case("alibi-page8-d128", "ALiBi on another mapping", "bf16", d=128, page=8, slopes="classic", lens=(70,)),
    case("scale-0", "every logit is a zero", scale=0.0),
    case("scale-negative", "a negative scale", scale=-0.3),
    case("scale-1", "logits of 30 and more", scale=1.0, lens=(100, 9)),
    case("scale-tiny", "subnormal logits", scale=1e-40),
]


def pattern(local: int, stride: int, size: int, step: int = 0, rank: int = 0) -> dict[str, int]:
    """The block-sparse arguments."""
    names = ("local_blocks", "vert_stride", "block_size", "head_sliding_step")
    return {**{f"blocksparse_{name}": value for name, value in zip(names, (local, stride, size, step), strict=True)}, "tp_rank": rank}


def small(name: str, why: str, dtype: str = "f16", **rest: Any) -> Case:
    """A case of two heads of 32, where nothing else is said: small enough for the simulator."""
    return case(name, why, dtype, **{"h": 2, "g": 1, "d": 32, **rest})


CAPS = [
    *(small(f"{t}-cap", "a soft cap that bends the logits", t, cap=1.5, lens=(20, 35)) for t in FLOATS),
    *(small(f"{t}-cap-alibi", "a cap before ALiBi, over two partitions", t, cap=2.5, slopes="classic", scale=0.4, lens=(530, 17))
      for t in FLOATS),
    small("cap-tiny", "every logit is near the cap", cap=1e-3),
    small("cap-large", "a cap that bends nothing takes the path of its own still", cap=1e30, scale=0.11, lens=(100,)),
    small("cap-with-nan", "a NaN logit under a cap", cap=2.0, values="nan-logit"),
    small("cap-with-infinity", "an infinite logit under a cap is the cap", cap=2.0, values="plus-inf-logit"),
]  # fmt: skip

WINDOWS = [
    *(small(f"{t}-window-21", "a window that begins within a page and a vector; longer than a row", t, window=21, lens=(50, 20))
      for t in FLOATS),
    *(small(f"{t}-window-{w}", why, t, window=w, lens=(1100, 77))
      for t, w, why in (("f16", 76, "it begins where a partition does"), ("bf16", 77, "one token of the partition before"),
                        ("f32", 600, "over two partitions, the first is skipped"), ("bf16", 1, "the last token alone"))),
    small("window-beyond-32-bits", "a window of 2^40 admits all", window=2**40),
    small("window-that-ends-in-5", "a window of 2^32 + 5 admits all, its low 32 bits would not", window=2**32 + 5),
    small("window-alibi-cap", "distances are those of the whole sequence", window=40, slopes="classic", cap=3.0, lens=(530, 41)),
    *(small(f"window-page{page}-{t}", "another mapping", t, d=d, page=page, window=w, lens=lens)
      for t, d, page, w, lens in (("f16", 128, 8, 13, (70, 9)), ("bf16", 128, 32, 45, (100, 45)), ("f32", 64, 256, 300, (770, 299)),
                                  ("f16", 64, 1, 5, (35, 4)), ("f32", 64, 4, 6, (35, 7)))),
    small("window-infinite-v", "an infinite V before the window is not met", window=2, values="infinite-v", scale=1.0, lens=(9, 16)),
    small("window-many-lengths", "lengths from 1 to beyond the window", h=1, window=16, lens=tuple(range(1, 40))),
]  # fmt: skip

PATTERNS = [
    *(small(f"{t}-pattern", "a local block, every second one of the others", t, lens=(70, 17), **pattern(1, 2, 16)) for t in FLOATS),
    *(small(f"{t}-pattern-slides", "the pattern slides by the query head", t, h=4, g=2, lens=(300, 33), **pattern(1, 3, 32, 1))
      for t in FLOATS),
    small("pattern-slides-with-kv-heads", "the same for all query heads of a kv head", h=8, g=4, lens=(300, 33), **pattern(1, 5, 16, -2)),
    small("pattern-of-rank-3", "heads are numbered through the ranks", "bf16", h=4, g=2, lens=(200,), **pattern(1, 7, 16, 1, 3)),
    small("pattern-of-kv-heads-of-rank-3", "kv heads too", "f32", h=4, g=2, lens=(200,), **pattern(1, 5, 16, -1, 3)),
    small("pattern-without-local-blocks", "rows of which no token takes part are empty (C10), also for one head alone", h=4, g=4,
          lens=(16, 0, 33, 100), **pattern(0, 4, 16, 1)),
    small("pattern-all-local", "more local blocks than there are", lens=(70, 17), **pattern(100, 8, 16)),
    small("pattern-of-stride-1", "no pattern, whatever else is given", lens=(70, 17), **pattern(0, 1, 0)),
    small("pattern-skips-partitions", "blocks of more than a partition: whole partitions are skipped", lens=(3700, 1000),
          **pattern(1, 3, 1024, 1)),
    small("pattern-across-partitions", "blocks that a partition's end cuts", "bf16", lens=(1100,), **pattern(2, 4, 48)),
    small("pattern-and-window", "the window begins within a block, and in one that takes no part", window=75, lens=(140, 170),
          **pattern(1, 3, 32)),
    small("pattern-alibi-cap", "with ALiBi and a cap", "f32", slopes="classic", cap=2.0, lens=(150,), **pattern(2, 3, 16)),
    small("pattern-page8-d128", "another mapping", "bf16", d=128, page=8, lens=(150,), **pattern(1, 4, 24)),
    small("pattern-page256", "another mapping", "f32", d=64, page=256, lens=(1500,), **pattern(1, 3, 256)),
    small("pattern-page1", "another mapping", d=64, page=1, lens=(60,), **pattern(3, 4, 5)),
]  # fmt: skip


def fp8(dtype: str, cache: str, why: str, name: str = "", **rest: Any) -> Case:
    """A case over fp8 caches."""
    return small(f"{dtype}-{cache}{name}", why, dtype, cache=cache, **{"scales": (0.5, 2.0), **rest})


FP8 = [
    *(fp8(t, c, "scales that differ, powers of two") for t in FLOATS for c in ("e4m3", "e5m2")),
    *(fp8(t, c, "a scale a head, inexact products", "-head-scales", h=4, g=2, scales=([0.3, 1.7], [2.1, 0.013]), lens=(40, 530))
      for t in FLOATS for c in ("e4m3", "e5m2")),
    fp8("f16", "e4m3", "one scale for K, one a head for V", "-mixed-scales", h=4, g=2, scales=(0.7, [3.0, 0.25])),
    fp8("bf16", "e5m2", "one scale a head for K, one for V", "-mixed-scales", h=4, g=2, scales=([3.0, 0.25], 0.7)),
    *(fp8("f32", c, "every finite pattern in V", "-finite-v", patterns=f"finite-{c}", scales=(0.5, 0.3)) for c in ("e4m3", "e5m2")),
    *(fp8("bf16", c, "infinity and NaN in V", "-all-v", patterns="all") for c in ("e4m3", "e5m2")),
    fp8("f16", "e4m3", "the scale of V is a NaN", "-nan-scale", scales=(1.0, np.nan)),
    fp8("f16", "e4m3", "a scale of K of 0: every weight is 1", "-zero-scale", scales=(0.0, 1.0)),
    fp8("bf16", "e5m2", "products with the scale overflow", "-infinite-products", patterns="all", scales=(1.0, 3e38)),
    fp8("f32", "e4m3", "products with the scale are subnormal", "-subnormal-products", patterns="finite-e4m3", scales=(1.0, 1e-42)),
    fp8("f16", "e4m3", "three partitions", "-mixed-lengths", lens=(0, 1, 513, 1025)),
    fp8("bf16", "e4m3", "K and V have strides of their own", "-strides", g=2, **places(k_cache=padded(a0=1, a1=1), v_cache=padded(a1=2))),
    fp8("f16", "e5m2", "with window, cap and ALiBi", "-window-cap-alibi", window=41, cap=2.0, slopes="classic", lens=(70, 600)),
    fp8("f32", "e5m2", "under a pattern", "-pattern", lens=(300,), **pattern(1, 3, 32, 1)),
    *(fp8(t, c, "a mapping of lanes of its own", f"-d{d}-page{page}", d=d, page=page, lens=(1, page + 1, 2 * page + 3))
      for t, c, d, page in (("f16", "e4m3", 128, 32), ("f32", "e5m2", 64, 32), ("f32", "e4m3", 48, 256), ("bf16", "e4m3", 64, 1),
                            ("f16", "e5m2", 80, 8), ("bf16", "e5m2", 112, 16), ("f32", "e4m3", 256, 2), ("f16", "e4m3", 512, 16),
                            ("f16", "e5m2", 128, 128))),
]  # fmt: skip

LAYOUTS = [
    *(case(f"{t}-q-of-qkv", "q is a slice of qkv", t, **places(q=padded(a1=4))) for t in FLOATS),
    case("q-heads-first", "q is a view of [h, n, d]", **places(q=SWAPPED)),
    case("q-offset-1", "q need not be aligned", **places(q={"offset": 1})),
    case("kv-strides-differ", "K and V have strides of their own", **places(k_cache=padded(a0=1, a1=1), v_cache=padded(a1=2))),
    case("padded-pages", "576 of 640 elements of a page are used", h=1, g=1, d=72, page=8,
         **places(k_cache=padded(a2=1), v_cache=padded(a2=8))),
    case("kv-heads-first", "caches are views of [g, pages, ...]", "f32", **places(k_cache=SWAPPED, v_cache=SWAPPED)),
    case("k-heads-first", "K is, V is not", "bf16", **places(k_cache=SWAPPED)),
    case("out-strided", "the output's rows and heads have gaps", **places(out=padded(a1=1, a2=3))),
    case("out-heads-first", "the output is a view of [h, n, d]", "bf16", **places(out=SWAPPED)),
    case("out-offset-1", "the output need not be aligned", "f32", **places(out={"offset": 1})),
    case("lse-heads-first", "lse is a view of [h, n]", **places(lse=SWAPPED)),
    case("lse-padded", "lse rows have gaps", "f32", **places(lse={"pad": {1: 3}, "offset": 1})),
    case("without-lse", "lse is optional", "bf16", lse=False),
    case("tables-padded", "rows of the table are longer than the view", lens=(40, 3, 17),
         **places(block_tables={"pad": {1: 5}, "offset": 1})),
    case("workspace-strided", "tmp_out has gaps, and more partitions than are needed", h=2, lens=(600, 3), parts=2,
         **places(tmp_out=padded(a1=1, a3=5))),
]  # fmt: skip

TABLES = [
    case("descending-pages", "pages in descending order", tables="descending", lens=(32, 70)),
    case("repeated-pages", "one page stands several times in a table", tables="repeated", lens=(32, 40)),
    case("shared-pages", "sequences share the pages of a common prefix", tables="shared", lens=(100, 70, 130)),
]


def corner(what: str, *pairs: str, **rest: Any) -> list[Case]:
    """Cases "dtype values": corners of the contract that once broke a draft of it."""
    found = [pair.split() for pair in pairs]
    return [case("-".join(names), f"a corner of the contract: {what}", names[0], values=names[1], **rest) for names in found]


VALUES = [
    *corner("logits in tiers", "f16 tiers-up", "f16 tiers-down", "f16 tiers-mixed", "f32 tiers-mixed", "bf16 tiers-down",
            h=2, scale=1.0, lens=(1100,)),
    *corner("one logit is no number", "f16 nan-logit", "bf16 nan-logit", "f32 plus-inf-logit", h=2, lens=(20, 600)),
    *corner("one logit of -inf", "f16 minus-inf-logit", "f32 minus-inf-logit", h=2, lens=(20, 600)),
    *corner("a partition of -inf", "f16 minus-inf-first-partition", "bf16 minus-inf-second-partition", h=2, lens=(1100,)),
    *corner("the last partition of -inf", "f32 minus-inf-second-partition", h=2, lens=(1024,)),
    *corner("a row of -inf", "f16 minus-inf-row", h=2, lens=(3, 530)),
    *corner("V near 2^-120", "f32 tiny-v", "bf16 tiny-v", h=2, lens=(35, 520)),
    *corner("infinite V under a tiny weight", *(f"{t} infinite-v" for t in FLOATS), scale=1.0),
    *corner("logits near 3e9", *(f"{t} huge" for t in FLOATS), h=2, scale=1.0, lens=(35, 520)),
    *corner("the least weight times -2^-24", *(f"{t} least-weights" for t in FLOATS), scale=1.0, lens=(70, 33)),
    case("f16-subnormal-v", "V of subnormal numbers", values="subnormal-v"),
    case("f16-nan-v", "a NaN of V stays in its head dimension", values="nan-v"),
    case("f16-minus-zero-v", "chains begin with +0", values="minus-zero-v"),
    case("f16-huge-negative", "logits near -3e9", values="huge-negative", scale=1.0),
    case("f16-below-one", "the maximum is +0, never -0", values="below-one", scale=1.0),
    case("f16-peak-at-the-end", "the maximum of each warp in turn is the partition's", values="peak-at-the-end", scale=1.0,
         lens=(20, 52, 84, 116)),
    case("f16-zero-k", "every weight is 1", values="zero-k"),
]  # fmt: skip

with open(ROOT / "tests" / "data" / "trace_lengths.json") as _file:
    _BATCHES = json.load(_file)["batches"]

TRACE = [
    case(f"{t}-trace-{i}", "the lengths of a real service's batch", t, h=2, lens=tuple(r["context"] + r["produced"] for r in _BATCHES[i]))
    for i, t in enumerate((*FLOATS, "f16"))
]

CASES = [*SPECIALISATIONS, *LENGTHS, *HEADS, *SCORES, *LAYOUTS, *TABLES, *VALUES, *TRACE, *CAPS, *WINDOWS, *PATTERNS, *FP8]
