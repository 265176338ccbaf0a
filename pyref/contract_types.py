"""What enters and leaves a kernel: NaN patterns (C9) and conversions between binary32 and f16, bf16, fp8 e4m3fn and e5m2 (C11).

Import these names from ``pyref.contract``.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyref.contract_numbers import F32, as_f32, div, mul, quiet

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


def canonical_nan(x: ArrayLike) -> F32:
    """x with every NaN as 0x7FFFFFFF (C9)."""
    x = as_f32(x)
    return np.where(np.isnan(x), np.uint32(NAN_BITS["f32"]).view(np.float32), x)[()]


def _name_of(dtype: np.dtype) -> str:
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
    name = _name_of(x.dtype)
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
    # normal results drop 23 - fraction bits; below the least normal number the shift grows, and from 25 on nothing is left
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
