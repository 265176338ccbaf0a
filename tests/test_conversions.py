"""C9 and C11: every pattern of f16, bf16, e4m3fn and e5m2 up, every midpoint down, against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pyref import contract
from tests import rationals
from tests.rationals import BINARY32, FORMATS, f32
from tools import exhaustive
from tools.data import Stream

NAMES = tuple(FORMATS)
SMALL = {"f16": np.uint16, "bf16": np.uint16, "e4m3": np.uint8, "e5m2": np.uint8}


def every_pattern(name: str) -> np.ndarray:
    """All values of a format, in its storage."""
    return np.arange(1 << FORMATS[name].width, dtype=np.uint32).astype(SMALL[name]).view(contract.STORAGE[name])


def exact_bits(name: str) -> np.ndarray:
    """The binary32 bits of every pattern, from rationals; the pattern of C9 for every NaN."""
    special = {"nan": 0x7FFFFFFF, "inf": 0x7F800000, "-inf": 0xFF800000}
    found = []
    for pattern in range(1 << FORMATS[name].width):
        value = FORMATS[name].value(pattern)
        negative = bool(pattern >> (FORMATS[name].width - 1))
        found.append(special[value] if isinstance(value, str) else BINARY32.nearest(value, negative))
    return np.array(found, np.uint32)


def narrowed(x: np.ndarray, name: str) -> np.ndarray:
    """Bits of from_f32."""
    return contract.from_f32(x, name).view(SMALL[name])


@pytest.mark.parametrize("name", NAMES)
def test_c11_up_is_exact_for_every_pattern(name: str) -> None:
    exact = exact_bits(name)
    got = contract.canonical_nan(contract.to_f32(every_pattern(name))).view(np.uint32)
    wrong = np.flatnonzero(got != exact)
    assert not wrong.size, f"C11: {name} pattern {wrong[0]:#x}: got {got[wrong[0]]:#010x}, exact is {exact[wrong[0]]:#010x}"


@pytest.mark.parametrize("name", NAMES)
def test_c11_down_gives_every_pattern_back(name: str) -> None:
    patterns = every_pattern(name)
    wide = contract.to_f32(patterns)
    got, expected = narrowed(wide, name), patterns.view(SMALL[name]).copy()
    expected[np.isnan(wide)] = contract.NAN_BITS[name]  # C9
    if FORMATS[name].saturates:
        expected[wide == np.inf] = FORMATS[name].greatest
        expected[wide == -np.inf] = FORMATS[name].greatest | (1 << (FORMATS[name].width - 1))
    wrong = np.flatnonzero(got != expected)
    assert not wrong.size, f"C11: {name}: {wide[wrong[0]]!r} gave {got[wrong[0]]:#x}, not {expected[wrong[0]]:#x}"


@pytest.mark.parametrize("name", NAMES)
def test_c11_down_at_and_beside_every_midpoint(name: str) -> None:
    """Every midpoint of two neighbours, and the binary32 on both sides of it: nearest, ties to even; the bound of overflow too."""
    form = FORMATS[name]
    inputs: list[int] = []
    expected: list[int] = []
    for low in range(form.greatest + 1):
        below = form.value(low)
        if low == form.greatest:
            above = 2 * below - form.value(low - 1)  # the value that would follow
            upper = low if form.saturates else low + 1
        else:
            above, upper = form.value(low + 1), low + 1
        middle = (below + above) / 2
        pattern = BINARY32.nearest(middle)
        assert BINARY32.value(pattern) == middle, "every midpoint is a binary32"
        for sign in (0, 1):
            place = sign << (form.width - 1)
            inputs += [pattern - 1 | sign << 31, pattern | sign << 31, pattern + 1 | sign << 31]
            expected += [place | low, place | (low if low % 2 == 0 else upper), place | upper]
    got = narrowed(f32(*inputs), name)
    wrong = np.flatnonzero(got != np.array(expected, SMALL[name]))
    if wrong.size:
        i = wrong[0]
        pytest.fail(f"C11: {name}: {inputs[i]:#010x} gave {got[i]:#x}, nearest even is {expected[i]:#x} ({wrong.size} wrong)")


@pytest.mark.parametrize("name", NAMES)
def test_c11_down_against_rationals_over_all_exponents(name: str) -> None:
    """Every sign and exponent of binary32 with chosen and random fractions, judged by comparing fractions alone."""
    form = FORMATS[name]
    fractions = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x07FFFF, 0x080000, 0x100000, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF]
    fractions += [int(w) & 0x7FFFFF for w in Stream(11).words(4)]
    patterns = [sign << 31 | e << 23 | m for sign in (0, 1) for e in range(255) for m in fractions]
    got = narrowed(f32(*patterns), name)
    for pattern, found in zip(patterns, got, strict=True):
        value = BINARY32.value(pattern)
        assert isinstance(value, Fraction)
        expected = form.nearest(value, negative_zero=bool(pattern >> 31))
        assert int(found) == expected, f"C11: {name}: {pattern:#010x} gave {int(found):#x}, nearest even is {expected:#x}"


@pytest.mark.parametrize("name", ["f32", *NAMES])
def test_c9_every_nan_becomes_one_pattern(name: str) -> None:
    nans = f32(0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF)
    out = contract.from_f32(nans, name)
    got = {int(b) for b in out.view(SMALL.get(name, np.uint32))}
    assert got == {contract.NAN_BITS[name]}, f"C9: {name}: got {sorted(map(hex, got))}"


def test_c9_canonical_nan_keeps_everything_else() -> None:
    x = f32(*rationals.CORNERS)
    got = contract.canonical_nan(x)
    assert all(int(b) == 0x7FFFFFFF for b in got[np.isnan(x)].view(np.uint32))
    assert np.array_equal(got[~np.isnan(x)].view(np.uint32), x[~np.isnan(x)].view(np.uint32))


@pytest.mark.parametrize(("name", "greatest"), [("e4m3", 448.0), ("e5m2", 57344.0)])
def test_c11_fp8_saturates_infinities_too(name: str, greatest: float) -> None:
    above = np.nextafter(np.float32(greatest), np.float32(1e9))
    x = np.array([np.inf, -np.inf, 3e38, -3e38, greatest * 1.03125, -greatest * 1.5, above], np.float32)
    expected = [greatest, -greatest, greatest, -greatest, greatest, -greatest, greatest]
    assert contract.to_f32(contract.from_f32(x, name)).tolist() == expected, f"C11: {name} saturates to +-{greatest}"


def test_c11_f16_and_bf16_overflow_to_infinity() -> None:
    assert narrowed(f32(0x477FEFFF, 0x477FF000, 0xC77FF000), "f16").tolist() == [0x7BFF, 0x7C00, 0xFC00]
    assert narrowed(f32(0x7F7F7FFF, 0x7F7F8000, 0xFF7F8000), "bf16").tolist() == [0x7F7F, 0x7F80, 0xFF80]


def test_c11_quantise_divides_once_and_rounds_to_nearest() -> None:
    """Kinds seen in the wild: rounding toward zero at x / scale = 2.6, a reciprocal instead of a division, a missing saturation."""
    scale = np.float32(0.1)
    x = np.array([0.26, 44.7, 44.9, 1e-4, np.nan, -1e9], np.float32)
    got = contract.to_f32(contract.quantize(x, scale, "e4m3"))
    quotients = [Fraction(float(v)) / Fraction(float(scale)) for v in x[[0, 1, 2, 3]]]
    once = [BINARY32.value(BINARY32.nearest(q)) for q in quotients]  # C5: one rounding, then C11
    expected = [float(FORMATS["e4m3"].value(FORMATS["e4m3"].nearest(Fraction(v)))) for v in once]
    assert got[:4].tolist() == expected
    assert np.isnan(got[4])
    assert got[5] == -448
    assert float(contract.to_f32(contract.quantize(np.float32(2.6), np.float32(1), "e5m2"))) == 2.5
    assert float(contract.to_f32(contract.quantize(np.float32(2.6), np.float32(1), "e4m3"))) == 2.5
    assert float(contract.to_f32(contract.quantize(np.float32(2.7), np.float32(1), "e4m3"))) == 2.75


def test_c11_quantise_is_not_a_product_with_the_reciprocal() -> None:
    """A value and a scale whose exact quotient 3.125 is a tie that goes to 3; the product with RN(1 / scale) lies above it."""
    scale, x = np.float32(0.109375), np.float32(0.341796875)
    assert float(contract.mul(x, contract.div(np.float32(1), scale))) > 3.125 == float(contract.div(x, scale))
    assert float(contract.to_f32(contract.quantize(x, scale, "e4m3"))) == 3.0


def test_c11_dequantise_multiplies_once_in_binary32() -> None:
    scale = np.float32(1 / 3)
    for name in ("e4m3", "e5m2"):
        patterns = every_pattern(name)
        got = contract.dequantize(patterns, scale)
        for pattern, value in enumerate(got):
            exact = FORMATS[name].value(pattern)
            if isinstance(exact, Fraction):
                expected = BINARY32.nearest(exact * Fraction(float(scale)), bool(pattern >> 7))
                assert rationals.bits(value) == [expected], f"C11: {name} {pattern:#04x} times {scale!r}"


def test_float64_and_half_operands_are_refused() -> None:
    for wrong in (1.0, np.float64(1), np.ones(3), np.ones(3, np.float16)):
        with pytest.raises(TypeError, match="float32"):
            contract.from_f32(wrong, "f16")
    with pytest.raises(TypeError, match="int32"):
        contract.to_f32(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="e8m0"):
        contract.from_f32(np.float32(1), "e8m0")


@pytest.mark.parametrize("name", NAMES)
def test_c11_the_cpp_text_agrees_up_and_down(name: str) -> None:
    """All patterns up; down all exponents with a thousand fractions each, and every midpoint's neighbourhood."""
    library = exhaustive.built_library("host")
    patterns = np.arange(1 << FORMATS[name].width, dtype=np.uint32)
    got = exhaustive.host_apply(library, f"to_f32_{name}", patterns.view(np.float32))
    assert np.array_equal(got, contract.canonical_nan(contract.to_f32(every_pattern(name))).view(np.uint32))
    middles = np.concatenate([contract.to_f32(every_pattern(name)).view(np.uint32).astype(np.int64) + d for d in range(-3, 4)])
    halves = np.arange(1 << 16, dtype=np.int64) << 16
    x = np.concatenate([middles, *(halves + d for d in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF))]).astype(np.uint32)
    random = (Stream(5).words(1 << 18) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    x = np.concatenate([x, random]).view(np.float32)
    got, expected = exhaustive.host_apply(library, f"from_f32_{name}", x), narrowed(x, name)
    wrong = np.flatnonzero(got != expected)
    assert not wrong.size, f"{name}: {x.view(np.uint32)[wrong[0]]:#010x}: C++ {got[wrong[0]]:#x}, NumPy {expected[wrong[0]]:#x}"
