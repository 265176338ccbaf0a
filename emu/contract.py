"""The arithmetic contract for numba ports: device functions on np.float32 scalars, step by step those of `pyref.contract`.

The same source compiles for the GPU and runs in the simulator, where some functions are replaced by faster equals (`sim=`). Storage of
16 bits reaches a port as uint16. Coefficients come from `pyref.contract_math`.
"""

from __future__ import annotations

import numpy as np
from numba.cuda import libdevice

from emu.contract_numbers import (
    FROM_F32,
    HALF,
    INF,
    NAN,
    ONE,
    TO_F32,
    TWO,
    ZERO,
    add,
    bf16_to_f32,
    canonical_nan,
    div,
    f16_to_f32,
    f32,
    f32_to_bf16,
    f32_to_f16,
    fabs,
    fma,
    mul,
    neg,
    same,
    sqrt,
    sub,
)
from emu.simt import device
from pyref import contract_math as _m

__all__ = [
    "FROM_F32", "HALF", "INF", "LN2", "LOG2E", "NAN", "ONE", "TO_F32", "TWO", "ZERO", "add", "bf16_to_f32", "canonical_nan",
    "ceil", "div", "exp", "exp2", "exp2_poly", "f16_to_f32", "f32", "f32_to_bf16", "f32_to_f16", "fabs", "fma", "join_scalar",
    "log", "log2", "logits2", "lse", "mul", "neg", "pow2_weight", "round_even", "running_max", "same", "sqrt", "sub", "sum_rows",
    "tanh", "weight_p",
]  # fmt: skip

LOG2E, LN2 = _m.LOG2E, _m.LN2
_EXP2, _EXP, _LOG, _TANH = _m.EXP2_POLY, _m.EXP_POLY, _m.LOG_POLY, _m.TANH_POLY
_LN2_HIGH, _LN2_LOW, _LOG2E_LOW, _SQRT2, _TANH_CUT = _m._LN2_HIGH, _m._LN2_LOW, _m._LOG2E_LOW, _m._SQRT2, _m._TANH_CUT
_TWO23, _LEAST = f32(2.0**23), f32(2.0**-126)
_UP24, _UP64, _DOWN64 = f32(2.0**24), f32(2.0**64), f32(2.0**-64)
_P128, _P89, _N104, _N150, _N125, _N126 = f32(128), f32(89), f32(-104), f32(-150), f32(-125), f32(-126)
_NEG_INF = f32(-np.inf)


_POWERS = [f32(2.0**n) for n in range(-126, 128)]


@device(sim=lambda n: _POWERS[n + 126])
def _power(n: np.int32) -> f32:
    """2^n for an integer n in [-126, 127]."""
    return libdevice.int_as_float(np.int32((n + np.int32(127)) << np.int32(23)))


# --- C6, C12, C13 ---


@device
def running_max(m: f32, x: f32) -> f32:
    """x if x > m compares true, else m: a NaN never wins (C6)."""
    return x if x > m else m


@device
def round_even(x: f32) -> f32:
    """x rounded to an integral value, ties to even; a zero has x's sign, NaN and infinities stay."""
    if not fabs(x) < _TWO23:
        return x
    shift = neg(_TWO23) if x < ZERO else _TWO23
    j = sub(add(x, shift), shift)
    return j if j != ZERO else mul(x, ZERO)


@device
def ceil(x: f32) -> f32:
    """The least integral value not below x, never -0 (C12)."""
    j = round_even(x)
    if j < x:
        j = add(j, ONE)
    return add(j, ZERO)


@device
def logits2(s: f32) -> f32:
    """RN(s * log2 e) (C12)."""
    return mul(s, LOG2E)


@device
def pow2_weight(n: f32) -> f32:
    """w(n): 2^n for integral n >= -126, else +0, also for NaN; from 128 on +inf (C12)."""
    if not n >= _N126:
        return ZERO
    if n >= _P128:
        return INF
    return _power(np.int32(n))


@device
def weight_p(s2: f32, m: f32) -> f32:
    """p of C12 for a base-2 logit and the integral maximum of its own tile."""
    if not s2 < INF:
        return NAN
    if s2 == _NEG_INF:
        return ZERO
    j = round_even(s2)
    n = sub(j, m)
    if not n >= _N125:
        return ZERO
    return mul(exp2_poly(sub(s2, j)), pow2_weight(n))  # exact product


@device
def join_scalar(x: f32, w: f32, x_u: f32, w_u: f32) -> f32:
    """fma(x_u, w_u, RN(x * w)): one step of C13's walk, for l and for every a[d]."""
    return fma(x_u, w_u, mul(x, w))


@device
def sum_rows(row0: f32, row1: f32, row2: f32, row3: f32) -> f32:
    """The last step of C7's tree, over the sums of 4 rows (warps) of 32 lanes."""
    return add(add(row0, row2), add(row1, row3))


@device
def lse(m: f32, l: f32) -> f32:  # noqa: E741
    """Natural log-sum-exp of a state: RN(RN(m + log2 l) * ln 2) (C13)."""
    return mul(add(m, log2(l)), LN2)


# --- C4: elementary functions ---


