"""The arithmetic contract in NumPy: every rounding of every kernel of this project, by name.

This module is the whole contract for its readers. It gathers rounded operations and sums (``contract_numbers``), conversions
(``contract_types``) and elementary functions (``contract_math``), and adds the softmax that rescales by powers of two (C12), the joining
of states (C13) and the probe of C1. ``CONTRACT.md`` beside this file is the text; ``kernels_cu/contract.cuh`` has the same names on the
device.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from pyref.contract_math import LN2, LOG2E, exp, exp2, exp2_poly, hex_f32, log, log2, round_even, tanh
from pyref.contract_numbers import (
    F32,
    add,
    as_f32,
    chain,
    div,
    fma,
    fma_exact,
    mul,
    quiet,
    running_max,
    sqrt,
    sub,
    tree_sum,
)
from pyref.contract_types import NAN_BITS, STORAGE, canonical_nan, dequantize, from_f32, quantize, to_f32

__all__ = [
    "F32", "LN2", "LOG2E", "NAN_BITS", "STORAGE", "State", "add", "as_f32", "canonical_nan", "ceil", "ceil_max",
    "chain", "dequantize", "div", "exp", "exp2", "exp2_poly", "fma", "fma_exact", "from_f32", "hex_f32", "join",
    "log", "log2", "logits2", "lse", "mul", "pow2_weight", "probe", "quantize", "quiet", "round_even", "running_max",
    "scale2", "sqrt", "sub", "tanh", "to_f32", "tree_sum", "weights_p",
]  # fmt: skip

#: (m, l, a) of C13: m[...] and l[...] of one shape, a[..., d].
State = tuple[F32, F32, F32]

_ZERO: Final = np.float32(0)
_ONE: Final = np.float32(1)


# --- C12: weights relative to an integral maximum ---


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


# --- C13: states ---


def join(state: State, following: State) -> State:
    """One step of C13's walk: the state so far, then the next tile's or span's. Shapes: m[...], l[...], a[..., d]."""
    (m, l, a), (m_u, l_u, a_u) = state, following  # noqa: E741
    top = running_max(m, m_u)
    w, w_u = np.asarray(pow2_weight(sub(m, top))), np.asarray(pow2_weight(sub(m_u, top)))
    return top, fma(l_u, w_u, mul(l, w)), fma(a_u, w_u[..., None], mul(a, w[..., None]))


def lse(m: ArrayLike, l: ArrayLike) -> F32:  # noqa: E741
    """Natural log-sum-exp of a state: RN(RN(m + log2 l) * ln 2) (C13)."""
    return mul(add(m, log2(l)), LN2)


# --- C1: the probe ---


def _many(value: float) -> F32:
    """33 elements, so that NumPy's vector code and its remainder loop are both tried."""
    return np.full(33, value, np.float32)


_NOT_NEAREST: Final = "binary32 is not rounded to nearest even"
_PROBES: Final = (
    # what a wrong result means, what to compute, the bits it must give
    ("binary32 subnormal results are flushed to zero", lambda: mul(_many(2.0**-126), np.float32(0.5)), 0x00400000),
    ("binary32 subnormal operands are flushed to zero", lambda: mul(_many(2.0**-149), np.float32(2.0**100)), 0x27000000),
    ("binary64 subnormals are flushed to zero", lambda: np.full(33, 2.0**-1074) * 2.0**1000, 0x3B50000000000000),
    ("a conversion to binary32 flushes subnormals to zero", lambda: np.full(33, 2.0**-149).astype(np.float32), 0x00000001),
    (_NOT_NEAREST, lambda: add(_many(1), hex_f32("0x1.8p-24")), 0x3F800001),
    (_NOT_NEAREST, lambda: add(_many(1), hex_f32("0x1.4p-25")), 0x3F800000),
    (_NOT_NEAREST, lambda: sub(_many(-1), hex_f32("0x1.8p-24")), 0xBF800001),
    (_NOT_NEAREST, lambda: sub(_many(-1), hex_f32("0x1.4p-25")), 0xBF800000),
    (_NOT_NEAREST, lambda: add(_many(1), hex_f32("0x1p-24")), 0x3F800000),
    (_NOT_NEAREST, lambda: add(_many(float.fromhex("0x1.000002p+0")), hex_f32("0x1p-24")), 0x3F800002),
    ("binary64 is not rounded to nearest even", lambda: np.full(33, 1.0) + float.fromhex("0x1.8p-53"), 0x3FF0000000000001),
    ("fma is rounded twice", lambda: fma(_many(1 - 2.0**-23), hex_f32("0x1.000002p-1"), np.float32(2**23 + 1)), 0x4B000001),
)


def probe() -> None:
    """Checks that this process computes as C1 to C3 ask; some libraries set flush-to-zero for the whole process.

    Raises RuntimeError naming what is wrong and the bits got.
    """
    for meaning, compute, expected in _PROBES:
        with quiet():
            result = np.asarray(compute())
        bits = result.view(np.uint64 if result.dtype == np.float64 else np.uint32)
        wrong = bits[bits != expected]
        if wrong.size:
            raise RuntimeError(f"C1: {meaning} in this process: got bits {int(wrong[0]):#x}, expected {expected:#x}")
