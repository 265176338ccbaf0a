"""The cases of paged_decode. Specialisations (dtype, head size, page, heads a kv head, layout of V) are few: each is a build."""

from __future__ import annotations

import json
from typing import Any

from tests.decode_inputs import case
from tests.decode_value_cases import FLOATS, VALUES
from tools.cases import ROOT, Case

BASE = {"h": 2, "g": 1, "d": 64, "page": 16}
SPLITS = {0: "a tile a block", 1: "a span a block", 2: "two spans a block", 3: "three spans a block"}


def places(**layouts: dict[str, Any]) -> dict[str, Any]:
    """Layouts by argument."""
    return {"places": layouts}


def padded(**axes: int) -> dict[str, Any]:
    """More elements along axis 0 (``a0``), 1 and so on than the view takes."""
    return {"pad": {int(axis[1:]): more for axis, more in axes.items()}}


def swap(first: int, second: int) -> dict[str, Any]:
    """Two axes whose order in memory is exchanged."""
    return {"swap": (first, second)}


# -- specialisations: (dtype, head size, page size, query heads of a kv head) --

CLASSIC = [
    *((t, 64, 16, 2) for t in FLOATS),
    *(("f16", 64, page, 2) for page in (1, 2, 4, 8, 32, 64, 128, 256)),
    ("bf16", 72, 8, 3), ("f32", 80, 2, 7), ("bf16", 96, 32, 1), ("f16", 112, 16, 5), ("f32", 120, 1, 6), ("bf16", 128, 16, 4),
    ("f16", 128, 16, 8), ("bf16", 128, 16, 1), ("f16", 192, 16, 4), ("bf16", 256, 256, 5), ("f32", 256, 16, 1), ("f16", 8, 16, 1),
    ("f16", 64, 16, 16), ("bf16", 64, 16, 9),
]  # fmt: skip
TOKEN_MAJOR = [
    *((t, 64, 16, 2) for t in FLOATS),
    *(("f16", 64, page, 2) for page in (1, 256)),
    ("f16", 72, 32, 7), ("bf16", 80, 16, 3), ("f32", 96, 8, 4), ("bf16", 112, 1, 1), ("f32", 120, 64, 6), ("bf16", 128, 16, 4),
    ("f16", 128, 16, 1), ("f16", 192, 128, 8), ("bf16", 256, 16, 1), ("f32", 256, 4, 5), ("f16", 8, 2, 1),
]  # fmt: skip


def specialisation(dtype: str, d: int, page: int, group: int, layouts: tuple[str, str], **rest: Any) -> list[Case]:
    """Cases of a specialisation: stored states, spans by one warp a tile and by two (in two layouts), few tokens, which every leg runs."""
    dtypes = "-".join([dtype, *([rest["cache"]] if "cache" in rest else [])])
    name, heads = f"{dtypes}-d{d}-page{page}-group{group}", f"{dtypes}, head size {d}, page {page}, {group} heads a kv head"
    g = 2 if group < 3 else 1
    kinds = (
        (layouts[0], "tile", 0, 0, (1, page + 1, 130)),
        (layouts[1], "span", 1, 1, (max(page - 1, 1), 2 * page + 3, 129)),
        (layouts[0], "pair", 1, 2, (130, 2 * page + 1)),
        (layouts[0], "few", 1, 0, (1, min(page + 1, 17))),
    )
    return [
        case(f"{name}-{layout}-{kind}", f"{heads}, {layout} layout, {SPLITS[split]}: a mapping of lanes of its own", dtype,
             h=group * g, g=g, d=d, page=page, layout=layout, split=split, warps=warps, lens=lens, **rest)
        for layout, kind, split, warps, lens in kinds
    ]  # fmt: skip


def in_turn(found: list[list[Case]]) -> list[Case]:
    """All cases, so that the first ones of the dtypes differ in their mapping: where few cases stand for all, those are taken."""
    return [case for i, some in enumerate(found) for case in some[i % 3 :] + some[: i % 3]]


SPECIALISATIONS = [
    *in_turn([specialisation(*key, ("classic", "classic")) for key in CLASSIC]),
    *in_turn([specialisation(*key, (("nhd", "hnd"), ("hnd", "nhd"))[i % 2]) for i, key in enumerate(TOKEN_MAJOR)]),
]

# -- lengths and shares --