@device
def exp2_poly(f: f32) -> f32:
    """2^f for f in [-1/2, 1/2]."""
    p = fma(_EXP2[5], f, _EXP2[4])
    p = fma(p, f, _EXP2[3])
    p = fma(p, f, _EXP2[2])
    p = fma(p, f, _EXP2[1])
    p = fma(p, f, _EXP2[0])
    return fma(p, f, ONE)


@device
def _scale(p: f32, j: f32) -> f32:
    """RN(p * 2^j) for p in [1/2, 2], integral j in [-150, 128]: one rounding."""
    n = np.int32(j)
    if n < -126:
        return mul(mul(p, _power(n + np.int32(64))), _DOWN64)
    if n > 127:
        return mul(mul(p, _power(n - np.int32(64))), _UP64)
    return mul(p, _power(n))


@device
def exp2(x: f32) -> f32:
    """2^x."""
    if not x >= _N150:
        return ZERO if x < ZERO else x
    if x >= _P128:
        return INF
    j = round_even(x)
    return _scale(exp2_poly(sub(x, j)), j)


@device
def exp(x: f32) -> f32:
    """e^x."""
    if not x >= _N104:
        return ZERO if x < ZERO else x
    if x >= _P89:
        return INF
    j = round_even(mul(x, LOG2E))
    high = fma(neg(j), _LN2_HIGH, x)  # exact
    r = fma(neg(j), _LN2_LOW, high)
    p = add(ONE, high)
    rest = fma(neg(j), _LN2_LOW, sub(high, sub(p, ONE)))
    q = fma(_EXP[4], r, _EXP[3])
    q = fma(q, r, _EXP[2])
    q = fma(q, r, _EXP[1])
    q = fma(q, r, _EXP[0])
    return _scale(add(p, fma(mul(r, r), q, rest)), j)


@device
def _log_exponent(x: f32) -> f32:
    """e of x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)], x positive and finite."""
    bits = libdevice.float_as_int(mul(x, _UP24) if x < _LEAST else x)
    e = (bits >> np.int32(23)) - (np.int32(151) if x < _LEAST else np.int32(127))
    s = libdevice.int_as_float(np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)))
    return libdevice.int2float_rn(np.int32(e + np.int32(1) if s > _SQRT2 else e))


@device
def _log_fraction(x: f32) -> f32:
    """f of x = 2^e (1 + f), exact."""
    bits = libdevice.float_as_int(mul(x, _UP24) if x < _LEAST else x)
    s = libdevice.int_as_float(np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)))
    return sub(mul(s, HALF) if s > _SQRT2 else s, ONE)


@device
def _log1p_high(f: f32) -> f32:
    """u of ln(1 + f) = u + v: RN(f - f^2 / 2)."""
    return sub(f, mul(mul(f, f), HALF))


@device
def _log1p_low(f: f32, u: f32) -> f32:
    """v of ln(1 + f) = u + v."""
    h = mul(f, f)
    rest = sub(sub(f, u), mul(h, HALF))  # exact
    rest = fma(neg(HALF), fma(f, f, neg(h)), rest)
    q = fma(_LOG[8], f, _LOG[7])
    q = fma(q, f, _LOG[6])
    q = fma(q, f, _LOG[5])
    q = fma(q, f, _LOG[4])
    q = fma(q, f, _LOG[3])
    q = fma(q, f, _LOG[2])
    q = fma(q, f, _LOG[1])
    q = fma(q, f, _LOG[0])
    return fma(mul(h, f), q, rest)


@device
def _log_ends(x: f32) -> f32:
    """A logarithm where x is not positive and finite."""
    return INF if x == INF else _NEG_INF if x == ZERO else NAN


@device
def log2(x: f32) -> f32:
    """log2(x)."""
    if not (x > ZERO and x < INF):
        return _log_ends(x)
    e, f = _log_exponent(x), _log_fraction(x)
    u = _log1p_high(f)
    v = _log1p_low(f, u)
    high = mul(u, LOG2E)
    low = fma(u, LOG2E, neg(high))  # exact
    low = fma(v, LOG2E, fma(u, _LOG2E_LOW, low))
    total = add(e, high)
    return add(total, add(sub(high, sub(total, e)), low))


@device
def log(x: f32) -> f32:
    """ln(x)."""
    if not (x > ZERO and x < INF):
        return _log_ends(x)
    e, f = _log_exponent(x), _log_fraction(x)
    u = _log1p_high(f)
    v = _log1p_low(f, u)
    big = mul(e, _LN2_HIGH)  # exact
    total = add(big, u)
    low = add(fma(e, _LN2_LOW, sub(u, sub(total, big))), v)
    return add(total, low)


@device
def tanh(x: f32) -> f32:
    """tanh(x)."""
    a = fabs(x)
    if a < _TANH_CUT:
        v = mul(a, a)
        q = fma(_TANH[7], v, _TANH[6])
        q = fma(q, v, _TANH[5])
        q = fma(q, v, _TANH[4])
        q = fma(q, v, _TANH[3])
        q = fma(q, v, _TANH[2])
        q = fma(q, v, _TANH[1])
        q = fma(q, v, _TANH[0])
        r = fma(mul(a, v), q, a)
    else:
        r = sub(ONE, div(TWO, add(exp(add(a, a)), ONE)))
    return libdevice.int_as_float(libdevice.float_as_int(r) | (libdevice.float_as_int(x) & np.int32(-2147483648)))
