"""What paged_attention_v1 and _v2 promise beyond equal legs: equal versions, no trace of the batch, a bound on the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pyref import classic_spec, contract, paged_attention_v1, paged_attention_v2
from pyref.spec import DTYPES
from tests import harness, oracle, paged_inputs
from tests.paged_cases import CASES
from tests.sparse import sparse
from tools import cases, compare, legs, verify
from tools.arena import place, sentinel, sentinel_bits
from tools.cases import Case

V1, V2 = STEMS = ("paged_attention_v1", "paged_attention_v2")
BY_ID = {case.id: case for case in CASES}
MIXED = [f"{t}-mixed-lengths" for t in ("f16", "bf16", "f32")]
MIXED += ["f16-page8-length-1025", "bf16-page32-length-1025", "f32-page256-length-770"]
MIXED += ["f32-window-600", "f16-pattern-slides", "f16-e4m3-mixed-lengths"]
stems = pytest.mark.parametrize("stem", STEMS)
mixed = harness.each([BY_ID[name] for name in MIXED])


def results(stem: str, arguments: Mapping[str, Any], leg: str = "ref") -> dict[str, np.ndarray]:
    """out and lse."""
    return {name: values for name, values in harness.compute(stem, arguments, leg).items() if name in ("out", "lse")}


def runners() -> list[str]:
    """The legs on which a property is tried: the definition, and the CUDA source on the CPU."""
    return [name for name in ("ref", "host") if not legs.leg(name).missing()]


def assert_same(got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Every output has the same bytes."""
    assert set(got) == set(expected)
    for name, values in got.items():
        assert compare.difference(name, values, expected[name]) is None


@harness.each(CASES)
def test_both_versions_return_the_same_bytes(case: Case) -> None:
    first, second = (results(stem, cases.inputs(stem, case)) for stem in STEMS)
    assert_same(second, first)


@stems
@mixed
def test_the_place_of_pages_plays_no_part(stem: str, case: Case) -> None:
    before = cases.inputs(stem, case)
    pages = len(before["k_cache"].view)
    order = np.roll(np.arange(pages)[::-1], 1)  # page i moves to order[i]
    table = before["block_tables"].view
    moved = {**before, "block_tables": place(np.where(table >= 0, order[table], table).astype(np.int32))}
    for name in ("k_cache", "v_cache"):
        values = np.empty_like(before[name].view)
        values[order] = before[name].view
        moved[name] = place(values)
    for leg in runners():
        assert_same(results(stem, moved, leg), results(stem, before))


@stems
@mixed
def test_the_batch_around_a_sequence_plays_no_part(stem: str, case: Case) -> None:
    before = cases.inputs(stem, case)
    whole = results(stem, before)
    count = len(before["seq_lens"].view)
    for rows in ([count - 1], [0], list(range(count))[::-1], [0, count - 1, 0, count - 1, count - 1]):
        some = {**before, **{name: place(before[name].view[rows]) for name in ("q", "block_tables", "seq_lens")}}
        for name in cases.kernel(stem).outputs:
            some[name] = sentinel((len(rows), *before[name].view.shape[1:]), before[name].view.dtype)
        for leg in runners():
            assert_same(results(stem, some, leg), {name: values[rows] for name, values in whole.items()})


@stems
@mixed
def test_slots_and_pages_without_tokens_play_no_part(stem: str, case: Case) -> None:
    before = cases.inputs(stem, case)
    clean = dict(before)
    for name in ("k_cache", "v_cache"):
        values = before[name].view.copy()
        bits = compare.bits(values)
        unused = bits == np.iinfo(bits.dtype).max
        assert unused.any()
        bits[unused] = 0
        clean[name] = place(bits.view(values.dtype))
    clean["block_tables"] = place(np.maximum(before["block_tables"].view, 0))
    for leg in runners():
        assert_same(results(stem, clean, leg), results(stem, before))