AROUND = [
    ("around-a-tile", "lengths around pages and the end of a tile", (0, 1, 17, 127, 128, 129), {0: 0, 1: 1}),
    ("around-a-span", "lengths around the end of a span", (511, 512, 513), {0: 0, 1: 2, 2: 1}),
    ("third-span", "states of three spans, the last of one token, and a short row beside them", (1025, 3), {0: 0, 1: 2, 2: 2, 3: 1}),
]
LENGTHS = [
    *(case(f"{t}-{layout}-{name}-split{split}", f"{why}; {SPLITS[split]}", t, layout=layout, lens=lens, split=split, warps=warps, **BASE)
      for t in FLOATS for layout in ("classic", "nhd") for name, why, lens, splits in AROUND for split, warps in splits.items()),
    *(case(f"pages-of-256-split{split}", f"tiles that share a page; {SPLITS[split]}", page=256, lens=(255, 257, 511, 1025), split=split)
      for split in (0, 1, 2)),
    *(case(f"pages-of-1-split{split}", f"128 pages a tile; {SPLITS[split]}", page=1, lens=(127, 129, 600), split=split)
      for split in (0, 1)),
    *(case(f"d8-eleven-spans-split{split}", f"many states of a row; {SPLITS.get(split, 'all spans a block')}", h=1, d=8,
           lens=(5500, 1, 2048), split=split, warps=split % 3) for split in (0, 1, 2, 3, 5, 11)),
    *(case(f"d8-eight-spans-warps{warps}", "a row's states in as many blocks as a cluster has, and in memory", h=3, d=8,
           lens=(4096, 0, 3585, 513), split=1, warps=warps, sinks="mixed", window=3000) for warps in (1, 2)),
    case("d8-spans-of-a-block", "warps that copy go from span to span", h=1, d=8, lens=(1600, 3, 700), split=3, warps=2),
    *(case(f"d8-window-in-a-later-span-warps{warps}", "a window begins two spans behind what was asked for first, whose ids may yet come",
           h=1, d=8, lens=(1600, 1100), window=300, split=3, warps=warps) for warps in (1, 2)),
    *(case(f"d8-balanced-{blocks}", f"no part above the fair share of {blocks} blocks, long parts first, rows whole and divided", h=2, g=2,
           d=8, lens=(5500, 1025, 0, 1, 3000, 513), split=-blocks) for blocks in (1, 2, 3, 7, 12, 45, 48, 99)),  # of 48 spans
    case("balanced-window", "parts of windows, with sinks, two blocks a kv head", "bf16", h=18, g=2, lens=(1100, 0, 600), window=700,
         sinks="mixed", split=-5),
    case("balanced-many-sequences", "more sequences than a block has threads, of every class", h=1, d=8, n=300,
         lens={0: 5, 1: 1600, 17: 3000, 100: 700, 128: 1100, 299: 513}, split=-6),
    case("balanced-generous-bound", "a bound far above the lengths", lens=(20, 600), columns=100, split=-3),
    case("balanced-fp8", "over fp8 caches", cache="e4m3", scales=(0.7, 1.3), lens=(1100, 3, 600), split=-4),
    case("balanced-nhd", "over a token-major cache", "bf16", layout="nhd", lens=(1100, 3, 600), split=-4),
    *(case(f"balanced-alone-{length}", "the parts of a sequence alone need no search", h=3, d=16, lens=(length,), window=window, split=-5)
      for length, window in ((0, 0), (1, 0), (5500, 0), (2600, 1500))),
    case("balanced-alone-one-block", "a block takes all of a sequence alone: nothing is left to join", h=3, d=16, lens=(1500,), split=-1),
    *(case(f"balanced-alone-bound-{columns}", "a bound far above the length: what was guessed from it is asked for again", h=3, d=16,
           lens=(1500,), columns=columns, split=-5) for columns in (60, 400)),
    case("balanced-empty", "nothing but sequences of length 0", lens=(0, 0, 0), split=-4),
    case("empty", "nothing but sequences of length 0", lens=(0, 0, 0)),
    case("no-sequences", "an empty grid cannot be launched", lens=()),
    case("many-sequences", "more sequences than a grid has blocks along y or z", h=1, d=8, n=65537, split=1,
         lens={0: 17, 7: 1, 65534: 1, 65535: 3, 65536: 33}),
    case("exact-max-seq-len", "max_seq_len is the longest length", lens=(513, 20), max_seq_len=513, split=0),
    case("generous-max-seq-len", "blocks and states that no sequence has", lens=(20, 200), columns=70, split=0),
    case("generous-spans", "spans that no sequence has", lens=(20, 600), columns=100, split=1),
    case("split-beyond-the-spans", "one block could take more spans than there are", lens=(513, 20), split=1000),
    case("split-of-the-launcher", "the launcher's own choice", "bf16", lens=(513, 20)),
    case("states-to-spare", "the workspace has more states than are stored", lens=(600, 3), states=3, split=0),
    case("workspace-of-the-call", "the call allocates its workspace itself", lens=(600, 3), work=False, split=0),
    case("wide-tables-tiles", "entries past the lengths are poison", lens=(5, 100), columns=9, split=0),
]  # fmt: skip

