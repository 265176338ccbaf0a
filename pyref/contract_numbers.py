"""Rounded operations, sums and conversions of the contract (C1-C3, C5-C9, C11), on NumPy arrays.

Everything here takes and gives binary32 arrays (or scalars) that broadcast, unless said otherwise. Results are new arrays. A NaN inside may carry
any payload; it becomes the one pattern of C9 where ``from_f32`` or ``canonical_nan`` lets it out. NumPy's warnings about overflow, division by 0 and
invalid operands are silenced here and nowhere else: infinities and NaN are results like any other.

Import these names from ``pyref.contract``.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]

STORAGE: Final[dict[str, np.dtype]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
"""NumPy's storage of each float type of the project. ml_dtypes lends the types alone: its casts are not used."""

NAN_BITS: Final[dict[str, int]] = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}  # C9
_NAMES: Final[dict[np.dtype, str]] = {dtype: name for name, dtype in STORAGE.items()}
_FORMATS: Final[dict[str, tuple[int, int, int]]] = {  # exponent bias, bits of fraction, the pattern that overflow gives (C11)
    "f16": (15, 10, 0x7C00),
    "bf16": (127, 7, 0x7F80),
    "e4m3": (7, 3, 0x7E),
    "e5m2": (15, 2, 0x7B),
}
_INF: Final = np.float32(np.inf)


def quiet() -> np.errstate:
    """A fresh NumPy error state that lets infinities and NaN pass; as a decorator or in a ``with``."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")


def as_f32(x: ArrayLike) -> F32:
    """``x`` as it is if it is binary32, an error otherwise: a silent float64 or float16 operand would round at other places (C1)."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        raise TypeError(f"the contract computes in float32; got {array.dtype} of shape {array.shape}")
    return array


# --- C1, C2, C5: one rounding each -----------------------------------------------------------------------------------------------------


@quiet()
def mul(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a * b)."""
    return np.multiply(as_f32(a), as_f32(b))


@quiet()
def add(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a + b)."""
    return np.add(as_f32(a), as_f32(b))


@quiet()
def sub(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a - b)."""
    return np.subtract(as_f32(a), as_f32(b))


@quiet()
def div(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a / b), C5."""
    return np.divide(as_f32(a), as_f32(b))


@quiet()
def sqrt(x: ArrayLike) -> F32:
    """RN(sqrt(x)), C5; NaN below -0."""
    return np.sqrt(as_f32(x))


# --- C3: fma ---------------------------------------------------------------------------------------------------------------------------

_MIDPOINT_MASK: Final = np.uint64(0x1FFFFFFF)  # the 29 bits of a binary64 fraction that a normal binary32 does not have
_MIDPOINT: Final = np.uint64(0x10000000)
_LEAST_NORMAL: Final = 2.0**-126


def _round_to_odd_sum(product: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """product + c in binary64, rounded to odd: an inexact sum never looks like a midpoint of binary32."""
    total = np.add(product, c)
    # TwoSum: total + error == product + c exactly, wherever total is finite
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    move = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)  # an inexact sum is never 0
    step = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))  # away from 0 or towards it
    return np.where(move, bits + step, bits).view(np.float64)


@quiet()
def fma_exact(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """RN(a * b + c) with one rounding, C3 as it is written; the plain twin of ``fma``."""
    a, b, c = np.broadcast_arrays(as_f32(a), as_f32(b), as_f32(c))
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 48 bits, exponents within binary64
    return _round_to_odd_sum(product, c.astype(np.float64)).astype(np.float32)[()]


@quiet()
def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """RN(a * b + c) with one rounding (C3), byte for byte ``fma_exact`` except for NaN payloads.

    A binary64 sum rounded again to binary32 differs from one rounding only where it sits on a midpoint of binary32; below 2^-126 midpoints lie
    elsewhere. Those elements alone are computed again.
    """
    a, b, c = as_f32(a), as_f32(b), as_f32(c)
    total = np.add(np.multiply(a, b, dtype=np.float64), c, dtype=np.float64)
    result = np.asarray(total).astype(np.float32)
    doubtful = (np.asarray(total).view(np.uint64) & _MIDPOINT_MASK) == _MIDPOINT
    doubtful |= np.abs(total) < _LEAST_NORMAL
    if doubtful.any():
        doubtful &= total != 0  # a zero sum of binary64 is exact
        where = np.nonzero(doubtful)
        a, b, c = (np.broadcast_to(x, result.shape)[where] for x in (a, b, c))
        result[where] = fma_exact(a, b, c)
    return result[()]


# --- C6, C7, C8: maxima and sums -------------------------------------------------------------------------------------------------------


def running_max(m: ArrayLike, x: ArrayLike) -> F32:
    """x if x > m compares true, else m (C6): a NaN in x never wins. Start from -inf, so that m is never NaN."""
    m, x = as_f32(m), as_f32(x)
    with quiet():
        return np.where(x > m, x, m)[()]


@quiet()
def tree_sum(x: ArrayLike, axis: int = -1) -> F32:
    """Sum of up to 128 values along ``axis``, missing ones +0, by the tree of C7."""
    values = np.moveaxis(as_f32(x), axis, -1)
    count = values.shape[-1]
    if count > 128:
        raise ValueError(f"tree_sum: axis {axis} has {count} values, C7 adds at most 128")
    rows = np.zeros((*values.shape[:-1], 128), np.float32)
    rows[..., :count] = values
    rows = rows.reshape(*values.shape[:-1], 4, 32)  # [..., row, lane]
    for width in (16, 8, 4, 2, 1):
        rows = rows[..., :width] + rows[..., width : 2 * width]
    rows = rows[..., 0]
    return ((rows[..., 0] + rows[..., 2]) + (rows[..., 1] + rows[..., 3]))[()]


def chain(a: ArrayLike, b: ArrayLike, axis: int = -1) -> F32:
    """``acc = +0``, then ``acc = fma(a_i, b_i, acc)`` in ascending i along ``axis`` (C8); a and b broadcast.

    Every element of the axis takes part: leave out those that do not, zeros are not the same. An axis of length 0 gives +0.
    """
    a, b = as_f32(a), as_f32(b)
    rank = max(a.ndim, b.ndim)
    a = a.reshape((1,) * (rank - a.ndim) + a.shape)
    b = b.reshape((1,) * (rank - b.ndim) + b.shape)
    count = np.broadcast_shapes((a.shape[axis],), (b.shape[axis],))[0]
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    acc = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), np.float32)
    for i in range(count):
        acc = fma(a[i if a.shape[0] > 1 else 0], b[i if b.shape[0] > 1 else 0], acc)
    return acc[()]


