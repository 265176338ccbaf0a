"""convert_fp8: between f32, f16 or bf16 and fp8, over all patterns of every type that has 16 bits or fewer."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import contract
from pyref.convert_fp8 import SPEC, run
from pyref.spec import DTYPES
from tests import harness
from tests.cache_write import anything, hard
from tests.sparse import sparse
from tools import compare, legs
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "convert_fp8"
FLOATS, FP8 = ("f32", "f16", "bf16"), ("e4m3", "e5m2")
BOTH_WAYS = [*((x, out) for x in FLOATS for out in FP8), *((x, out) for x in FP8 for out in FLOATS)]


def case(name: str, why: str, origin: str, to: str, size: tuple[int, ...], scale: list[float], data: str = "hard", **places: Any) -> Case:
    """A case from one dtype to another over [n, g, w]. ``data``: "hard" (values that fp8 finds hard, any bytes from fp8) or "all" (every
    pattern of x in turn). ``places`` says how ``place`` lays out an argument."""
    shape = {**dict(zip("ngw", size, strict=True)), "scale": tuple(scale), "data": data, "places": places}
    return Case(name, why, {"X": origin, "O": to}, shape, seed=sum(name.encode()))


CASES = [
    *(case(f"{x}-{out}", "every pair of types", x, out, (3, 2, 200), [0.7]) for x, out in BOTH_WAYS),
    *(case(f"{x}-{out}-all-bytes", "all 256 patterns, a scale that rounds", x, out, (1, 1, 256), [0.3], "all") for x, out in BOTH_WAYS[6:]),
    *(case(f"{x}-{out}-all-patterns", "all 2^16 patterns", x, out, (16, 8, 512), [0.3], "all") for x in FLOATS[1:] for out in FP8),
    *(case(f"{x}-{out}-scale-1", "a scale that changes nothing", x, out, (1, 1, 256), [1.0], "all") for x, out in BOTH_WAYS[6:]),
    case("to-fp8-a-scale-a-head", "one scale for each g", "bf16", "e4m3", (4, 5, 64), [1.0, 0.5, 3.0, 0.1, 7.0]),
    case("from-fp8-a-scale-a-head", "one scale for each g", "e4m3", "bf16", (4, 5, 64), [1.0, 0.5, 3.0, 0.1, 7.0]),
    case("heads-of-a-thread", "a thread has row 0, of head 0, and row 5, of head 2", "f16", "e4m3", (2, 3, 43), [1.0, 0.5, 3.0]),
    case("overflow-to-infinity", "f16 has no room for 448 * 200", "e4m3", "f16", (1, 1, 256), [200.0], "all"),
    case("subnormal-results", "products below the least normal f16", "e5m2", "f16", (1, 1, 256), [2.0**-10], "all"),
    case("subnormal-products", "products that are subnormal in binary32 (C1)", "e4m3", "f32", (1, 1, 256), [2.0**-130], "all"),
    case("tiny-scale", "quotients that overflow binary32 saturate", "f32", "e5m2", (2, 1, 200), [1e-40]),
    case("huge-scale", "quotients that underflow", "f32", "e4m3", (2, 1, 200), [1e38]),
    case("odd-scales", "0, infinity, NaN and a negative one", "f16", "e4m3", (2, 4, 200), [0.0, np.inf, np.nan, -2.0]),
    case("odd-scales-from", "0, infinity, NaN and a negative one", "e5m2", "f32", (2, 4, 256), [0.0, np.inf, np.nan, -2.0], "all"),
    *(case(f"row-of-{w}", "rows that vectors do not divide", "f16", "e4m3", (3, 1, w), [0.5]) for w in (1, 2, 3, 46, 47, 4100)),
    *(case(f"row-of-{w}-from", "rows that vectors do not divide", "e5m2", "f32", (3, 1, w), [0.5]) for w in (1, 2, 3, 46, 47)),
    case("many-rows", "more rows than a tile has of the shortest", "f16", "e4m3", (1030, 1, 1), [0.5]),
    case("no-rows", "nothing is launched", "f16", "e4m3", (0, 2, 8), [0.5]),
    case("cache-by-heads", "pages and heads of a padded cache", "bf16", "e4m3", (3, 2, 128), [0.5, 2.0],
         x={"pad": {1: 1, 2: 16}}, out={"pad": {2: 32}}),
    case("heads-apart-one-scale", "heads that do not lie together", "bf16", "e4m3", (3, 2, 24), [0.5], x={"pad": {2: 8}}),
    case("heads-of-out-apart-one-scale", "those of x do", "bf16", "e4m3", (3, 2, 24), [0.5], out={"pad": {2: 8}}),
    case("heads-swapped", "[g, n, w] in memory", "f16", "e5m2", (3, 2, 64), [0.5, 2.0], x={"swap": (0, 1)}),
    case("46-in-48", "strides allow vectors, the rows do not", "f16", "e4m3", (3, 1, 46), [0.5], x={"pad": {2: 2}}, out={"pad": {2: 2}}),
    *(case(f"odd-{a}", f"{a} starts at element 1", "f16", "e4m3", (2, 1, 64), [0.5], **{a: {"offset": 1}}) for a in ("x", "out")),
    *(case(f"odd-{a}-from", f"{a} starts at element 1", "e4m3", "bf16", (2, 1, 64), [0.5], **{a: {"offset": 1}}) for a in ("x", "out")),
    case("4-bytes-off", "an fp8 output 4 bytes past a vector", "f16", "e4m3", (2, 1, 64), [0.5], out={"offset": 4}),
]  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    shape, stream, x, out = case.shape, Stream(case.seed), case.dtypes["X"], case.dtypes["O"]
    size, storage = (shape["n"], shape["g"], shape["w"]), DTYPES[x][0]
    if shape["data"] == "all":
        unsigned = np.dtype(f"u{storage.itemsize}")
        values = np.resize(np.arange(1 << 8 * storage.itemsize, dtype=unsigned), size).view(storage)
    elif x in FP8:
        values = anything(stream, size, storage)
    else:
        values = hard(stream, size, x, out, shape["scale"][0])
    return {
        "x": place(values, **shape["places"].get("x", {})),
        "out": sentinel(size, DTYPES[out][0], **shape["places"].get("out", {})),
        "scale": place(np.float32(shape["scale"])),
    }


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


def nearest(value: Fraction, cache: str) -> int:
    """The pattern (without its sign) of the fp8 number nearest to an exact value of at least 0, ties to even, saturating."""
    patterns = np.arange(0x7F if cache == "e4m3" else 0x7C, dtype=np.uint8)
    numbers = [Fraction(float(x)) for x in contract.to_f32(patterns.view(DTYPES[cache][0]))]
    if value >= numbers[-1]:
        return int(patterns[-1])
    above = next(i for i, number in enumerate(numbers) if number > value)
    down, up = value - numbers[above - 1], numbers[above] - value
    return above - 1 if down < up or (down == up and above % 2) else above


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(2**-20, 2**20, width=32), st.sampled_from(FP8))
@settings(max_examples=200, deadline=None)
def test_to_fp8_against_rationals(value: float, scale: float, cache: str) -> None:
    """C11: the quotient rounded once to binary32, that once to fp8; the second rounding is worked out with rationals."""
    x = np.float32(value).reshape(1, 1, 1)
    out = run(x=x, scale=np.float32([scale]), out=np.zeros((1, 1, 1), DTYPES[cache][0]))
    quotient = contract.div(x, np.float32(scale)).item()
    expected = nearest(abs(Fraction(quotient)), cache) if np.isfinite(quotient) else (0x7E if cache == "e4m3" else 0x7B)
    assert int(out.view(np.uint8).item()) == expected | (0x80 if np.signbit(np.float32(quotient)) else 0)


SCALES = [
    1.0, 0.5, 2.0**-20, 3.0, 0.1, 0.7, 1e-3, 448.0, 1 / 448, 1.9999999, 1.0000001, -0.3, 2.0**-126, 1.5 * 2.0**-126, 2.0**-125,
    1.1 * 2.0**-125, 2.0**126, 1.7 * 2.0**125, 1.9999999 * 2.0**125, 2.0**127, 3e38, 1e-45, 1.1754942e-38, 0.0, np.inf, np.nan,
]  # fmt: skip


@pytest.mark.parametrize("leg", ["host", "gpu"])
@pytest.mark.parametrize("cache", FP8)
def test_the_product_with_a_reciprocal_is_the_quotient(cache: str, leg: str) -> None:
    """The CUDA source divides only where the product with the reciprocal may round otherwise: over quotients within four units of every
    midpoint, limit and power of two, for scales of every kind."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(f"{leg}: {runner.missing()}")
    numbers = contract.to_f32(np.arange(0x7F if cache == "e4m3" else 0x7C, dtype=np.uint8).view(DTYPES[cache][0]))
    special = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / np.float32(2), np.float32([465, 480, 61441, 65536, 1e9])])
    for scale in [*SCALES, *np.exp2(Stream(3).integers(-1000, 1000, 40) / 100.0).tolist()]:
        with np.errstate(all="ignore"):
            products = (special * np.float32(scale)).view(np.uint32)
        near = products[:, None] + np.arange(-4, 5).astype(np.uint32)
        x = np.stack([near, near ^ np.uint32(0x80000000)]).reshape(1, 1, -1).view(np.float32)
        arguments = {"x": place(x), "scale": place(np.float32([scale])), "out": sentinel(x.shape, DTYPES[cache][0])}
        got = harness.compute(STEM, arguments, leg)["out"]
        wrong = compare.difference(f"scale {scale}", got, harness.compute(STEM, arguments)["out"])
        assert wrong is None, wrong


