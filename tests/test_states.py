"""C12 and C13: weights relative to an integral maximum, and the joining of states, judged by exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pyref import contract
from tests.rationals import BINARY32, CORNERS, INF, NAN, NEGATIVE_INF, bits, canonical, exact_fma, f32, fraction, is_negative
from tools.data import Stream

# --- C12: weights relative to an integral maximum ---


def test_c12_scale2_rounds_twice() -> None:
    for scale in (128**-0.5, 0.1, 1.0, 80**-0.5):
        once = Fraction(*np.float32(scale).astype(np.float64).as_integer_ratio())
        expected = BINARY32.nearest(once * Fraction(float.fromhex("0x1.715476p+0")))
        assert bits(contract.scale2(scale)) == [expected]
    assert type(contract.scale2(0.125)) is np.float32


def test_c12_pow2_weight_at_every_integer() -> None:
    n = np.arange(-300, 301).astype(np.float32)
    expected = [BINARY32.nearest(Fraction(2) ** int(k)) if k >= -126 else 0 for k in n]
    assert bits(contract.pow2_weight(n)) == expected
    odd = np.array([np.nan, -np.inf, np.inf, -3e38, 3e38], np.float32)
    assert bits(contract.pow2_weight(odd)) == [0, 0, INF, 0, INF]


def test_c12_ceil_max_is_integral_and_never_minus_zero() -> None:
    rows = [
        ([0.25, -3, 1.5], 2), ([-0.25, -0.75], 0.0), ([-0.0], 0.0), ([np.nan, 2.5], 3), ([np.nan] * 2, -np.inf),
        ([-np.inf, -np.inf], -np.inf), ([-np.inf, np.nan, -7.5], -7), ([np.inf, 1], np.inf), ([3e9, 5], 3e9), ([8388607.5, 1], 8388608),
        ([-8388607.5], -8388607), ([4194304.5], 4194305), ([1e-45], 1), ([-1e-45], 0.0), ([16777217], 16777216), ([-3e38], -3e38),
    ]  # fmt: skip
    for row, expected in rows:
        got = contract.ceil_max(np.array(row, np.float32))
        assert bits(got) == bits(np.float32(expected)), f"C12: m of {row} is {expected}, got {got!r}"
    table = np.array([[1, 2.5], [np.nan, -1.5]], np.float32)
    assert contract.ceil_max(table, axis=0).tolist() == [1, 3]


def test_c12_ceil_and_round_even_at_halves_and_corners() -> None:
    halves = np.arange(-2049, 2050).astype(np.float32) / np.float32(2)
    big = np.ldexp(np.arange(1, 64).astype(np.float32), 18)
    x = np.concatenate([halves, big, -big, big + np.float32(0.5), -big - np.float32(0.5), f32(*CORNERS)])
    finite = x[np.isfinite(x)]
    for value, up, even in zip(finite, contract.ceil(finite), contract.round_even(finite), strict=True):
        assert fraction(up) == -(-fraction(value) // 1), f"ceil({value!r}) gave {up!r}"
        assert not (up == 0 and is_negative(up)), f"C12: ceil({value!r}) is -0"
        assert fraction(even) == round(fraction(value)), f"round_even({value!r}) gave {even!r}"
    assert np.isnan(contract.ceil(np.float32(np.nan)))
    assert contract.ceil(np.array([np.inf, -np.inf], np.float32)).tolist() == [np.inf, -np.inf]


def test_c12_p_by_its_cases() -> None:
    m = np.float32(4)
    s2 = np.array([np.nan, np.inf, -np.inf, 4, 3, -121, -121.4, -121.5, -122, -3e38], np.float32)
    got = canonical(contract.weights_p(s2, m))
    # j - m is -125, -125, -126 (a tie to even), -126: the last two vanish
    beside = canonical(contract.mul(contract.exp2_poly(np.float32(-121.4) - np.float32(-121)), np.float32(2.0**-125)))
    assert got == [NAN, NAN, 0, 0x3F800000, 0x3F000000, 0x01000000, *beside, 0, 0, 0]
    nowhere, above = np.array([-np.inf, np.nan], np.float32), np.array([1, np.inf], np.float32)
    assert canonical(contract.weights_p(nowhere, np.float32(-np.inf))) == [0, NAN], "a tile without a finite logit"
    assert canonical(contract.weights_p(above, np.float32(np.inf))) == [0, NAN], "a tile with +inf"


def test_c12_p_is_never_subnormal_and_is_poly_times_a_power() -> None:
    stream = Stream(12)
    s2 = (stream.normal((1 << 16,), "f32", scale=50.0)).astype(np.float32)
    m = contract.ceil_max(s2)
    p = contract.weights_p(s2, m)
    assert np.all((p == 0) | (p >= np.float32(2.0**-126)))
    assert np.all(p <= 1)
    j = contract.round_even(s2)
    for i in range(0, len(s2), 997):
        power = int(j[i] - m)
        exact = fraction(contract.exp2_poly(contract.sub(s2[i], j[i]))) * Fraction(2) ** power if power >= -125 else Fraction(0)
        assert fraction(p[i]) == exact, f"C12: p({s2[i]!r}, {m!r})"


@pytest.mark.parametrize("top", [3e9, 2.0**22 + 1.5, 2.0**23 + 1, -(2.0**22) - 0.5, -3e9, 2.0**127])
def test_c12_p_where_the_magic_sum_of_c4_would_fail(top: float) -> None:
    """Logits near 3e9 are a corner case of the contract: j is the logit itself there, and f is 0."""
    s2 = np.float32([top, np.nextafter(np.float32(top), np.float32(-np.inf)), top - 1 if abs(top) < 2**23 else top])
    m = contract.ceil_max(s2)
    got = contract.weights_p(s2, m)
    for value, p in zip(s2, got, strict=True):
        distance = fraction(value) - fraction(m)
        exact = 2.0 ** float(distance) if distance > -120 else 0.0
        assert abs(float(p) - exact) <= 2.0**-23 * exact, f"C12: p({value!r}, {m!r}) gave {p!r}"


# --- C13: states ---


def test_c13_join_rounds_in_the_order_of_the_walk() -> None:
    stream = Stream(13)
    a, a_u = stream.normal((2, 6), "f32"), stream.normal((2, 6), "f32")
    l, l_u = np.abs(stream.normal((2,), "f32")), np.abs(stream.normal((2,), "f32"))  # noqa: E741
    m, m_u = np.array([3, -4], np.float32), np.array([1, 2], np.float32)
    top, total, out = contract.join((m, l, a), (m_u, l_u, a_u))
    assert top.tolist() == [3, 2]
    for n in range(2):
        w, w_u = (np.float32(2.0 ** float(x - top[n])) for x in (m[n], m_u[n]))
        for x, x_u, got in ((l[n], l_u[n], total[n]), *zip(a[n], a_u[n], out[n], strict=True)):
            first = f32(BINARY32.nearest(fraction(x) * fraction(w)))[0]
            assert bits(got) == [exact_fma(x_u, w_u, first)]


def test_c13_join_rounds_the_older_state_first() -> None:
    """V near 2^-120: a weight makes subnormals, and only there does it matter which product is rounded alone."""
    stream = Stream(15)
    older = contract.mul(stream.normal((400,), "f32"), np.float32(2.0**-120))
    later = contract.mul(stream.normal((400,), "f32"), np.float32(2.0**-125))
    for m, m_u, exact in (
        (0, 12, [exact_fma(y, np.float32(1), contract.mul(x, np.float32(2.0**-12))) for x, y in zip(older, later, strict=True)]),
        (12, 0, [exact_fma(y, np.float32(2.0**-12), x) for x, y in zip(older, later, strict=True)]),
    ):
        tops = [np.full(400, x, np.float32) for x in (m, m_u)]
        _, total, out = contract.join((tops[0], older, older[:, None]), (tops[1], later, later[:, None]))
        assert bits(total) == exact
        assert bits(out) == exact
    swapped = [exact_fma(x, np.float32(2.0**-12), y) for x, y in zip(older, later, strict=True)]
    assert swapped != [exact_fma(y, np.float32(1), contract.mul(x, np.float32(2.0**-12))) for x, y in zip(older, later, strict=True)]


def test_c13_join_with_states_without_weight() -> None:
    def state(m: float, l: float, a: float) -> contract.State:  # noqa: E741
        return np.float32([m]), np.float32([l]), np.float32([[a]])

    nothing, one = state(-np.inf, 0, 0), state(2, 1, 5)
    for got in (contract.join(nothing, one), contract.join(one, nothing)):
        assert [x.ravel().tolist() for x in got] == [[2], [1], [5]], "a tile of -inf logits adds nothing"
    top, total, out = contract.join(nothing, nothing)
    assert (top[0], total[0], out[0, 0]) == (-np.inf, 0, 0), "w of NaN is +0"
    _, total, out = contract.join(state(np.inf, np.nan, np.nan), one)
    assert np.isnan(total[0]), "a +inf logit makes its row NaN"
    assert np.isnan(out[0, 0])
    _, _, out = contract.join(state(0, 1, np.inf), state(200, 1, 1))
    assert np.isnan(out[0, 0]), "C10: an infinite a under a weight of +0"
    far = contract.join(state(0, 1, 5), state(126, 1, 1))
    assert bits(far[1]) == bits(np.float32(1))
    assert bits(contract.join(state(0, 1, 5), state(127, 0, 0))[2]) == [0], "2^-127 is +0"


def test_c13_lse_is_natural() -> None:
    m, l = np.array([0, 10, -126, 3], np.float32), np.array([1, 1.5, 100, 0.75], np.float32)  # noqa: E741
    got = contract.lse(m, l)
    exact = (m.astype(np.float64) + np.log2(l.astype(np.float64))) * np.log(2)
    assert np.all(np.abs(got - exact) <= 2e-7 * np.maximum(1, np.abs(exact)))
    assert bits(contract.lse(np.float32(10), np.float32(1))) == [BINARY32.nearest(10 * fraction(contract.LN2))]
    assert bits(contract.lse(np.float32(-np.inf), np.float32(0))) == [NEGATIVE_INF]
