"""paged_decode against float64 attention, and its corner cases against what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from pyref import contract
from tests import decode_oracle, harness, oracle
from tests.decode_cases import CASES
from tests.decode_inputs import inputs
from tools import cases, compare
from tools.cases import Case

STEM = "paged_decode"
BY_ID = {case.id: case for case in CASES}


def results(found: Case) -> dict[str, np.ndarray]:
    """Outputs of a case by the definition."""
    return harness.compute(STEM, inputs(found))


# -- the bound --

UNBOUNDED = {"alibi-steep", "scale-1-tiles", "scale-huge-tiles"}  # logits whose own rounding counts for more
UNBOUNDED |= {"many-sequences"}  # slow
UNBOUNDED |= {"f16-e4m3-nan-scale", "bf16-e5m2-tiny-scale"}  # no numbers, and products that lose bits
NO_NUMBERS = {("sinks", "nan"), ("sinks", "plus-inf"), ("patterns", "all")}


def judged(case: Case) -> bool:
    """Whether a case's outputs are numbers that the bound is meant for."""
    return "values" not in case.shape and case.id not in UNBOUNDED and not any(case.shape.get(name) == kind for name, kind in NO_NUMBERS)


JUDGED = [case for case in CASES if judged(case)]


@harness.each(JUDGED)
def test_the_error_keeps_its_bound(case: Case) -> None:
    before = cases.views(inputs(case))
    got = results(case)
    for n in np.flatnonzero(before["seq_lens"]):
        exact = decode_oracle.decode(before, n)
        assert oracle.worst(got["out"][n], exact, case.dtypes["T"]) <= 1
        if "lse" in got:
            assert (np.abs(got["lse"][n] - exact.lse) <= 16 * 2.0**-24 * np.maximum(1, np.abs(exact.lse))).all()


def test_the_bound_can_be_missed() -> None:
    """A token more or less, a sink or a cap forgotten, a head taken for its neighbour: each leaves the bound by far."""
    found = BY_ID["f16-classic-all-split0"]
    before, got = cases.views(inputs(found)), results(found)
    k, v = (contract.to_f32(x).astype(np.float64) for x in decode_oracle.gather(before, 1))
    wrong = {
        "the last token is lost": decode_oracle.attention(before, 1, k[:-1], v[:-1]),
        "the first token is lost": decode_oracle.attention(before, 1, k[1:], v[1:]),
        "the sink is lost": decode_oracle.attention({**before, "sinks": None}, 1, k, v),
        "the cap is lost": decode_oracle.attention({**before, "cap": 0}, 1, k, v),
        "the slopes are lost": decode_oracle.attention({**before, "alibi_slopes": None}, 1, k, v),
        "the scale is lost": decode_oracle.attention({**before, "scale": 1.0}, 1, k, v),
        "heads are exchanged": decode_oracle.attention({**before, "q": before["q"][:, ::-1]}, 1, k, v),
    }
    assert oracle.worst(got["out"][1], decode_oracle.decode(before, 1), "f16") <= 1
    for what, exact in wrong.items():
        assert oracle.worst(got["out"][1], exact, "f16") > 10, what
    found = BY_ID["f16-classic-window-33-split0"]
    before, got = cases.views(inputs(found)), results(found)
    k, v = (contract.to_f32(x).astype(np.float64) for x in decode_oracle.gather(before, 0))
    assert len(k) == 33
    assert oracle.worst(got["out"][0], decode_oracle.decode(before, 0), "f16") <= 1
    assert oracle.worst(got["out"][0], decode_oracle.attention(before, 0, k[1:], v[1:]), "f16") > 10, "a window of 32"


# -- corner cases do what their names say --


def of(name: str) -> dict[str, np.ndarray]:
    """Outputs of a case in binary32."""
    return {key: contract.to_f32(values) for key, values in results(BY_ID[name]).items()}


def bits_are(values: np.ndarray, pattern: int) -> bool:
    """Whether every element has these bits."""
    return bool((compare.bits(values) == pattern).all())


def test_sequences_without_tokens_give_plus_zero_and_minus_infinity() -> None:
    for name in ("f16-classic-around-a-tile-split0", "f32-classic-sinks-split1"):
        found, lens = of(name), np.array(BY_ID[name].shape["lens"])
        assert bits_are(found["out"][lens == 0], 0)
        assert bits_are(found["lse"][lens == 0], 0xFF800000)
        assert np.isfinite(found["out"]).all()
        assert np.isfinite(found["lse"][lens > 0]).all()


@pytest.mark.parametrize("name", ["f16-nan-logit-split0", "bf16-nan-logit-split1", "f32-plus-inf-logit-split0", "cap-with-nan"])
def test_one_logit_without_a_value_makes_its_row_nan(name: str) -> None:
    raw = results(BY_ID[name])
    assert bits_are(raw["out"], 0x7FFFFFFF if name.startswith("f32") else 0x7FFF)  # C9
    assert bits_are(raw["lse"], 0x7FFFFFFF)


def test_a_nan_of_one_sequence_stays_there() -> None:
    found = of("f16-nan-in-second-span-split1")
    assert np.isnan(found["out"][0]).all()
    assert np.isfinite(found["out"][1]).all()


def test_an_infinite_logit_under_a_cap_is_the_cap() -> None:
    found = of("cap-with-infinity")
    assert np.isfinite(found["out"]).all()


