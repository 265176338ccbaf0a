"""Judge of single operations: exact rationals, rounded to a float format by comparing integers. No rounding is taken from the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np

from pyref import contract
from tools.data import Stream


@dataclass(frozen=True)
class Format:
    """A binary float format: ``width`` bits, ``fraction`` of them after the point. ``saturates``: overflow gives the greatest number.

    ``special``: an all-ones exponent means infinity or NaN (e4m3fn uses it for numbers, all but one pattern).
    """

    width: int
    bias: int
    fraction: int
    saturates: bool = False
    special: bool = True

    @property
    def exponent_field(self) -> int:
        """The all-ones exponent."""
        return (1 << (self.width - 1 - self.fraction)) - 1

    @property
    def greatest(self) -> int:
        """Pattern of the greatest finite number."""
        return (self.exponent_field << self.fraction) - 1 if self.special else (1 << (self.width - 1)) - 2

    def value(self, pattern: int) -> Fraction | str:
        """The exact value of a pattern; "nan", "inf" or "-inf" where it is none."""
        sign = -1 if pattern >> (self.width - 1) else 1
        magnitude = pattern & ((1 << (self.width - 1)) - 1)
        if magnitude > self.greatest:
            infinite = self.special and magnitude == self.exponent_field << self.fraction
            return ("inf" if sign > 0 else "-inf") if infinite else "nan"
        exponent, digits = magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1)
        if exponent:
            digits |= 1 << self.fraction
        power = max(exponent, 1) - self.bias - self.fraction
        return Fraction(sign * digits << max(power, 0), 1 << max(-power, 0))

    def nearest(self, exact: Fraction, negative_zero: bool = False) -> int:
        """Pattern of the value nearest to ``exact``, ties to the even pattern; a zero has the sign of ``exact`` or of ``negative_zero``."""
        sign = (1 << (self.width - 1)) if exact < 0 or (exact == 0 and negative_zero) else 0
        top, bottom = abs(exact.numerator), exact.denominator
        exponent = top.bit_length() - bottom.bit_length()  # of the leading bit, or one more
        if top and top << max(-exponent, 0) < bottom << max(exponent, 0):
            exponent -= 1
        exponent = max(exponent, 1 - self.bias) if top else 1 - self.bias
        shift = self.fraction - exponent  # size / 2^-shift is to become an integer
        steps, rest = divmod(top << max(shift, 0), bottom << max(-shift, 0))
        # of two neighbours the nearer, of equally near ones the even; patterns count on across powers of two, and so to infinity
        doubled, whole = 2 * rest, bottom << max(-shift, 0)
        steps += doubled > whole or (doubled == whole and steps & 1)
        pattern = steps + ((exponent + self.bias - 1) << self.fraction)
        if pattern > self.greatest:
            pattern = self.greatest if self.saturates else self.greatest + 1
        return sign | pattern


BINARY32 = Format(32, 127, 23)
FORMATS = {
    "f16": Format(16, 15, 10),
    "bf16": Format(16, 127, 7),
    "e4m3": Format(8, 7, 3, saturates=True, special=False),
    "e5m2": Format(8, 15, 2, saturates=True),
}


def f32(*patterns: int) -> np.ndarray:
    """float32 of bit patterns."""
    return np.array(patterns, np.uint32).view(np.float32)


def bits(x: np.ndarray | np.float32) -> list[int]:
    """Bit patterns of float32 values."""
    return [int(b) for b in np.atleast_1d(np.asarray(x)).view(np.uint32).ravel()]


def fraction(x: float) -> Fraction:
    """The exact value of a finite float."""
    return Fraction(float(x))


def hexes(patterns: Sequence[int]) -> str:
    """For messages."""
    return " ".join(f"{p:#010x}" for p in patterns)


def ulps(got: float, exact: mpmath.mpf) -> mpmath.mpf:
    """|got - exact| in units in the last place of exact as a binary32."""
    exponent = mpmath.frexp(exact)[1] - 24 if exact else -149
    return abs(mpmath.mpf(float(got)) - exact) / mpmath.ldexp(1, int(max(exponent, -149)))


#: Operands at the corners of binary32: zeros, subnormals, the ends of ranges, neighbours of powers of two, infinities, NaN.
CORNERS: tuple[int, ...] = tuple(
    sign | pattern
    for pattern in (
        0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x0C800000, 0x1F800001, 0x33800000,
        0x34000000, 0x3E800000, 0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FAAAAAB, 0x3FFFFFFF, 0x40000000,
        0x40490FDB, 0x4AFFFFFF, 0x4B000000, 0x4B000001, 0x4B7FFFFF, 0x4B800000, 0x5F000000, 0x7E800000, 0x7EFFFFFF, 0x7F000000, 0x7F7FFFFE,
        0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
    )
    for sign in (0, 0x80000000)
)  # fmt: skip

NAN, INF, NEGATIVE_INF = 0x7FFFFFFF, 0x7F800000, 0xFF800000


def canonical(x: np.ndarray | np.float32) -> list[int]:
    """Bits with every NaN as one pattern."""
    return bits(contract.canonical_nan(x))


def is_negative(x: np.float32) -> bool:
    """Whether the sign bit is set, of a zero too."""
    return bool(np.signbit(x))


def exact_fma(a: np.float32, b: np.float32, c: np.float32) -> int:
    """Bits of a * b + c with one rounding, by IEEE's rules for what is not finite and by rationals for the rest."""
    product_negative = is_negative(a) != is_negative(b)
    if np.isnan(a) or np.isnan(b) or np.isnan(c):
        return NAN
    if np.isinf(a) or np.isinf(b):
        if a == 0 or b == 0 or (np.isinf(c) and is_negative(c) != product_negative):
            return NAN
        return NEGATIVE_INF if product_negative else INF
    if np.isinf(c):
        return bits(c)[0]
    exact = fraction(a) * fraction(b) + fraction(c)
    both_negative = product_negative and is_negative(c)
    return BINARY32.nearest(exact, negative_zero=both_negative)  # an exact zero is -0 only where both terms are


def exact_divide(a: np.float32, b: np.float32) -> int:
    """Bits of a / b with one rounding."""
    negative = is_negative(a) != is_negative(b)
    if np.isnan(a) or np.isnan(b) or (np.isinf(a) and np.isinf(b)) or (a == 0 and b == 0):
        return NAN
    if np.isinf(a) or b == 0:
        return NEGATIVE_INF if negative else INF
    if np.isinf(b):
        return BINARY32.nearest(Fraction(0), negative)
    return BINARY32.nearest(fraction(a) / fraction(b), negative)


def near_ties(power: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x * y is just below half of 2^power, c an integer multiple of 2^power: the exact sum is just below a midpoint."""
    integers = np.concatenate([np.arange(1 << 23, (1 << 23) + 1000), Stream(4).integers(1 << 23, 1 << 24, 3000)])
    if power == -149:
        integers -= 1 << 23  # at the subnormal scale c has fewer bits
    c = np.ldexp(integers.astype(np.float64), power).astype(np.float32)
    x = np.float32(np.ldexp(1 - 2.0**-23, power // 2))
    y = np.float32(np.ldexp((1 + 2.0**-23) / 2, power - power // 2))
    return np.full_like(c, x), np.full_like(c, y), c
