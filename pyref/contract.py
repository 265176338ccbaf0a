"""The arithmetic contract in NumPy: every rounding of every kernel of this project, by name.

This module is the whole contract for its readers: rounded operations, sums and conversions (``contract_numbers``), elementary functions
(``contract_math``), and here the softmax that rescales by powers of two (C12), the joining of states (C13) and the probe of C1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from pyref.contract_math import LN2, LOG2E, exp, exp2, exp2_poly, hex_f32, log, log2, round_even, tanh
from pyref.contract_numbers import (
    F32,
    NAN_BITS,
    STORAGE,
    add,
    as_f32,
    canonical_nan,
    chain,
    dequantize,
    div,
    dtype_name,
    fma,
    fma_exact,
    from_f32,
    mul,
    quantize,
    quiet,
    running_max,
    sqrt,
    sub,
    to_f32,
    tree_sum,
)

__all__ = [
    "F32", "LN2", "LOG2E", "NAN_BITS", "STORAGE", "State", "add", "as_f32", "canonical_nan", "ceil", "ceil_max", "chain", "dequantize", "div",
    "dtype_name", "exp", "exp2", "exp2_poly", "fma", "fma_exact", "from_f32", "hex_f32", "join", "log", "log2", "logits2", "lse", "mul", "pow2_weight",
    "probe", "quantize", "round_even", "running_max", "scale2", "sqrt", "sub", "tanh", "to_f32", "tree_sum", "weights_p",
]  # fmt: skip

State = tuple[F32, F32, F32]
"""(m, l, a) of C13: m[...] and l[...] of one shape, a[..., d]."""

_ZERO: Final = np.float32(0)
_ONE: Final = np.float32(1)


# --- C12: weights relative to an integral maximum ---------------------------------------------------------------------------------------


def scale2(scale: float) -> np.float32:
    """RN(RN32(scale) * log2 e): the factor of the plain path, computed once on the host (C12)."""
    return np.float32(mul(np.float32(scale), LOG2E))


def logits2(s: ArrayLike) -> F32:
    """Natural logits to base 2: RN(s * log2 e) (C12, the path with a bias or a cap)."""
    return mul(s, LOG2E)


def ceil(x: ArrayLike) -> F32:
    """The least integral value that is not below x, never -0; NaN and infinities stay."""
    x = as_f32(x)
    j = round_even(x)
    with quiet():
        j = np.where(j < x, add(j, _ONE), j)
    return add(j, _ZERO)


def ceil_max(s2: ArrayLike, axis: int = -1) -> F32:
    """m = ceil(max s2) + 0 along ``axis`` (C12). A NaN never wins (C6); nothing but NaN, or an axis of length 0, gives -inf."""
    s2 = as_f32(s2)
    with quiet():
        return ceil(np.where(np.isnan(s2), -np.inf, s2).astype(np.float32).max(axis=axis, initial=np.float32(-np.inf)))


def weights_p(s2: ArrayLike, m: ArrayLike) -> F32:
    """p of C12 for base-2 logits s2 and the integral maximum m >= s2 of their own tile: NaN where s2 is NaN or +inf, else 2^(s2 - m) or +0.

    +0 stands where s2 = -inf, and where j - m < -125, j being s2 rounded to an integral value: p is never subnormal.
    """
    s2, m = np.broadcast_arrays(as_f32(s2), as_f32(m))
    finite = np.isfinite(s2)
    safe = np.where(finite, s2, _ZERO)
    j = round_even(safe)
    n = sub(j, m)
    with quiet():
        counts = finite & (n >= -125)
        p = mul(exp2_poly(sub(safe, j)), pow2_weight(np.where(counts, n, _ZERO)))  # exact product
        p = np.where(counts, p, _ZERO)
        return np.where(np.isnan(s2) | (s2 == np.inf), np.float32(np.nan), p)[()]


def pow2_weight(n: ArrayLike) -> F32:
    """w(n) = 2^n if n >= -126 compares true, else +0, also for NaN (C12). n is integral; from 128 on the weight is +inf."""
    n = np.asarray(as_f32(n))
    with quiet():
        inside = (n >= -126) & (n < 128)
        bits = (np.where(inside, n, _ZERO).astype(np.int32) + np.int32(127)) << np.int32(23)
        return np.where(inside, bits.view(np.float32), np.where(n >= 128, np.float32(np.inf), _ZERO))[()]


# --- C13: states ------------------------------------------------------------------------------------------------------------------------


def join(state: State, following: State) -> State:
    """One step of C13's walk: the state so far, then the next tile's or span's. Shapes: m[...], l[...], a[..., d]."""
    (m, l, a), (m_u, l_u, a_u) = state, following
    top = running_max(m, m_u)
    w, w_u = np.asarray(pow2_weight(sub(m, top))), np.asarray(pow2_weight(sub(m_u, top)))
    return top, fma(l_u, w_u, mul(l, w)), fma(a_u, w_u[..., None], mul(a, w[..., None]))


def lse(m: ArrayLike, l: ArrayLike) -> F32:
    """Natural log-sum-exp of a state: RN(RN(m + log2 l) * ln 2) (C13)."""
    return mul(add(m, log2(l)), LN2)


# --- C1: the probe ----------------------------------------------------------------------------------------------------------------------


_PROBES: Final = (
    # what a wrong result means, a function of no arguments, the bits it must give
    ("binary32 subnormal results are flushed to zero", lambda: mul(np.full(33, 2.0**-126, np.float32), np.float32(0.5)), 0x00400000),
    ("binary32 subnormal operands are taken as zero", lambda: mul(np.full(33, 2.0**-149, np.float32), np.float32(2.0**100)), 0x27000000),
    ("binary32 does not round up to nearest", lambda: add(np.full(33, 1.0, np.float32), hex_f32("0x1.8p-24")), 0x3F800001),
    ("binary32 does not round down to nearest", lambda: sub(np.full(33, -1.0, np.float32), hex_f32("0x1.4p-25")), 0xBF800000),
    ("binary32 does not round ties to even", lambda: add(np.full(33, hex_f32("0x1.000002p0"), np.float32), hex_f32("0x1p-24")), 0x3F800002),
    ("binary64 subnormals are flushed to zero", lambda: np.full(33, 2.0**-1074) * 2.0**1000, 0x3B50000000000000),
    ("binary64 does not round to nearest", lambda: np.full(33, 1.0) + float.fromhex("0x1.8p-53"), 0x3FF0000000000001),
    ("a product and a sum are fused", lambda: sub(mul(np.full(33, hex_f32("0x1.000002p0"), np.float32), hex_f32("0x1.fffffcp-1")), _ONE), 0x00000000),
    ("fma has two roundings", lambda: fma(np.full(33, hex_f32("0x1.fffffcp-1"), np.float32), hex_f32("0x1.000002p-1"), np.float32(2**23 + 1)), 0x4B000001),
    ("a conversion to binary32 flushes subnormals", lambda: np.full(33, 2.0**-149).astype(np.float32), 0x00000001),
)


def probe() -> None:
    """Checks that this process computes as C1 to C3 ask; some libraries set flush-to-zero for the whole process.

    Vectors of 33 elements, so that NumPy's vector code and its remainder loop are both tried. Raises RuntimeError naming what is wrong and the bits got.
    """
    for meaning, compute, expected in _PROBES:
        with quiet():
            result = np.asarray(compute())
        bits = result.view(np.uint64 if result.dtype == np.float64 else np.uint32)
        wrong = bits[bits != expected]
        if wrong.size:
            raise RuntimeError(f"C1: {meaning} in this process: got bits {int(wrong[0]):#x}, expected {expected:#x}")