@stems
@harness.each([BY_ID["exact-max-seq-len"], BY_ID["tables-without-room"], BY_ID["f32-page256-length-770"], BY_ID["pattern-and-window"],
               BY_ID["f16-e4m3"]])
def test_nothing_beyond_the_length_is_touched(stem: str, case: Case) -> None:
    """Logits end where max_seq_len does, tables with the last page: what lies beyond is nobody's, and bytes do not show it. Nor do they
    show a race."""
    found = verify.run_case(stem, case, [legs.HostCheck()])
    assert all(result.equal for result in found), found


def test_partitions_without_tokens_are_not_written() -> None:
    before = cases.inputs(V2, BY_ID["generous-max-seq-len"])
    got = harness.compute(V2, before)
    assert before["tmp_out"].view.shape[2] > 1
    for name in ("tmp_out", "exp_sums", "max_logits"):
        assert (compare.bits(got[name][:, :, 1:]) == sentinel_bits(got[name].dtype)).all()
        assert np.isfinite(got[name][:, :, 0]).all()


# -- the bound --

UNJUDGED = ("many-sequences", "alibi-steep", "scale-1", "pattern-without-local-blocks", "f16-e4m3-nan-scale", "f32-e4m3-subnormal-products")
JUDGED = [c for c in CASES if "values" not in c.shape and c.shape.get("patterns") != "all" and c.id not in UNJUDGED]


@harness.each(JUDGED)
def test_the_error_keeps_its_bound(case: Case) -> None:
    """``alibi-steep`` and ``scale-1`` have logits so large that their own rounding counts for more, and subnormal products lose bits: the
    bound is not made for them. Others have no finite result."""
    before = cases.views(cases.inputs(V1, case))
    got = results(V1, cases.inputs(V1, case))
    for n in np.flatnonzero(before["seq_lens"]):
        exact = oracle.paged(before, n)
        assert oracle.worst(got["out"][n], exact, case.dtypes["T"]) <= 1
        if "lse" in got:
            assert (np.abs(got["lse"][n] - exact.lse) <= 16 * 2.0**-24 * np.maximum(1, np.abs(exact.lse))).all()


def test_the_bound_can_be_missed() -> None:
    """One token less, one token more in the scale's stead, a head taken for its neighbour: each leaves the bound by far."""
    case = BY_ID["f16-mixed-lengths"]
    before, got = cases.views(cases.inputs(V1, case)), results(V1, cases.inputs(V1, case))
    q, scale = before["q"][2], before["scale"]
    k, v = oracle.gather(before, 2)
    wrong = {
        "the last token is lost": oracle.attention(q, k[:-1], v[:-1], scale),
        "the scale is lost": oracle.attention(q, k, v, 1.0),
        "heads are exchanged": oracle.attention(q[::-1], k, v, scale),
        "V of the neighbouring head": oracle.attention(q, k, v[:, ::-1], scale),
    }
    assert oracle.worst(got["out"][2], oracle.paged(before, 2), "f16") <= 1
    for what, exact in wrong.items():
        assert oracle.worst(got["out"][2], exact, "f16") > 10, what


def test_the_oracle_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = cases.views(cases.inputs(V1, BY_ID["gqa-8-2"]))
    k, v = oracle.gather(before, 1)
    exact = oracle.paged(before, 1)
    q, k, v = (torch.from_numpy(contract.to_f32(x)).double() for x in (before["q"][1], k, v))
    other = torch.nn.functional.scaled_dot_product_attention(
        q[None, :, None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], scale=float(np.float32(before["scale"])), enable_gqa=True
    )[0, :, 0].numpy()
    assert np.abs(other - exact.out).max() < 1e-14


UNITS = [(1.0, "f16", 2.0**-10), (1.99, "bf16", 2.0**-7), (2.0, "f32", 2.0**-22), (0.0, "f16", 2.0**-24), (2.0**-15, "f16", 2.0**-24)]


