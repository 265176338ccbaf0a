"""merge_attn_states: the cases on every leg, and what the contract says row by row. Its judges are in test_merge_attn_states_bound.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emu.host import checks
from kernels_cu import build
from pyref import contract
from pyref.merge_attn_states import SPEC, run
from pyref.spec import DTYPES
from tests import harness
from tools import cases, compare, legs
from tools.arena import Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "merge_attn_states"
FLOATS = ("f32", "f16", "bf16")
F32 = np.dtype(np.float32)
OUTPUTS = ("out", "prefix_out", "suffix_out")
LSES = ("out_lse", "prefix_lse", "suffix_lse")
#: An LSE of every kind: empty both ways, NaN quiet, negative, signalling and with a payload, zeros, numbers.
KINDS = np.array(
    [0xFF800000, 0x7F800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x7FFFFFFF, 0x00000000, 0x80000000, 0x40600000, 0xC0100000, 0x00000001],
    np.uint32,
).view(np.float32)


def case(name: str, why: str, dtype: str, n: int, h: int, d: int, lse: str = "near", values: str = "normal", **places: Any) -> Case:
    """A case: ``lse`` and ``values`` name what ``inputs`` makes; ``places``: how ``place`` lays out an argument (None: leave it out)."""
    shape = {"n": n, "h": h, "d": d, "lse": lse, "values": values, "places": places}
    return Case(name, why, {"T": dtype}, shape, seed=sum(name.encode()))


def at(offset: int) -> dict[str, Any]:
    """A layout: the array starts ``offset`` elements after an aligned address."""
    return {"offset": offset}


def padded(**axes: int) -> dict[str, Any]:
    """A layout: more elements along axes 1 (``a1``), 2 (``a2``) and so on than the view takes."""
    return {"pad": {int(axis[1:]): more for axis, more in axes.items()}}


def all_of(names: tuple[str, ...], **layout: Any) -> dict[str, Any]:
    return dict.fromkeys(names, layout)


SWAPPED = {"swap": (0, 1)}
PACKS = [("f32", d, a) for d, a in ((8, 16), (6, 8), (5, 4))] + [("f16", d, a) for d, a in ((24, 16), (12, 8), (6, 4), (7, 2))]
CASES = [
    *(case(f"{t}-two-empty", "tokens 2 and 3 are empty on both sides", t, 6, 8, 128 if t == "f16" else 16, "two-empty") for t in FLOATS),
    *(case(f"{t}-kinds", "every pair of kinds of LSE; an empty side's output is NaN", t, 11, 11, 8, "kinds") for t in FLOATS),
    *(case(f"{t}-0-and-10", "natural logarithms: base 2 gives other weights", t, 5, 2, 8, "0-and-10") for t in FLOATS),
    *(case(f"{t}-far", "LSE 20 to 200 apart: weights subnormal and 0", t, 12, 4, 8, "far") for t in FLOATS),
    *(case(f"{t}-equal", "equal LSE: weights of 1/2", t, 3, 4, 8, "equal") for t in FLOATS),
    *(case(f"{t}-minus-zero-one-empty", "-0 passes an empty side unchanged", t, 4, 4, 8, "one-empty", "minus-zero") for t in FLOATS),
    *(case(f"{t}-subnormal", "subnormal outputs are kept (C1)", t, 4, 4, 8, "near", "subnormal") for t in FLOATS),
    *(case(f"{t}-nan-payloads", "NaN leaves as one pattern, also past an empty side (C9)", t, 4, 4, 8, "one-empty", "nan") for t in FLOATS),
    *(case(f"{t}-extremes", "infinities and the greatest numbers", t, 4, 4, 8, "near", "extreme") for t in FLOATS),
    *(case(f"{t}-w-d{d}-pack{a}", f"rows of {d} elements allow packs of {a} bytes", t, 3, 2, d) for t, d, a in PACKS),
    case("minus-zero-both", "two -0 give -0", "f32", 2, 2, 4, "near", "minus-zero"),
    case("far-infinite", "an infinite output under weight 0 is NaN", "f16", 8, 4, 8, "far", "extreme"),
    case("subnormal-far", "subnormal outputs under small weights", "f32", 8, 4, 4, "far", "subnormal"),
    case("huge-lse", "LSE near 3e38: their difference overflows", "f32", 6, 6, 4, "huge"),
    case("tiny-lse", "subnormal LSE", "bf16", 4, 4, 4, "tiny"),
    case("close-lse", "LSE one ulp apart", "f32", 4, 8, 4, "ulp"),
    case("one-of-each", "n, h and d of 1", "f32", 1, 1, 1),
    case("d1", "a row of one element", "f16", 7, 3, 1),
    case("d3", "odd d", "bf16", 3, 3, 3),
    case("d137", "a prime d above 128", "f16", 2, 2, 137),
    case("d576", "the head size of latent attention", "bf16", 1, 2, 576),
    case("no-tokens", "nothing is launched", "f16", 0, 4, 8),
    case("no-heads", "nothing is launched", "f16", 4, 0, 8),
    case("many-heads", "the heads of a token lie in two blocks", "f32", 2, 150, 4),
    case("rows-over-blocks", "a row is cut by the end of a block", "f16", 31, 3, 24),
    case("without-out-lse", "out_lse is optional", "f16", 5, 3, 16, "kinds", out_lse=None),
    case("lse-transposed", "LSE are views of [n, h] arrays", "f16", 5, 3, 8, "kinds", **all_of(LSES, **SWAPPED)),
    case("lse-padded", "LSE rows have room for more tokens", "f16", 5, 3, 8, "kinds", **all_of(LSES, pad={1: 27}, offset=1)),
    case("lse-strides-differ", "each LSE has its own strides", "bf16", 5, 3, 8, "kinds", out_lse=SWAPPED, suffix_lse=padded(a0=2, a1=3)),
    case("heads-first", "outputs are views of [h, n, d] arrays", "f16", 5, 3, 8, **all_of(OUTPUTS, **SWAPPED)),
    case("heads-padded", "heads lie 16 bytes apart", "f16", 5, 3, 8, **all_of(OUTPUTS, **padded(a2=8))),
    case("strides-differ", "each output has its own", "f16", 5, 3, 16, out=padded(a1=1), prefix_out=padded(a2=8), suffix_out=SWAPPED),
    *(case(f"odd-stride-{a}", f"heads of {a} lie d + 1 elements apart", "f16", 3, 3, 8, **{a: padded(a2=1)}) for a in OUTPUTS),
    *(case(f"one-head-odd-stride-{a}", f"the stride of heads of {a} plays no part", "f16", 4, 1, 8, **{a: padded(a2=1)}) for a in OUTPUTS),
    *(case(f"one-row-of-heads-odd-stride-{a}", f"nor that of rows of {a}", "f16", 1, 4, 8, **{a: padded(a2=1)}) for a in OUTPUTS),
    *(case(f"offset{o}-{a}", f"{a} starts at element {o}", "f16", 3, 2, 16, **{a: at(o)}) for o in (1, 4) for a in OUTPUTS),
    *(case(f"offset{o}-f32-{a}", f"{a} starts at element {o}", "f32", 3, 2, 8, **{a: at(o)}) for o, a in ((1, "out"), (2, "prefix_out"))),
    case("one-row-odd-stride", "the strides of a single row play no part", "f16", 1, 1, 16, prefix_out=padded(a1=1, a2=1)),
    case("four-packs-a-thread", "so many packs that a thread takes four, the last of a row fewer", "bf16", 512, 8, 65, "kinds"),
    case("four-wide-packs-a-thread", "the same with packs of 16 bytes", "f16", 2056, 8, 128, "near"),
]  # fmt: skip


def lse_pair(kind: str, stream: Stream, n: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """LSE [h, n] of both sides."""
    count = n * h
    a = stream.normal((h, n), "f32") + np.float32(5)
    b = stream.normal((h, n), "f32") + np.float32(5)
    one, other = (rows.reshape(-1) for rows in (a, b))
    turn = np.arange(count)
    if kind == "kinds":
        pairs = np.array(list(itertools.product(range(KINDS.size), repeat=2)))
        one[:], other[:] = KINDS[np.resize(pairs[:, 0], count)], KINDS[np.resize(pairs[:, 1], count)]
    elif kind == "two-empty":
        a[:, 2:4], b[:, 2:4] = -np.inf, np.where(np.arange(h) % 2, np.inf, -np.inf)[:, None].astype(np.float32)
        a[:, 1], b[:, 4] = -np.inf, np.inf
    elif kind == "one-empty":
        one[turn % 4 < 2] = np.array([-np.inf, np.inf], np.float32)[turn[turn % 4 < 2] % 2]
        other[turn % 4 >= 2] = np.array([-np.inf, np.inf], np.float32)[turn[turn % 4 >= 2] % 2]
    elif kind == "0-and-10":
        one[:], other[:] = np.where(turn % 2, 10, 0), np.where(turn % 2, 0, 10)
    elif kind == "far":
        apart = np.float32([20, 87, 87.5, 89, 95, 103, 103.9, 104, 200, 16.5, 17.5, 40])[turn % 12]
        other[:] = np.where(turn % 2, one + apart, one - apart)
    elif kind == "equal":
        other[:] = one
    elif kind == "huge":
        ends = np.float32([3.4e38, -3.4e38, 3e38, 1e38, -1e38, 0])
        one[:], other[:] = ends[turn % 6], ends[turn // 6 % 6]
    elif kind == "tiny":
        one.view(np.uint32)[:], other.view(np.uint32)[:] = turn + 1, (turn * 3 + 1) | 0x80000000
    elif kind == "ulp":
        other[:] = np.nextafter(one, np.where(turn % 2, np.inf, -np.inf).astype(np.float32))
    return a, b


def output(kind: str, stream: Stream, dtype: str, shape: tuple[int, int, int]) -> np.ndarray:
    """o [n, h, d] of one side."""
    values = stream.normal(shape, dtype)
    flat = compare.bits(values).reshape(-1)
    unsigned, turn = flat.dtype, np.arange(flat.size)
    fraction = {"f32": 23, "f16": 10, "bf16": 7}[dtype]
    sign, top = 1 << (8 * unsigned.itemsize - 1), (1 << (8 * unsigned.itemsize - 1)) - 1
    infinity = top - ((1 << fraction) - 1)
    if kind == "minus-zero":
        flat[:] = sign
    elif kind == "subnormal":
        flat[:] = stream.integers(0, 1 << fraction, flat.size) | np.where(turn % 2, sign, 0)
        flat[::5] = 1
    elif kind == "nan":
        flat[::3] = (infinity | (1 + turn[::3] % ((1 << fraction) - 1)) | np.where(turn[::3] % 2, sign, 0)).astype(unsigned)
    elif kind == "extreme":
        ends = np.array([infinity, infinity | sign, infinity - 1, (infinity - 1) | sign, 0, sign], np.int64)
        flat[:] = ends[stream.integers(0, 6, flat.size)].astype(unsigned)
    return flat.view(values.dtype).reshape(shape)


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Outputs of empty sides are poisoned; those of a NaN LSE are numbers."""
    shape, dtype, stream = case.shape, case.dtypes["T"], Stream(case.seed)
    n, h, d, places = (shape[name] for name in ("n", "h", "d", "places"))
    prefix_lse, suffix_lse = lse_pair(shape["lse"], stream, n, h)
    found: dict[str, Any] = {}
    for side, lse in (("prefix", prefix_lse), ("suffix", suffix_lse)):
        values = output(shape["values"], stream, dtype, (n, h, d))
        values.view(np.uint8)[np.isinf(lse.T)] = 0xFF
        found[f"{side}_out"] = place(values, **places.get(f"{side}_out", {}))
        found[f"{side}_lse"] = place(lse, **places.get(f"{side}_lse", {}))
    found["out"] = sentinel((n, h, d), DTYPES[dtype][0], **places.get("out", {}))
    if places.get("out_lse", {}) is not None:
        found["out_lse"] = sentinel((h, n), F32, **places.get("out_lse", {}))
    return found


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