# -- scores: bias, cap, window, sinks --

SCORES: list[tuple[str, str, dict[str, Any]]] = [
    ("alibi", "ALiBi over several tiles", {"slopes": "classic", "lens": (300, 40)}),
    ("cap", "a soft cap that bends the logits", {"cap": 1.5, "lens": (300, 40)}),
    ("sinks", "a sink for every head, beside an empty row", {"sinks": "mixed", "lens": (300, 0, 40)}),
    ("window-33", "a window within a tile, over its edge, and longer than the row", {"window": 33, "lens": (300, 145, 20)}),
    ("window-200", "a window that begins inside a tile of a later span", {"window": 200, "lens": (700, 1030, 199)}),
    ("all", "ALiBi, cap, window and sinks together", {"slopes": "classic", "cap": 3.0, "window": 150, "sinks": "mixed", "lens": (600, 17)}),
]
PATHS = [
    case(f"{t}-{layout}-{name}-split{split}", f"{why}; {SPLITS[split]}", t, layout=layout, split=split, warps=warps * split, **BASE, **rest)
    for t in FLOATS for layout, warps in (("classic", 1), ("hnd", 2)) for name, why, rest in SCORES for split in (0, 1)
]  # fmt: skip
EDGES = [
    case("alibi-zero-slopes", "the path depends on the presence of slopes, not on their values", slopes="zero"),
    case("alibi-zero-slopes-scale-tiles", "the same where the two paths round in different places", slopes="zero", scale=0.3,
         lens=(17, 140), split=0),
    case("alibi-steep", "old tokens weigh more; logits far apart", slopes="steep", lens=(100,)),
    case("alibi-group-of-5", "slopes of heads in two blocks of a kv head", "bf16", h=10, g=2, d=256, page=256, slopes="classic",
         lens=(140,)),
    case("cap-tiny", "every logit is near the cap", cap=1e-3),
    case("cap-large", "a cap that bends nothing", cap=1e30),
    case("cap-with-nan", "a NaN logit under a cap", cap=2.0, values="nan-logit"),
    case("cap-with-infinity", "an infinite logit under a cap is the cap", cap=2.0, values="plus-inf-logit"),
    *(case(f"sinks-{kind}-split{split}", f"sinks: {kind}; {SPLITS[split]}", sinks=kind, lens=(530, 0, 17), split=split)
      for kind in ("strong", "weak", "minus-inf", "nan", "plus-inf", "huge") for split in (0, 1)),
    case("sinks-group-of-9", "sinks of heads in two blocks of a kv head, of 5 and of 4 heads", "bf16", h=18, g=2, sinks="mixed",
         lens=(140,)),
    case("window-1", "the last token alone", window=1, lens=(1, 16, 17, 129, 513), split=0),
    *(case(f"window-of-a-tile-split{split}", f"windows that begin where tiles do; {SPLITS[split]}", window=128,
           lens=(128, 256, 640, 129), split=split) for split in (0, 1)),
    *(case(f"window-of-a-span-split{split}", f"windows that begin where spans do; {SPLITS[split]}", window=512,
           lens=(512, 1024, 1030), split=split) for split in (0, 1, 2)),
    case("window-last-token-of-a-tile", "one token of the first tile takes part", window=130, lens=(257, 513), split=0),
    case("window-first-token-of-a-tile", "a window ends in a tile of one token", window=129, lens=(257, 513), split=0),
    case("window-beyond-the-length", "a window longer than every row", window=10**12, lens=(300, 5)),
    case("window-that-ends-in-5", "a window of 2^32 + 5 admits all, its low 32 bits would not", window=2**32 + 5, lens=(300, 5)),
    case("window-in-pages-of-256", "a window that begins within a page of two tiles", page=256, window=100, lens=(200, 300, 900), split=0),
    case("window-in-pages-of-1", "a window of pages of one token", page=1, window=100, lens=(200, 300), split=1),
    case("window-two-spans-a-block", "a window that begins in the second span of a block", window=300, lens=(1000, 1500), split=2),
    case("scale-0", "every logit is a zero", scale=0.0),
    case("scale-negative", "a negative scale", scale=-0.3),
    case("scale-1-tiles", "logits of 30 and more", scale=1.0, lens=(140, 9), split=0),
    case("scale-tiny", "subnormal logits", scale=1e-40),
    case("scale-huge-tiles", "logits that overflow", "f32", scale=3e38, lens=(140, 9), split=0),
]  # fmt: skip