# --- C9, C11: what enters and leaves ---------------------------------------------------------------------------------------------------


def canonical_nan(x: ArrayLike) -> F32:
    """x with every NaN as 0x7FFFFFFF (C9)."""
    x = as_f32(x)
    return np.where(np.isnan(x), np.uint32(NAN_BITS["f32"]).view(np.float32), x)[()]


def dtype_name(dtype: np.dtype) -> str:
    """The project's name of a NumPy float type."""
    name = _NAMES.get(np.dtype(dtype))
    if name is None:
        raise TypeError(f"no float type of the project: {dtype}; known are {', '.join(STORAGE)}")
    return name


def _widen(bits: NDArray, bias: int, fraction: int) -> F32:
    """Value of sign, exponent and fraction bits with all exponents finite, as binary32: exact (C11)."""
    exponent_bits = 8 * bits.dtype.itemsize - 1 - fraction
    wide = bits.astype(np.uint32)
    magnitude = wide & np.uint32((1 << (exponent_bits + fraction)) - 1)
    # the same bits under binary32's bias are too small by 2^(127 - bias); the product is exact, subnormals included
    value = (magnitude << np.uint32(23 - fraction)).view(np.float32) * np.float32(2.0 ** (127 - bias))
    sign = (wide >> np.uint32(exponent_bits + fraction)) << np.uint32(31)
    return (value.view(np.uint32) | sign).view(np.float32)


def _fp8_table(name: str) -> F32:
    """All 256 values of an fp8 type."""
    bias, fraction, _ = _FORMATS[name]
    bits = np.arange(256, dtype=np.uint8)
    table = _widen(bits, bias, fraction)
    magnitude = bits & 0x7F
    if name == "e5m2":
        table[magnitude == 0x7C] = np.where(bits[magnitude == 0x7C] == 0x7C, _INF, -_INF)
    table[magnitude > (0x7E if name == "e4m3" else 0x7C)] = np.uint32(NAN_BITS["f32"]).view(np.float32)
    return table


_FP8: Final[dict[str, F32]] = {name: _fp8_table(name) for name in ("e4m3", "e5m2")}


def to_f32(x: NDArray) -> F32:
    """Exact value of a float array as binary32 (C11). The payload of a NaN is not promised."""
    x = np.asarray(x)
    name = dtype_name(x.dtype)
    if name == "f32":
        return x
    if name == "f16":
        with quiet():
            return x.astype(np.float32)  # NumPy's cast: equal to integer work over all 2^16 patterns (test_conversions)
    if name == "bf16":
        return (x.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _FP8[name][x.view(np.uint8)]


def from_f32(x: ArrayLike, dtype_name: str) -> NDArray:
    """x rounded to nearest even in the named type (C11), NaN by C9. fp8 saturates, infinities too; f16 and bf16 overflow to infinity."""
    x = as_f32(x)
    if dtype_name == "f32":
        return canonical_nan(x)
    if dtype_name not in _FORMATS:
        raise ValueError(f"from_f32: no float type named {dtype_name!r}; known are {', '.join(STORAGE)}")
    bias, fraction, overflow = _FORMATS[dtype_name]
    storage = STORAGE[dtype_name]
    bits = np.asarray(x).view(np.uint32).astype(np.int64)
    magnitude = bits & 0x7FFFFFFF
    exponent = magnitude >> 23
    least_normal = 128 - bias  # binary32's exponent field of the type's least normal number
    # normal results drop 23 - fraction bits; below, the shift grows with the distance from the least normal number; from 25 on nothing is left
    normal = exponent >= least_normal
    significand = np.where(normal, magnitude, (magnitude & 0x7FFFFF) | 0x800000)
    shift = 23 - fraction + np.where(normal, 0, np.minimum(least_normal - exponent, 2 + fraction))
    if least_normal == 1:  # bf16 shares the exponents of binary32, its subnormals too
        significand, shift = magnitude, np.int64(23 - fraction)
    even = (significand >> shift) & 1
    rounded = (significand + (np.int64(1) << (shift - 1)) - 1 + even) >> shift
    rounded = np.where(normal, rounded - ((127 - bias) << fraction), rounded)
    rounded = np.minimum(rounded, overflow)
    rounded |= (bits >> 31) << (8 * storage.itemsize - 1)
    rounded = np.where(magnitude > 0x7F800000, NAN_BITS[dtype_name], rounded)
    return rounded.astype(f"u{storage.itemsize}").view(storage)


def quantize(x: ArrayLike, scale: ArrayLike, dtype_name: str) -> NDArray:
    """x / scale (one division), then ``from_f32`` (C11)."""
    return from_f32(div(x, scale), dtype_name)


def dequantize(x: NDArray, scale: ArrayLike) -> F32:
    """Exact value of x, then one multiplication by the scale, kept in binary32 (C11)."""
    return mul(to_f32(x), scale)