def reports_of_unread_sides(case: Case) -> list[str]:
    """What the emulator's checks report of a case in which the outputs of empty sides are memory that nobody wrote."""
    mine = inputs(case)
    call = SPEC.bind(cases.views(mine), checked=True)
    memory = {name: checks.Memory(region.buffer.ctypes.data, region.buffer.nbytes) for name, region in mine.items()}
    for side in ("prefix", "suffix"):
        del memory[f"{side}_out"]
        rows, lse = mine[f"{side}_out"].view, mine[f"{side}_lse"].view
        for n, h in np.ndindex(rows.shape[:2]):
            memory[f"{side}_out[{n}, {h}]"] = checks.Memory(rows[n, h].ctypes.data, rows[n, h].nbytes, not np.isinf(lse[h, n]))
    library = build.load(build.host_library(SPEC, call.constants(), check=True))
    with checks.watching(library, memory) as found:
        legs.Host().launch(library, call)
    return [checks.describe(report) for report in found]


def test_the_output_of_an_empty_side_is_not_read() -> None:
    """Its values could not be seen in the bytes: they are thrown away in any case."""
    for name in ("f16-kinds", "f16-two-empty", "strides-differ", "d3"):
        assert reports_of_unread_sides(by_id(name)) == []


def by_id(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


# --- the rules, row by row ---------------------------------------------------------------------------------------------------------------


@harness.each([by_id(f"{t}-kinds") for t in FLOATS])
def test_empty_and_nan_sides(case: Case) -> None:
    """Every pair of kinds of LSE against the words of the contract, on bits."""
    arguments, dtype = inputs(case), case.dtypes["T"]
    got = harness.compute(STEM, arguments)
    out, lse = compare.bits(got["out"]), got["out_lse"]
    nan, minus_infinity = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}[dtype], 0xFF800000
    for n, h in itertools.product(range(case.shape["n"]), range(case.shape["h"])):
        a, b = (arguments[f"{side}_lse"].view[h, n] for side in ("prefix", "suffix"))
        row, found = out[n, h], compare.bits(lse[h, n]).item()
        if math.isnan(a) or math.isnan(b):
            assert (row == nan).all()
            assert found == 0x7FFFFFFF
        elif math.isinf(a) and math.isinf(b):
            assert (row == 0).all()
            assert found == minus_infinity
        elif math.isinf(a) or math.isinf(b):
            side, value = ("suffix", b) if math.isinf(a) else ("prefix", a)
            assert np.array_equal(row, compare.bits(arguments[f"{side}_out"].view)[n, h])
            assert found == compare.bits(value).item()
        else:
            assert np.isfinite(got["out"][n, h].astype(np.float32)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_empty_side_changes_nothing_but_nan(dtype: str) -> None:
    """All 2^16 patterns (of f32: a sample of all exponents) pass an empty side."""
    patterns = np.arange(2**16, dtype=np.uint16)
    if dtype == "f32":
        patterns = patterns.astype(np.uint32) << 16 | (np.arange(2**16, dtype=np.uint32) * 40503 & 0xFFFF)
    values = patterns.view(DTYPES[dtype][0]).reshape(16, 16, 256)
    zero, empty = np.zeros((16, 16), np.float32), np.full((16, 16), np.inf, np.float32)
    poison = np.full(values.nbytes, 0xFF, np.uint8).view(values.dtype).reshape(values.shape)
    expected = np.where(np.isnan(values.astype(np.float32)), contract.NAN_BITS[dtype], compare.bits(values))
    for (a, a_lse), (b, b_lse) in (((values, zero), (poison, empty)), ((poison, -empty), (values, zero))):
        got, lse = run(prefix_out=a, prefix_lse=a_lse, suffix_out=b, suffix_lse=b_lse, out_lse=np.empty_like(zero))
        assert np.array_equal(compare.bits(got), expected)
        assert np.array_equal(compare.bits(lse), compare.bits(zero))


@harness.each([case for case in CASES if case.shape["n"] * case.shape["h"] < 200])
def test_sides_can_be_exchanged(case: Case) -> None:
    """Maximum, sums and products commute: so do the sides."""
    arguments = inputs(case)
    exchanged = {**arguments}
    for what in ("out", "lse"):
        exchanged[f"prefix_{what}"], exchanged[f"suffix_{what}"] = arguments[f"suffix_{what}"], arguments[f"prefix_{what}"]
    here, there = harness.compute(STEM, arguments), harness.compute(STEM, exchanged)
    assert all(compare.difference(name, there[name], here[name]) is None for name in here)


def test_a_row_does_not_depend_on_its_batch() -> None:
    """Every leg: rows alone, and from the middle of a batch, are the rows of the whole batch."""
    arguments = inputs(by_id("rows-over-blocks"))
    whole = harness.compute(STEM, arguments)
    for leg in ("ref", *(leg.name for leg in harness.available() if leg.name != "sim")):
        for tokens in (slice(0, 1), slice(17, 18), slice(9, 30)):
            some = {name: place(region.view[tokens] if name in OUTPUTS else region.view[:, tokens]) for name, region in arguments.items()}
            got = harness.compute(STEM, some, leg)
            assert compare.difference(leg, got["out"], whole["out"][tokens]) is None
            assert compare.difference(leg, got["out_lse"], whole["out_lse"][:, tokens]) is None


@pytest.mark.parametrize("side", ["prefix_out", "suffix_out"])
def test_out_may_be_an_input(side: str) -> None:
    """In place, every leg: the same bytes as into an array of its own."""
    for name in ("f16-kinds", "rows-over-blocks", "heads-first", "d3"):
        before = inputs(by_id(name))
        expected = harness.compute(STEM, before)
        for leg in (legs.leg("ref"), *harness.available()):
            mine = cases.copies(before)
            del mine["out"]
            call = SPEC.bind({**cases.views(mine), "out": mine[side].view}, checked=True)
            regions = {name: value for name, value in mine.items() if isinstance(value, Region)}
            leg.run(call, {"out": regions.pop(side), **regions})
            assert compare.difference(f"{name} on {leg.name}", mine[side].view, expected["out"]) is None
            assert compare.difference(f"{name} on {leg.name}", mine["out_lse"].view, expected["out_lse"]) is None


def test_the_port_with_several_packs_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two large cases do on the other legs, small enough for the simulator."""
    sim = legs.leg("sim")
    if sim.missing():
        pytest.skip(sim.missing() or "")
    from emu import merge_attn_states as port

    monkeypatch.setattr(port, "FEW_PACKS", 0)
    for name in ("d137", "d576", "f16-kinds", "rows-over-blocks", "d1"):
        arguments = inputs(by_id(name))
        expected, got = harness.compute(STEM, arguments), harness.compute(STEM, arguments, "sim")
        assert all(compare.difference(f"{name}: {what}", got[what], expected[what]) is None for what in expected)