@pytest.mark.parametrize(("x", "dtype", "expected"), UNITS)
def test_units_in_the_last_place(x: float, dtype: str, expected: float) -> None:
    assert oracle.ulp(np.float64(x), dtype) == expected


# -- corner cases do what their names say --


def of(name: str, stem: str = V1) -> dict[str, np.ndarray]:
    """The definition's outputs of a case in binary32."""
    return {key: contract.to_f32(values) for key, values in harness.compute(stem, cases.inputs(stem, BY_ID[name])).items()}


def bits_are(values: np.ndarray, pattern: int) -> bool:
    """Whether every element has these bits."""
    return bool((compare.bits(values) == pattern).all())


def test_sequences_without_tokens_give_plus_zero_and_minus_infinity() -> None:
    found = of("f32-mixed-lengths")
    assert bits_are(found["out"][0], 0)
    assert bits_are(found["lse"][0], 0xFF800000)
    assert np.isfinite(found["out"][1:]).all()
    assert np.isfinite(found["lse"][1:]).all()


@pytest.mark.parametrize("name", ["f16-nan-logit", "bf16-nan-logit", "f32-plus-inf-logit"])
def test_one_logit_without_a_value_makes_its_row_nan(name: str) -> None:
    raw = harness.compute(V1, cases.inputs(V1, BY_ID[name]))
    assert bits_are(raw["out"], 0x7FFFFFFF if name.startswith("f32") else 0x7FFF)  # C9
    assert bits_are(raw["lse"], 0x7FFFFFFF)


def test_logits_of_minus_infinity() -> None:
    assert np.isfinite(of("f16-minus-inf-logit")["out"]).all()
    assert np.isfinite(of("f16-minus-inf-first-partition")["out"]).all()
    assert np.isfinite(of("bf16-minus-inf-second-partition")["out"]).all()
    assert np.isnan(of("f16-minus-inf-row")["out"]).all()
    partial = of("bf16-minus-inf-second-partition", V2)
    assert np.isneginf(partial["max_logits"][:, :, 1]).all()
    assert bits_are(partial["exp_sums"][:, :, 1], 0)


def test_infinite_values() -> None:
    for dtype in ("f16", "bf16", "f32"):
        out = of(f"{dtype}-infinite-v")["out"]
        assert np.isposinf(out[..., 0]).all()
        assert np.isneginf(out[..., 2]).all()
        assert np.isnan(out[..., [1, 3]]).all()
        assert np.isfinite(out[..., 4:]).all()
    for cache, nans in (("e4m3", [15]), ("e5m2", [13, 14, 15])):
        out = of(f"bf16-{cache}-all-v")["out"][..., :16]
        assert np.isnan(out[..., nans]).all()
        assert np.isinf(out[..., 12]).all() == (cache == "e5m2")
        assert np.isfinite(np.delete(out, [12, *nans], axis=-1)).all()
    out = of("f16-nan-v")["out"]
    assert np.isnan(out[..., 3]).all()
    assert np.isfinite(np.delete(out, 3, axis=-1)).all()


def test_zeros_and_underflow() -> None:
    assert bits_are(of("f16-minus-zero-v")["out"], 0)
    assert bits_are(of("f16-below-one", V2)["max_logits"], 0)
    assert (of("f16-zero-k", V2)["exp_sums"][:, :, 0] == [[17], [35]]).all()
    sums = of("f32-least-weights", V2)["tmp_out"]
    assert ((sums < 0) & (sums > -(2.0**-126))).any(), "products underflow"
    tiny = of("f32-tiny-v")["out"]
    assert (np.abs(tiny) < 2.0**-110).all()
    assert (tiny != 0).all()
    assert (of("f16-huge", V2)["max_logits"][1] > 2.0**32).all()


# -- what callers use, and wide indices --


CHOICES = [(1, 1, 0, 1), (1, 1, 512, 1), (1, 1, 513, 2), (16, 32, 8192, 2), (17, 32, 8192, 1), (513, 1, 8192, 1), (999, 99, 8193, 2)]


