"""Cases of paged_decode whose values are what matters: corners that once broke a draft of the contract, or show a fault of their own."""

from __future__ import annotations

from typing import Any

from tests.decode_inputs import case
from tools.cases import Case

FLOATS = ("f16", "bf16", "f32")


def corner(what: str, *pairs: str, splits: tuple[int, ...] = (0, 1), **rest: Any) -> list[Case]:
    """Cases "dtype values": corners of the contract that once broke a draft of it."""
    why = f"a corner of the contract: {what}"
    found = [(*pair.split(), split, 1 + i % 2) for i, pair in enumerate(pairs) for split in splits]
    return [case(f"{t}-{name}-split{split}", why, t, values=name, split=split, warps=warps, **rest) for t, name, split, warps in found]


VALUES = [
    *corner("logits in tiers", "f16 tiers-up", "f16 tiers-down", "f32 tiers-mixed", "bf16 tiers-down", scale=1.0, lens=(1100,)),
    *corner("one logit is no number", "f16 nan-logit", "bf16 nan-logit", "f32 plus-inf-logit", lens=(20, 600)),
    *corner("one logit of -inf", "f16 minus-inf-logit", lens=(20, 600)),
    *corner("a tile of -inf", "f16 minus-inf-first-tile", "f32 minus-inf-second-tile", "bf16 minus-inf-last-tile", lens=(700,)),
    *corner("a span of -inf", "f16 minus-inf-first-partition", "bf16 minus-inf-second-partition", lens=(1100,)),
    *corner("the last span of -inf", "f32 minus-inf-second-partition", splits=(1,), lens=(1024,)),
    *corner("a row of -inf", "f16 minus-inf-row", lens=(3, 530)),
    *corner("a NaN in a later span", "f16 nan-in-second-span", lens=(1100, 20)),
    *corner("V near 2^-120", "f32 tiny-v", "bf16 tiny-v", lens=(35, 520)),
    *corner("infinite V under a tiny weight", *(f"{t} infinite-v" for t in FLOATS), splits=(0,), scale=1.0),
    *corner("infinite V under weights of tiles that fade", "f16 infinite-v-in-faded-tiles", scale=1.0, lens=(700,)),
    *corner("logits near 3e9", *(f"{t} huge" for t in FLOATS), splits=(0,), scale=1.0, lens=(35, 520)),
    *corner("the least weight times -2^-24", *(f"{t} least-weights" for t in FLOATS), splits=(1,), scale=1.0, lens=(70, 33)),
    *corner("sums of -0 in every tile", "f32 minus-zero-sums", scale=1.0, lens=(70, 300, 1100)),
    *corner("sums of -0 by underflow, and V of -0 after it", "bf16 minus-zeros", "f32 minus-zeros", scale=1.0, lens=(20, 300)),
    *corner("infinities and NaN among finite neighbours", *(f"{t} not-finite" for t in FLOATS), lens=(520, 200)),
    *(case(f"{t}-{layout}-d128-group{h}-not-finite-split{split}", "the same in the lanes of other mappings", t, h=h, d=128, layout=layout,
           split=split, values="not-finite", lens=(140, 300), warps=2 * split, window=290)
      for t, layout, h in (("f16", "classic", 8), ("bf16", "classic", 4), ("bf16", "nhd", 4)) for split in (0, 1)),
    *corner("maxima that rise and fall from tile to tile", "f16 uneven-tiles", "f32 uneven-tiles", splits=(0, 1, 2), scale=1.0,
            lens=(1500, 900)),
    *(case(f"f16-d8-{tokens}-uneven-tiles-split{split}", "more stored states than a warp has lanes, each with weights of its own", h=1, d=8,
           values="uneven-tiles", scale=1.0, lens=(tokens,), split=split) for tokens, split in ((5500, 0), (9000, 0), (17000, 1))),
    *corner("weights between tiles at the edge of what is not 0", "f16 fading-tiles", "f32 fading-tiles", scale=1.0, lens=(1100,)),
    case("f16-subnormal-v", "V of subnormal numbers", values="subnormal-v"),
    case("f16-nan-v", "a NaN of V stays in its head dimension", values="nan-v"),
    case("f16-minus-zero-v", "chains begin with +0", values="minus-zero-v"),
    case("f16-huge-negative", "logits near -3e9", values="huge-negative", scale=1.0),
    case("f16-below-one", "the maximum is +0, never -0", values="below-one", scale=1.0),
    case("f16-zero-k", "every weight is 1", values="zero-k", lens=(17, 300)),
]  # fmt: skip
