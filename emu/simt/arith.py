"""Scalar arithmetic of the simulator: what a GPU computes, in plain Python on NumPy scalars.

`fma` is one rounding (C3). Rounding a Python float `s` to binary32 is written `_NEG0 + s`: NumPy converts a Python float beside
an np.float32 with one rounding, and -0 + x is x for every x, both zeros included. It is a third of the cost of np.float32(s).
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np

f16, f32, f64 = np.float16, np.float32, np.float64
_NEG0 = f32(-0.0)
# 53-bit sums err by at most 2^-53 relative; four times that on either side brackets the exact value.
_UP, _DOWN = 1.0 + 2.0**-51, 1.0 - 2.0**-51
_pack_d, _unpack_d = struct.Struct("<d").pack, struct.Struct("<d").unpack
_pack_q, _unpack_q = struct.Struct("<q").pack, struct.Struct("<q").unpack


def odd_sum(p: float, c: float) -> float:
    """p + c rounded to odd in binary64: a later rounding to 24 bits or fewer is then the only rounding. (Boldo and Melquiond 2008)"""
    s = p + c
    if s - s != 0.0:  # inf or NaN
        return s
    t = s - p
    e = (p - (s - t)) + (c - t)  # TwoSum: s + e == p + c exactly
    if e == 0.0:
        return s
    (bits,) = _unpack_q(_pack_d(s))
    if not bits & 1:
        bits += 1 if (e > 0.0) == (s > 0.0) else -1
        (s,) = _unpack_d(_pack_q(bits))
    return s


def fma32(a: Any, b: Any, c: Any) -> np.float32:
    """fma of three binary32 values with one rounding (C3)."""
    p = float(a) * float(b)  # exact: 24 + 24 bits
    c = float(c)
    s = p + c
    r = _NEG0 + s * _UP
    if r == _NEG0 + s * _DOWN:
        return r  # exact value and its double neighbourhood round to the same binary32
    return _NEG0 + odd_sum(p, c)


def fma16(a: Any, b: Any, c: Any) -> np.float16:
    """fma of three binary16 values with one rounding; the product is exact in binary64."""
    return f16(odd_sum(float(a) * float(b), float(c)))


def fma64(a: Any, b: Any, c: Any) -> np.float64:
    """fma of three binary64 values with one rounding, by exact rationals (slow)."""
    x, y, z = float(a), float(b), float(c)
    s = x * y + z
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return f64(s)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return f64(s)  # the sign of zero follows the unfused sum, which is exact in sign here
    try:
        return f64(exact.numerator / exact.denominator)  # int / int is correctly rounded
    except OverflowError:
        return f64(math.inf if exact > 0 else -math.inf)


def fma(a: Any, b: Any, c: Any) -> Any:
    """cuda.fma: fused in the type that the arguments promote to on the GPU."""
    kinds = {type(a), type(b), type(c)}
    if kinds == {f32}:
        return fma32(a, b, c)
    if kinds == {f16}:
        return fma16(a, b, c)
    return fma64(a, b, c)


def to32(x: Any) -> np.float32:
    """x as binary32, nearest even."""
    return x if type(x) is f32 else f32(x)


def add32(a: Any, b: Any) -> np.float32:
    """RN(a + b) in binary32 (C1)."""
    r = a + b
    return r if type(a) is f32 and type(b) is f32 else to32(a) + to32(b)


def sub32(a: Any, b: Any) -> np.float32:
    """RN(a - b) in binary32 (C1)."""
    r = a - b
    return r if type(a) is f32 and type(b) is f32 else to32(a) - to32(b)


def mul32(a: Any, b: Any) -> np.float32:
    """RN(a * b) in binary32 (C1)."""
    r = a * b
    return r if type(a) is f32 and type(b) is f32 else to32(a) * to32(b)


def div32(a: Any, b: Any) -> np.float32:
    """RN(a / b) in binary32, correctly rounded (C5)."""
    return to32(a) / to32(b)


def sqrt32(a: Any) -> np.float32:
    """RN(sqrt(a)) in binary32 (C5)."""
    return np.sqrt(to32(a))