# -- heads, layouts, tables --

HEADS = [
    case("gqa-28-4", "groups of 7", "f32", h=28, g=4, d=80, page=2, lens=(17, 3), split=0),
    case("mqa-7-1", "a group of 7 alone", "f32", h=7, g=1, d=80, page=2, lens=(130, 3), split=1),
    case("gqa-28-4-nhd", "groups of 7, a token's heads side by side", h=28, g=4, d=72, page=32, layout="nhd", lens=(33, 3), split=1),
    case("gqa-32-8", "the usual group of 4", "bf16", h=32, g=8, d=128, lens=(33,)),
    case("gqa-32-8-hnd", "the usual group of 4, a head's tokens side by side", "bf16", h=32, g=8, d=128, layout="hnd", lens=(33,)),
    case("gqa-64-8", "groups of 8", h=64, g=8, d=128, lens=(33,)),
    case("mha-32", "every query head has its own kv head", "bf16", h=32, g=32, d=128, lens=(33,)),
    case("gqa-8-1-many", "groups of 8 whole in blocks of two warps a tile: more blocks than half the multiprocessors", h=8, g=1, n=70,
         lens={0: 130, 1: 17, 69: 600}, split=1, warps=2),
    *(case(f"gqa-{h}-1-tiles", f"a group of {h}, a tile a block: too many for two heads each", dtype, h=h, g=1, d=d, n=40,
           layout=layout, lens={0: 130, 1: 17, 39: 300}, split=0)
      for dtype, h, d, layout in (("bf16", 3, 80, "nhd"), ("bf16", 4, 128, "classic"), ("f16", 5, 112, "classic"),
                                  ("f16", 8, 64, "classic"))),
    case("mqa-16-1", "a group of 16 in two blocks of 8 heads", h=16, g=1, lens=(300,), split=0),
    case("gqa-32-2", "groups of 16 in two blocks of 8 heads, spans stored", h=32, g=2, lens=(600,), split=1),
    case("gqa-18-2", "groups of 9 in blocks of 5 and 4 heads", "bf16", h=18, g=2, lens=(600, 5), split=0),
    case("one-head", "h and g of 1", h=1, d=8),
]
STRIDES = [
    *(case(f"{t}-q-of-qkv", "q is a slice of qkv", t, **places(q=padded(a1=4))) for t in FLOATS),
    case("q-heads-first", "q is a view of [h, n, d]", **places(q=swap(0, 1))),
    case("q-offset-1", "q need not be aligned", **places(q={"offset": 1})),
    case("kv-strides-differ", "K and V have strides of their own", h=4, g=2, **places(k_cache=padded(a0=1, a1=1), v_cache=padded(a1=2))),
    case("kv-heads-first", "caches are views of [g, pages, ...]", "f32", h=4, g=2, **places(k_cache=swap(0, 1), v_cache=swap(0, 1))),
    case("k-heads-first", "K is, V is not", "bf16", h=4, g=2, **places(k_cache=swap(0, 1))),
    case("k-vectors-last", "K as [pages, g, page, d/x, x]", **places(k_cache=swap(2, 3))),
    case("v-pages-padded", "V's dimensions lie further apart than a page", **places(v_cache=padded(a3=8))),
    case("nhd-of-a-fused-cache", "K and V of [pages, page, 2 g, d]", h=4, g=2, layout="nhd",
         **places(k_cache=padded(a2=2), v_cache=padded(a2=2))),
    case("nhd-heads-padded", "rows of 64 in 72", h=4, g=2, layout="nhd", **places(k_cache=padded(a3=8), v_cache=padded(a3=8))),
    case("hnd-slots-padded", "heads of 16 slots in 17", h=4, g=2, layout="hnd", **places(k_cache=padded(a2=1), v_cache=padded(a2=1))),
    case("k-nhd-v-classic-tiles", "K token by token, V dimension by dimension", h=4, g=2, layout="nhd/classic", lens=(17, 140), split=0),
    case("k-classic-v-hnd-tiles", "K classic, V token by token", h=4, g=2, layout="classic/hnd", lens=(17, 140), split=0),
    case("k-hnd-v-nhd-tiles", "K head by head, V token by token", h=4, g=2, layout="hnd/nhd", lens=(17, 140), split=0),
    case("out-strided", "the output's rows and heads have gaps", **places(out=padded(a1=1, a2=3))),
    case("out-heads-first", "the output is a view of [h, n, d]", "bf16", **places(out=swap(0, 1))),
    case("out-offset-1", "the output need not be aligned", "f32", **places(out={"offset": 1})),
    case("lse-heads-first", "lse is a view of [h, n]", **places(lse=swap(0, 1))),
    case("lse-padded", "lse rows have gaps", "f32", **places(lse={"pad": {1: 3}, "offset": 1})),
    case("without-lse", "lse is optional", "bf16", lse=False, lens=(300, 0), split=0),
    case("tables-padded", "rows of the table are longer than the view", lens=(40, 3, 17),
         **places(block_tables={"pad": {1: 5}, "offset": 1})),
    case("workspace-strided", "part_a has gaps, and more states than are needed", lens=(600, 3), states=2, split=0,
         **places(part_a=padded(a1=1, a3=5))),
    case("workspace-heads-first", "part_a is a view of [h, n, states, d]", lens=(1100, 3), split=1, **places(part_a=swap(0, 1))),
]  # fmt: skip
TABLES = [
    case(f"{kind}-pages-{layout}", why, layout=layout, tables=kind, lens=lens, split=0)
    for layout in ("classic", "nhd")
    for kind, why, lens in (
        ("descending", "pages in descending order", (32, 170)),
        ("repeated", "one page stands several times in a table", (32, 140)),
        ("shared", "sequences share the pages of a common prefix", (100, 70, 130)),
    )
]