@pytest.mark.parametrize(("seqs", "heads", "longest", "version"), CHOICES)
def test_the_classic_choice(seqs: int, heads: int, longest: int, version: int) -> None:
    assert classic_spec.choose_version(seqs, heads, longest) == version


def test_the_workspace_is_what_version_2_takes() -> None:
    before = cases.views(cases.inputs(V2, BY_ID["f16-mixed-lengths"]))
    plain = {name: before[name] for name in ("q", "k_cache", "v_cache", "block_tables", "seq_lens", "scale")}
    n, h, d = before["q"].shape
    room = classic_spec.workspace(n, h, d, 544)
    assert room["tmp_out"].shape == (n, h, 2, d)
    assert room["exp_sums"].shape == room["max_logits"].shape == (n, h, 2)
    with_room = paged_attention_v2.run(**plain, **room, max_seq_len=544)
    assert with_room[1] is room["tmp_out"]
    expected = paged_attention_v1.run(**plain)
    assert compare.difference("out", with_room[0], expected) is None
    assert compare.difference("out", paged_attention_v2.run(**plain)[0], expected) is None


def far(shape: tuple[int, ...], dtype: str, step: int) -> np.ndarray:
    """An array whose first axis advances by ``step`` elements, over memory that comes to be where it is written."""
    strides = [1]
    for size in reversed(shape[2:]):
        strides.insert(0, strides[0] * size)
    return sparse(shape, DTYPES[dtype][0], (step, *strides))


@stems
@pytest.mark.parametrize("leg", ["ref", "sim", "host"])
def test_no_index_is_cut_to_32_bits(stem: str, leg: str) -> None:
    """BUGS: block id x stride. Pages are 40 x 128 x 16 elements apart: page 26,215 begins beyond 2^31 of them, page 52,429 beyond 2^32.
    Rows of everything else lie 2^32 elements apart. No big memory is used."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    near = paged_inputs.inputs(stem, paged_inputs.case("far", "", h=2, g=1, d=32, page=16, lens=(17, 20)))
    before, expected = cases.views(near), results(stem, near)
    wide = 2**32 + 64
    ids = np.array([26_215, 52_429, 52_430, 26_216, 0, 7, 9], np.int32)
    arguments: dict[str, Any] = {"seq_lens": before["seq_lens"], "scale": before["scale"]}
    for name in ("k_cache", "v_cache"):
        arguments[name] = far((52_431, *before[name].shape[1:]), "f16", 40 * 128 * 16)
        arguments[name].view(np.uint16)[ids] = before[name].view(np.uint16)
    table = before["block_tables"]
    arguments["block_tables"] = far(table.shape, "i32", wide)
    arguments["block_tables"][...] = np.where(table >= 0, ids[table], table)
    for name in ("q", "out", "lse", "tmp_out"):
        if name in before:
            arguments[name] = far(before[name].shape, "f16" if name in ("q", "out") else "f32", wide)
    arguments["q"].view(np.uint16)[...] = before["q"].view(np.uint16)
    runner.run(cases.kernel(stem).bind(arguments, checked=True), {})
    assert_same({name: arguments[name] for name in expected}, expected)


@stems
def test_products_of_fp8_with_a_scale_at_its_limits(stem: str) -> None:
    """Of finite numbers that the cache holds; kernels that flush subnormal numbers, or scale the sums instead, give others."""
    out = results(stem, cases.inputs(stem, BY_ID["bf16-e5m2-infinite-products"]))["out"].reshape(-1, 16)  # patterns 0x70 to 0x7F in turn
    assert np.isposinf(out[:, :12]).all()
    out = results(stem, cases.inputs(stem, BY_ID["f32-e4m3-subnormal-products"]))["out"]
    assert (np.abs(out) < 2.0**-126).all()
    assert np.unique(np.abs(out)).size > 10