@pytest.mark.parametrize("cache", FP8)
def test_there_and_back_is_the_identity(cache: str) -> None:
    """Every fp8 number survives f16 (e5m2, e4m3) and f32 with scale 1; only infinities saturate and NaN become one."""
    patterns = np.arange(256, dtype=np.uint8)
    for wide in ("f32", "f16", "bf16"):
        up = run(x=patterns.view(DTYPES[cache][0]).reshape(1, 1, 256), scale=np.float32([1]), out=np.zeros((1, 1, 256), DTYPES[wide][0]))
        back = run(x=up, scale=np.float32([1]), out=np.zeros((1, 1, 256), DTYPES[cache][0])).view(np.uint8).ravel()
        finite = (patterns & 0x7F) < (0x7F if cache == "e4m3" else 0x7C)
        assert np.array_equal(back[finite], patterns[finite])
        assert set(back[~finite].tolist()) == ({0x7F} if cache == "e4m3" else {0x7B, 0xFB, 0x7F})


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_far_rows(leg: str) -> None:
    """BUGS: rows x stride in 32 bits. Row 16 of x begins at element 2^32, row 16 of the output at 2^33."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    x, out = sparse((17, 1, 64), np.dtype(np.float16), (2**28, 64, 1)), sparse((17, 1, 64), DTYPES["e4m3"][0], (2**29, 64, 1))
    x[:] = np.float16(1) + np.arange(17)[:, None, None]
    runner.run(SPEC.bind({"x": x, "out": out, "scale": np.float32([1])}, checked=True), {})
    expected = contract.from_f32(contract.to_f32(np.ascontiguousarray(x)), "e4m3")
    assert np.array_equal(compare.bits(out), compare.bits(expected))


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16", "e4m3", (3, 2, 16), [0.5, 2.0])), **changed}


F16, E4M3 = np.dtype(np.float16), DTYPES["e4m3"][0]
BAD: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ("fp8-to-fp8", good(x=sentinel((3, 2, 16), DTYPES["e5m2"][0])), TypeError, ("out", "got e4m3", "f32 or f16 or bf16", "x is e5m2")),
    ("f16-to-f16", good(out=sentinel((3, 2, 16), F16)), TypeError, ("out", "got f16", "e4m3 or e5m2", "x is f16")),
    ("no-out", good(out=None), TypeError, ("out", "missing")),
    ("x-of-f64", good(x=place(np.zeros((3, 2, 16)))), TypeError, ("x", "got float64")),
    ("x-of-3-heads", good(x=sentinel((3, 3, 16), F16)), ValueError, ("x", "axis g", "got 3", "expected 2 (from out)")),
    ("x-of-2-axes", good(x=sentinel((6, 16), F16)), ValueError, ("x", "got 2 axes", "expected 3")),
    ("three-scales", good(scale=place(np.float32([1, 2, 3]))), ValueError, ("scale", "got 3", "expected 1 or 2")),
    ("no-scale", good(scale=None), TypeError, ("scale", "missing")),
    ("scale-of-f64", good(scale=place(np.ones(1))), TypeError, ("scale", "got float64", "expected f32")),
    ("rows-not-dense", good(x=sentinel((3, 2, 16), F16, swap=(1, 2))), ValueError, ("x", "axis w", "stride of 4 bytes")),
    ("rows-of-nothing", good(x=sentinel((3, 2, 0), F16), out=sentinel((3, 2, 0), E4M3)), ValueError, ("x: axis w", "got 0")),
]


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


def fixed(array: np.ndarray) -> np.ndarray:
    view = array[:]
    view.flags.writeable = False
    return view


VIEWS: list[tuple[str, Callable[..., dict[str, Any]], tuple[str, ...]]] = [
    ("out-in-x", lambda x, **rest: {"out": x.reshape(-1).view(E4M3)[:96].reshape(3, 2, 16)}, ("out: got memory that overlaps x",)),
    ("scale-in-out", lambda out, **rest: {"scale": out.reshape(-1)[:8].view(np.float32)}, ("out: got memory that overlaps scale",)),
    ("read-only", lambda out, **rest: {"out": fixed(out)}, ("out", "read-only")),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))
