"""merge_attn_states before two independent judges: float64 with a bound derived here, exact rationals with every rounding redone.

The bound. Let u = 2^-24, D = |lse_a - lse_b|, W_a + W_b = 1 the exact weights, the smaller of them called W; first-order terms in u:

- lse - m is rounded once: u * D absolute, so relative in e; exp errs by at most 1 ulp, 2u relative. e of the greater side is exactly 1.
  So the smaller e errs by at most u * (D + 2) relative, which moves W by W (1 - W) of that, the other weight by the opposite:
  |error| <= u * (D + 2) * W_a * W_b * |o_a - o_b|.
- s and e / s: 2u relative in both weights; o * w: u; the sum: u. Together 4u * (W_a |o_a| + W_b |o_b|).
- An e below 2^-126 errs by 2^-149 absolute instead; a product below it by 2^-150: 2^-148 * (|o_a| + |o_b|) + 2^-148.

Then half an ulp of the output's type. lse = log(s) + m: s errs by u (rounding) + u * (D + 2) * W relative, log by 1 ulp of a number up to
ln 2, that is u; half an ulp of the result at the end: 0.5 ulp + u * (2 + (D + 2) * W). Second-order terms: 1 % on top of everything.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from pyref import contract
from pyref.merge_attn_states import run
from tools.data import Stream

U = 2.0**-24
#: dtype: (bits of precision, exponent of the least subnormal)
FORMATS = {"f32": (24, -149), "f16": (11, -24), "bf16": (8, -133)}


def ulp(x: np.ndarray, dtype: str) -> np.ndarray:
    """The distance of neighbours in ``dtype`` at |x|, in float64."""
    precision, least = FORMATS[dtype]
    exponent = np.frexp(np.abs(x))[1] - precision
    return np.ldexp(1.0, np.maximum(exponent, least))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0, 60.0, 110.0])
def test_float64_is_within_the_bound(dtype: str, spread: float) -> None:
    stream = Stream(int(spread) + len(dtype))
    n, h, d = 40, 25, 16
    o_a, o_b = (stream.normal((n, h, d), dtype, scale=scale) for scale in (1.0, 3.0))
    lse_a, lse_b = (stream.normal((h, n), "f32", scale=spread) + np.float32(shift) for shift in (0, 4))
    out, lse = run(prefix_out=o_a, prefix_lse=lse_a, suffix_out=o_b, suffix_lse=lse_b, out_lse=np.empty((h, n), np.float32))
    a, b = (o.astype(np.float32).astype(np.float64) for o in (o_a, o_b))
    x, y = (side.T[..., None].astype(np.float64) for side in (lse_a, lse_b))
    gap, top = np.abs(x - y), np.maximum(x, y)
    total = np.exp(x - top) + np.exp(y - top)
    w_a, w_b = np.exp(x - top) / total, np.exp(y - top) / total
    exact = w_a * a + w_b * b
    error = U * ((gap + 2) * w_a * w_b * np.abs(a - b) + 4 * (w_a * np.abs(a) + w_b * np.abs(b)))
    bound = 0.5 * ulp(exact, dtype) + 1.01 * error + 2.0**-148 * (np.abs(a) + np.abs(b) + 1)
    off = np.abs(out.astype(np.float32).astype(np.float64) - exact)
    assert (off <= bound).all(), f"{np.max(off / bound):.3f} of the bound, at {np.unravel_index(np.argmax(off / bound), off.shape)}"
    assert np.max(off / bound) > 0.4, "a bound so far from what happens would let a wrong clause pass"
    exact_lse = (np.log(total) + top)[..., 0].T
    allowed = 0.5 * ulp(exact_lse, "f32") + 1.01 * U * (2 + (gap + 2) * np.minimum(w_a, w_b))[..., 0].T
    off_lse = np.abs(lse.astype(np.float64) - exact_lse)
    assert (off_lse <= allowed).all(), f"LSE: {np.max(off_lse / allowed):.3f} of the bound"


@pytest.mark.parametrize("wrong", ["base-2", "mean", "no-division", "swapped"])
def test_the_bound_sees_a_wrong_rule(wrong: str) -> None:
    """What the bound is for: each of these rules leaves it."""
    stream = Stream(7)
    a, b = (stream.normal((50,), "f32").astype(np.float64) for _ in range(2))
    x, y = (stream.normal((50,), "f32").astype(np.float64) for _ in range(2))
    e_a, e_b = np.exp(x), np.exp(y)
    exact = (a * e_a + b * e_b) / (e_a + e_b)
    rules = {
        "base-2": (a * 2**x + b * 2**y) / (2**x + 2**y),
        "mean": (a + b) / 2,
        "no-division": a * np.exp(x - np.maximum(x, y)) + b * np.exp(y - np.maximum(x, y)),
        "swapped": (a * e_b + b * e_a) / (e_a + e_b),
    }
    bound = 0.5 * ulp(exact, "bf16") + 8 * U * (np.abs(a) + np.abs(b))
    assert (np.abs(rules[wrong] - exact) > bound).mean() > 0.9


# --- exact rationals ---------------------------------------------------------------------------------------------------------------------


def nearest_even(x: Fraction, dtype: str) -> Fraction:
    """x rounded to ``dtype`` (no overflow here), by integers alone."""
    if x == 0:
        return x
    precision, least = FORMATS[dtype]
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent  # 2^exponent <= |x| < 2^(exponent + 1)
    step = Fraction(2) ** max(exponent + 1 - precision, least)
    return round(x / step) * step  # Python rounds a Fraction's half to even


def rational(x: float | np.floating) -> Fraction:
    return Fraction(float(x))


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_rounding_by_rationals(dtype: str) -> None:
    """m, e, s, w, out and lse of random and constructed rows, each operation redone with fractions; exp and log within an ulp by mpmath."""
    stream = Stream(21)
    count = 150
    o_a, o_b = (stream.normal((count, 1, 2), dtype) for _ in range(2))
    lse_a, lse_b = (stream.normal((1, count), "f32", scale=6.0) for _ in range(2))
    lse_b[0, :30] = lse_a[0, :30]  # weights of 1/2: products are exact, sums meet ties
    lse_b[0, 30:45] = lse_a[0, 30:45] - np.float32(16.5)  # s = 1 + 2^-24 (1 + ..): near a tie
    o_a[:, :, 1] = (o_a[:, :, 1].astype(np.float32) * np.float32(2.0**-14 if dtype == "f16" else 2.0**-125)).astype(o_a.dtype)
    out, lse = run(prefix_out=o_a, prefix_lse=lse_a, suffix_out=o_b, suffix_lse=lse_b, out_lse=np.empty((1, count), np.float32))
    with mpmath.workprec(120):
        for n in range(count):
            x, y = lse_a[0, n], lse_b[0, n]
            top = max(rational(x), rational(y))
            e = []
            for side in (x, y):
                power = nearest_even(rational(side) - top, "f32")
                found = contract.exp(np.float32(float(power)))
                true = mpmath.exp(mpmath.mpf(power.numerator) / power.denominator)
                assert abs(mpmath.mpf(float(found)) - true) <= ulp(np.float64(found), "f32")
                e.append(rational(found))
            total = nearest_even(e[0] + e[1], "f32")
            weights = [nearest_even(part / total, "f32") for part in e]
            for i in range(2):
                products = [nearest_even(rational(o[n, 0, i]) * w, "f32") for o, w in zip((o_a, o_b), weights, strict=True)]
                expected = nearest_even(nearest_even(sum(products, Fraction(0)), "f32"), dtype)
                assert rational(out[n, 0, i]) == expected, f"row {n}, element {i}"
            log = contract.log(np.float32(float(total)))
            assert abs(mpmath.mpf(float(log)) - mpmath.log(mpmath.mpf(total.numerator) / total.denominator)) <= ulp(np.float64(log), "f32")
            assert rational(lse[0, n]) == nearest_even(rational(log) + top, "f32")


def test_nearest_even_is_a_rounding() -> None:
    """The judge itself, against NumPy's casts of values that meet ties, subnormals and neighbours."""
    for dtype, cast in (("f16", np.float16), ("f32", np.float32)):
        precision, least = FORMATS[dtype]
        for base in (1.0, 2.0**least, 2.0 ** (least + precision), 3.0 * 2.0**least):
            for twelfth in range(-12, 36):
                value = base + twelfth / 12 * float(ulp(np.float64(base), dtype))
                assert float(nearest_even(Fraction(value), dtype)) == float(cast(value))


def test_known_values() -> None:
    """By hand: equal LSE give the mean and lse + ln 2; 0 and 10 give weights of e."""
    one, three = np.full((1, 1, 1), 1, np.float32), np.full((1, 1, 1), 3, np.float32)
    zero, ten, got = np.zeros((1, 1), np.float32), np.full((1, 1), 10, np.float32), np.empty((1, 1), np.float32)
    out, lse = run(prefix_out=one, prefix_lse=zero, suffix_out=three, suffix_lse=zero, out_lse=got)
    assert (out.item(), lse.item()) == (2.0, float(np.float32(0.6931471805599453)))
    out, lse = run(prefix_out=one, prefix_lse=zero, suffix_out=three, suffix_lse=ten, out_lse=got)
    assert abs(out.item() - (3 - 2 / (1 + np.exp(10)))) < 3e-7
    assert abs(lse.item() - (10 + np.log1p(np.exp(-10)))) < 1e-6
