"""exp2, exp, log2, log and tanh of the contract (C4), from the rounded operations alone.

The algorithms are this project's own; ``tools/fit.py`` fits the coefficients. Each step is one line here and the same line in
``kernels_cu/contract_math.cuh``. Errors are in units in the last place of the exact result, a *fall* is an input whose result lies on the
wrong side of that of the binary32 before it; both were found by running all 2^32 inputs (``make exhaustive``), and a test holds these
docstrings to the recording. Arguments are binary32 arrays or scalars of any shape; results have that shape. No argument is an error: NaN
gives NaN. Import these names from ``pyref.contract``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from pyref.contract_numbers import F32, add, as_f32, div, fma, mul, quiet, sub


def hex_f32(text: str) -> np.float32:
    """A hex float that is exactly a binary32."""
    value = float.fromhex(text)
    if float(np.float32(value)) != value:
        raise ValueError(f"{text} is not a binary32")
    return np.float32(value)


LOG2E: Final = hex_f32("0x1.715476p+0")
LN2: Final = hex_f32("0x1.62e430p-1")
_ZERO, _HALF, _ONE, _TWO = (np.float32(x) for x in (0, 0.5, 1, 2))
_INF, _NAN = np.float32(np.inf), np.float32(np.nan)

# lowest power first, see tools/fit.py for what each polynomial approximates
EXP2_POLY: Final = tuple(map(hex_f32, (
    "0x1.62e430p-1", "0x1.ebfbdcp-3", "0x1.c6af7cp-5", "0x1.3b2de0p-7", "0x1.5f082ep-10", "0x1.416b50p-13",
)))  # fmt: skip
EXP_POLY: Final = tuple(map(hex_f32, (
    "0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558acp-5", "0x1.123980p-7", "0x1.6a5192p-10",
)))  # fmt: skip
LOG_POLY: Final = tuple(map(hex_f32, (
    "0x1.555548p-2", "-0x1.000006p-2", "0x1.99a476p-3", "-0x1.555c3ep-3", "0x1.233b98p-3",
    "-0x1.fc2a18p-4", "0x1.e6c284p-4", "-0x1.ddf90ep-4", "0x1.146098p-4",
)))  # fmt: skip
TANH_POLY: Final = tuple(map(hex_f32, (
    "-0x1.555552p-2", "0x1.11103cp-3", "-0x1.b9f6dap-5", "0x1.64c044p-6", "-0x1.18db64p-7",
    "0x1.8f862cp-9", "-0x1.ae8cbap-11", "0x1.e76c16p-14",
)))  # fmt: skip
_LN2_HIGH, _LN2_LOW = hex_f32("0x1.62e400p-1"), hex_f32("0x1.7f7d1cp-20")  # 15 significant bits, so that e * _LN2_HIGH is exact; the rest
_LOG2E_LOW: Final = hex_f32("0x1.4ae0c0p-26")  # what LOG2E lacks of log2(e)
_SQRT2: Final = hex_f32("0x1.6a09e6p+0")
_TANH_CUT: Final = hex_f32("0x1.0p+0")  # from here on the quotient is the more exact


def _horner(x: F32, coefficients: tuple[np.float32, ...]) -> F32:
    """sum c_k x^k, from the highest power, one fma a step."""
    total = np.broadcast_to(coefficients[-1], x.shape)
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def round_even(x: ArrayLike) -> F32:
    """x rounded to an integral value, ties to even: IEEE 754's roundToIntegralTiesToEven. A zero has x's sign; NaN and infinities stay."""
    with quiet():
        return np.rint(as_f32(x))[()]


def _power(n: np.ndarray) -> F32:
    """2^n for integers n in [-126, 127], by its bits."""
    return ((n + np.int32(127)) << np.int32(23)).view(np.float32)


def _scale(p: F32, j: F32) -> F32:
    """RN(p * 2^j) for p in [1/2, 2], integral j in [-150, 128]: one rounding (C4)."""
    n = j.astype(np.int32)
    down, up = n < -126, n > 127
    factor = _power(n + np.where(down, np.int32(64), np.where(up, np.int32(-64), np.int32(0))))
    last = np.where(down, np.float32(2.0**-64), np.where(up, np.float32(2.0**64), _ONE))
    return mul(mul(p, factor), last)  # the first product is exact whenever the second is not by 1


def exp2_poly(f: F32) -> F32:
    """2^f for f in [-1/2, 1/2]: 1 + f * EXP2_POLY(f)."""
    return fma(_horner(f, EXP2_POLY), f, _ONE)


def exp2(x: ArrayLike) -> F32:
    """2^x. At most 0.8784 ulp (0.80 where the result is normal); 83,364 falls, by one ulp each.

    +inf from 128 on, +0 below -150. 2^j times a polynomial of 2^f, j integral and |f| <= 1/2.
    """
    x = np.asarray(as_f32(x))
    with quiet():
        finite = (x >= -150) & (x < 128)  # C4: all tested before the split
    safe = np.where(finite, x, _ZERO)
    j = round_even(safe)
    result = _scale(exp2_poly(sub(safe, j)), j)  # f = x - j is exact
    result = np.where(finite, result, np.where(x < 0, _ZERO, _INF))
    return np.where(np.isnan(x), x, result)[()]


def exp(x: ArrayLike) -> F32:
    """e^x. At most 0.7706 ulp (0.69 where the result is normal); 0 falls.

    x = j ln 2 + r with ln 2 in two parts; e^r = 1 + r + r^2 q(r), where 1 + high is rounded first and what it lost is added with the rest.
    """
    x = np.asarray(as_f32(x))
    with quiet():
        finite = (x >= -104) & (x < 89)
    safe = np.where(finite, x, _ZERO)
    j = round_even(mul(safe, LOG2E))
    high = fma(-j, _LN2_HIGH, safe)  # exact
    r = fma(-j, _LN2_LOW, high)
    p = add(_ONE, high)
    rest = fma(-j, _LN2_LOW, sub(high, sub(p, _ONE)))  # what r and p lost, the inner differences are exact
    p = add(p, fma(mul(r, r), _horner(r, EXP_POLY), rest))
    result = _scale(p, j)
    result = np.where(finite, result, np.where(x < 0, _ZERO, _INF))
    return np.where(np.isnan(x), x, result)[()]


def _split(x: np.ndarray) -> tuple[F32, F32]:
    """(e, f): x = 2^e * (1 + f), e integral, f in [sqrt(1/2) - 1, sqrt(2) - 1], both exact; x positive and finite."""
    with quiet():
        subnormal = x < np.float32(2.0**-126)
    bits = np.where(subnormal, mul(x, np.float32(2.0**24)), x).view(np.int32)
    e = (bits >> 23) - np.where(subnormal, np.int32(127 + 24), np.int32(127))
    s = ((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)  # [1, 2)
    high = s > _SQRT2
    s = np.where(high, mul(s, np.float32(0.5)), s)
    e = e + high
    return e.astype(np.float32), sub(s, _ONE)


def _log_special(x: np.ndarray, result: F32) -> F32:
    """The values of a logarithm at and beyond its ends: NaN below 0, -inf at 0, +inf at +inf."""
    with quiet():
        result = np.where(x == 0, -_INF, result)
        result = np.where(x == _INF, _INF, result)
        return np.where(np.isnan(x) | (x < 0), _NAN, result)[()]


def _positive(x: np.ndarray) -> np.ndarray:
    with quiet():
        return np.where((x > 0) & (x < _INF), x, _ONE)


def _log1p(f: F32) -> tuple[F32, F32]:
    """ln(1 + f) = u + v: u = RN(f - f^2 / 2), v the small rest."""
    h = mul(f, f)
    half = mul(h, _HALF)  # exact
    u = sub(f, half)
    rest = sub(sub(f, u), half)  # exact
    rest = fma(-_HALF, fma(f, f, -h), rest)  # the inner fma is exact: what h lost
    return u, fma(mul(h, f), _horner(f, LOG_POLY), rest)


def log2(x: ArrayLike) -> F32:
    """log2(x). At most 0.6907 ulp; 0 falls. NaN below 0, -inf at both zeros.

    x = 2^e (1 + f) with 1 + f about 1; ln(1 + f) and log2 e in two parts each, so that the sum e + high + low is rounded once in effect.
    """
    x = np.asarray(as_f32(x))
    e, f = _split(_positive(x))
    u, v = _log1p(f)
    high = mul(u, LOG2E)
    low = fma(u, LOG2E, -high)  # exact: what high lost
    low = fma(v, LOG2E, fma(u, _LOG2E_LOW, low))
    total = add(e, high)
    return _log_special(x, add(total, add(sub(high, sub(total, e)), low)))


def log(x: ArrayLike) -> F32:
    """ln(x). At most 0.6159 ulp; 0 falls. NaN below 0, -inf at both zeros.

    As ``log2``, with e ln 2 in two parts.
    """
    x = np.asarray(as_f32(x))
    e, f = _split(_positive(x))
    u, v = _log1p(f)
    big = mul(e, _LN2_HIGH)  # exact
    total = add(big, u)
    low = add(fma(e, _LN2_LOW, sub(u, sub(total, big))), v)
    return _log_special(x, add(total, low))


def tanh(x: ArrayLike) -> F32:
    """tanh(x). At most 0.9577 ulp; 0 falls. Odd, bit for bit: the sign is put back at the end, that of a zero too.

    An odd polynomial for |x| < 1; from 1 on 1 - 2 / (e^2|x| + 1).
    """
    x = np.asarray(as_f32(x))
    a = np.abs(x)
    u = mul(a, a)
    with quiet():
        small = a < _TANH_CUT
    v = np.where(small, u, _ZERO)
    near = fma(mul(a, v), _horner(v, TANH_POLY), a)
    far = sub(_ONE, div(_TWO, add(exp(add(a, a)), _ONE)))
    result = np.where(small, near, far)
    return (result.view(np.uint32) | (x.view(np.uint32) & np.uint32(0x80000000))).view(np.float32)[()]