@pytest.mark.parametrize("split", [0, 1])
def test_logits_of_minus_infinity(split: int) -> None:
    for name in ("f16-minus-inf-logit", "f16-minus-inf-first-tile", "f32-minus-inf-second-tile", "f16-minus-inf-first-partition"):
        assert np.isfinite(of(f"{name}-split{split}")["out"]).all()
    row = of(f"f16-minus-inf-row-split{split}")
    assert np.isnan(row["out"]).all()
    assert np.isneginf(row["lse"]).all()


def test_infinite_values() -> None:
    for dtype in ("f16", "bf16", "f32"):
        out = of(f"{dtype}-infinite-v-split0")["out"]
        assert np.isposinf(out[..., 0]).all()
        assert np.isneginf(out[..., 2]).all()
        assert np.isnan(out[..., [1, 3]]).all()
        assert np.isfinite(out[..., 4:]).all()
    out = of("f16-infinite-v-in-faded-tiles-split1")["out"]
    assert np.isnan(out[..., 0]).all(), "a tile under the weight +0 is still multiplied"
    assert np.isposinf(out[..., 1]).all()
    assert np.isneginf(out[..., 2]).all()
    assert np.isfinite(out[..., 3:]).all()
    out = of("f16-nan-v")["out"]
    assert np.isnan(out[..., 3]).all()
    assert np.isfinite(np.delete(out, 3, axis=-1)).all()


def test_zeros_and_underflow() -> None:
    assert bits_are(of("f16-minus-zero-v")["out"], 0)
    tokens = np.array([[17], [300]], np.float32)  # every p is 1, every sum exact: m = 0, l = the number of tokens
    got = of("f16-zero-k")["lse"]
    assert np.array_equal(got, np.broadcast_to(contract.lse(np.zeros_like(tokens), tokens), got.shape))
    assert bits_are(of("f32-minus-zero-sums-split0")["out"][0], 0x80000000), "a is -0 and stays it where it is the only tile"
    for t in ("bf16", "f32"):
        assert bits_are(of(f"{t}-minus-zeros-split0")["out"], 0x80000000), "V of -0 leaves a at -0"
    tiny = of("f32-tiny-v-split0")["out"]
    assert (np.abs(tiny) < 2.0**-110).all()
    assert (tiny != 0).all()


def test_sinks_of_every_size() -> None:
    free, lens = of("f16-classic-sinks-split0"), np.array(BY_ID["sinks-strong-split0"].shape["lens"])
    assert np.isfinite(free["out"]).all()
    assert (np.abs(of("sinks-strong-split0")["out"]) < 1e-6).all(), "the tokens weigh nothing beside it"
    assert (np.abs(of("sinks-strong-split0")["lse"][lens > 0].astype(np.float64) - 60) <= 2.0**-18).all(), "one ulp of 60 is 2^-18"
    for name in ("weak", "minus-inf", "huge"):
        found, arguments = of(f"sinks-{name}-split1"), inputs(BY_ID[f"sinks-{name}-split1"])
        del arguments["sinks"]
        without = harness.compute(STEM, arguments)
        assert np.array_equal(found["out"], contract.to_f32(without["out"])), "the sink weighs nothing beside the tokens"
    for name in ("nan", "plus-inf"):
        out = of(f"sinks-{name}-split0")["out"]
        assert np.isfinite(out[:, 0]).all()
        assert np.isnan(out[lens > 0, 1]).all()
        assert bits_are(out[lens == 0], 0)


# -- fp8 caches --


def test_a_lost_scale_leaves_the_bound() -> None:
    """Scales exchanged, or those of one kv head taken for both."""
    found = BY_ID["f16-e4m3-classic-head-scales-split0"]
    before, got = cases.views(inputs(found)), results(found)
    assert oracle.worst(got["out"][2], decode_oracle.decode(before, 2), "f16") <= 1
    for wrong in (
        {"k_scale": before["v_scale"], "v_scale": before["k_scale"]},
        {"k_scale": before["k_scale"][::-1]},
        {"v_scale": before["v_scale"][:1]},
    ):
        assert oracle.worst(got["out"][2], decode_oracle.decode({**before, **wrong}, 2), "f16") > 10, wrong


def test_patterns_of_fp8_that_are_no_numbers_stay_in_their_dimensions() -> None:
    for name, infinite, nan in (("f16-e4m3-classic-all-v", [], [15]), ("bf16-e5m2-classic-all-v", [12], [13, 14, 15])):
        out = of(name)["out"].reshape(-1, 16)  # patterns 0x70 to 0x7F in turn
        assert np.isposinf(out[:, infinite]).all()
        assert np.isnan(out[:, nan]).all()
        assert np.isfinite(np.delete(out, [*infinite, *nan], axis=1)).all()
    for name in ("f16-e4m3-nan-k", "bf16-e5m2-nan-k"):
        assert np.isnan(of(name)["out"]).all()


def test_scales_at_their_limits() -> None:
    assert np.isnan(of("f16-e4m3-nan-scale")["out"]).all()
    assert np.isposinf(of("bf16-e5m2-huge-scale")["out"].reshape(-1, 16)[:, :12]).all(), "all of them are finite in the cache"
    tiny = of("bf16-e5m2-tiny-scale")["out"]
    assert (np.abs(tiny) < 2.0**-126).all(), "subnormal"
    assert (tiny != 0).any()
    tokens = np.array([[17], [35]], np.float32)  # every p is 1: m = 0, l = the number of tokens
    assert np.array_equal(of("f16-e4m3-zero-scale")["lse"], np.broadcast_to(contract.lse(np.zeros_like(tokens), tokens), (2, 2)))