# -- fp8 caches --

#: (dtype, of the caches, head size, page size, query heads of a kv head, layouts)
FP8_MAPPINGS = [
    ("f16", "e4m3", 64, 16, 2, ("classic", "classic")), ("bf16", "e5m2", 64, 16, 2, ("classic", "classic")),
    ("f16", "e4m3", 64, 16, 2, ("nhd", "hnd")), ("bf16", "e4m3", 128, 16, 4, ("classic", "classic")),
    ("f16", "e5m2", 128, 16, 8, ("hnd", "nhd")), ("f16", "e4m3", 32, 1, 1, ("classic", "classic")),
    ("bf16", "e5m2", 16, 256, 1, ("classic", "classic")), ("bf16", "e4m3", 16, 2, 8, ("classic", "classic")),
    ("f32", "e4m3", 48, 4, 3, ("classic", "classic")), ("bf16", "e5m2", 256, 1, 1, ("hnd", "nhd")),
]  # fmt: skip


def fp8(dtype: str, cache: str, name: str, why: str, **rest: Any) -> Case:
    """A case over fp8 caches."""
    return case(f"{dtype}-{cache}-{name}", why, dtype, cache=cache, **{"scales": (0.5, 2.0), **rest})


MAIN = (("f16", "e4m3", "classic"), ("bf16", "e5m2", "classic"), ("f16", "e4m3", "nhd"))
FP8 = [
    *in_turn([specialisation(t, d, page, group, layouts, cache=c, scales=(0.7, 1.3)) for t, c, d, page, group, layouts in FP8_MAPPINGS]),
    *(fp8(t, c, f"{layout}-scales-split{split}", f"scales that differ, powers of two; {SPLITS[split]}", layout=layout, split=split,
          warps=split) for t, c, layout in MAIN for split in (0, 1)),
    *(fp8(t, c, f"{layout}-head-scales-split{split}", f"a scale a kv head, inexact products; {SPLITS[split]}", layout=layout, split=split,
          h=4, g=2, scales=([0.3, 1.7], [2.1, 0.013]), lens=(18, 0, 140)) for t, c, layout in MAIN for split in (0, 1)),
    *(fp8(t, c, f"{layout}-not-finite-split{split}", "NaN, and in e5m2 infinities, among finite neighbours", layout=layout, split=split,
          values="not-finite", lens=(300,)) for t, c, layout in MAIN for split in (0, 1)),
    fp8("f16", "e4m3", "mixed-scales", "one scale for K, one a kv head for V", h=4, g=2, scales=(0.7, [3.0, 0.25])),
    fp8("bf16", "e5m2", "mixed-scales", "one scale a kv head for K, one for V", h=4, g=2, scales=([3.0, 0.25], 0.7)),
    *(fp8(t, c, f"spans-split{split}", f"states of two spans; {SPLITS[split]}", lens=(513, 3), split=split)
      for t, c, _ in MAIN[:2] for split in (0, 1, 2)),
    *(fp8(t, c, f"{layout}-all", "ALiBi, cap, window and sinks together: what lies before the window is poison", layout=layout, split=1,
          slopes="classic", cap=3.0, window=37, sinks="mixed", lens=(150, 17)) for t, c, layout in MAIN),
    *(fp8(t, c, "finite-v", "every finite pattern in V, subnormal numbers among them", patterns=f"finite-{c}", scales=(0.5, 0.3), split=1)
      for t, c, _ in MAIN[:2]),
    *(fp8(t, c, f"{layout}-all-v", "infinity and NaN in V stay in their head dimensions", layout=layout, patterns="all")
      for t, c, layout in MAIN),
    *(fp8(t, c, "nan-k", "a NaN in K", values="nan-logit") for t, c, _ in MAIN[:2]),
    *(fp8(t, c, "saturated", "K beyond the greatest number of fp8", values="huge", scale=1.0) for t, c, _ in MAIN[:2]),
    fp8("f16", "e4m3", "subnormal-v", "V of subnormal numbers, under a small scale", values="subnormal-v", scales=(1.0, 0.0019)),
    fp8("bf16", "e5m2", "subnormal-v", "V of subnormal numbers", values="subnormal-v", scales=(1.0, 1.0)),
    fp8("f16", "e4m3", "nan-scale", "the scale of V is a NaN", scales=(1.0, float("nan"))),
    fp8("f16", "e4m3", "zero-scale", "a scale of K of 0: every weight is 1", scales=(0.0, 1.0)),
    fp8("bf16", "e5m2", "huge-scale", "products with the scale overflow", patterns="all", scales=(1.0, 3e38)),
    fp8("bf16", "e5m2", "tiny-scale", "products with the scale are subnormal", patterns="finite-e5m2", scales=(1.0, 1e-44)),
    fp8("f16", "e4m3", "strides", "K and V have strides of their own", h=4, g=2,
        **places(k_cache=padded(a0=1, a1=1), v_cache=padded(a1=2))),
    fp8("f16", "e4m3", "heads-padded", "rows of 64 in 80", h=4, g=2, layout="nhd", **places(k_cache=padded(a3=16), v_cache=padded(a3=16))),
    fp8("f16", "e4m3", "k-nhd-v-classic", "K token by token, V dimension by dimension", layout="nhd/classic", lens=(17, 40)),
]  # fmt: skip

with open(ROOT / "tests" / "data" / "trace_lengths.json") as _file:
    _BATCHES = json.load(_file)["batches"]

TRACE = [
    case(f"{t}-trace-{i}-{layout}", "the lengths of a real service's batch", t, layout=layout, split=split, warps=warps,
         lens=tuple(r["context"] + r["produced"] for r in _BATCHES[i]))
    for i, (t, layout, split, warps) in enumerate(
        (("f16", "classic", None, 0), ("bf16", "nhd", 1, 1), ("f32", "hnd", 0, 0), ("f16", "nhd", 3, 2)))
]  # fmt: skip

CASES = [*SPECIALISATIONS, *LENGTHS, *PATHS, *EDGES, *HEADS, *STRIDES, *TABLES, *VALUES, *FP8, *TRACE]
