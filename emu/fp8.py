"""fp8 e4m3fn and e5m2 for numba ports (C9, C11): device functions on their bits (uint8), the same steps as kernels_cu/dtypes.cuh."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda import libdevice

from emu.contract import FROM_F32, TO_F32, div, f32, mul
from emu.simt import device
from pyref import contract
from pyref.cache_types import FP8

_UP120, _UP112 = f32(2.0**120), f32(2.0**112)
_E4M3_NAN, _E5M2_INF = np.int32(0x7FFFFFFF), np.int32(0x7F800000)
_all8 = np.arange(256, dtype=np.uint8)
_E4M3, _E5M2 = (list(contract.to_f32(_all8.view(contract.STORAGE[name]))) for name in ("e4m3", "e5m2"))
_pack, _unpack = struct.Struct("<f").pack, struct.Struct("<I").unpack


def _narrow(least_normal: int, fraction: int, most: int) -> Callable[[Any], np.uint8]:
    """The simulator's faster equal: nearest even, saturating at the pattern ``most``, NaN 0x7F."""
    bias = 128 - least_normal
    results = [np.uint8(i) for i in range(256)]

    def narrow(x: Any) -> np.uint8:
        (bits,) = _unpack(_pack(x))
        size = bits & 0x7FFFFFFF
        if size > 0x7F800000:
            return results[0x7F]
        below = least_normal - (size >> 23)
        shift = 23 - fraction
        if below > 0:
            shift += min(below, 2 + fraction)
            size = (size & 0x7FFFFF) | 0x800000
        rounded = (size + (1 << (shift - 1)) - 1 + (size >> shift & 1)) >> shift
        if below <= 0:
            rounded -= (127 - bias) << fraction
        return results[min(rounded, most) | bits >> 31 << 7]

    return narrow


@device(sim=_E4M3.__getitem__)
def e4m3_to_f32(x: np.uint8) -> f32:
    """The value of an e4m3fn, exact (C11)."""
    magnitude = np.int32(x) & np.int32(0x7F)
    if magnitude == 0x7F:
        return libdevice.int_as_float(_E4M3_NAN)
    wide = libdevice.float_as_int(mul(libdevice.int_as_float(np.int32(magnitude << np.int32(20))), _UP120))  # exact, subnormals included
    return libdevice.int_as_float(np.int32(wide | ((np.int32(x) & np.int32(0x80)) << np.int32(24))))


@device(sim=_E5M2.__getitem__)
def e5m2_to_f32(x: np.uint8) -> f32:
    """The value of an e5m2, exact (C11)."""
    magnitude = np.int32(x) & np.int32(0x7F)
    wide = np.int32(magnitude << np.int32(21))
    exact = libdevice.float_as_int(mul(libdevice.int_as_float(wide), _UP112))  # subnormals included
    wide = np.int32(wide | _E5M2_INF) if magnitude >= 0x7C else exact  # infinity or NaN
    return libdevice.int_as_float(np.int32(wide | ((np.int32(x) & np.int32(0x80)) << np.int32(24))))


@device(sim=_narrow(121, 3, 0x7E))
def f32_to_e4m3(x: f32) -> np.uint8:
    """x rounded to e4m3fn, nearest even, saturating, as bits; NaN is 0x7F (C9, C11)."""
    bits = libdevice.float_as_int(x)
    size = bits & np.int32(0x7FFFFFFF)
    if size > 0x7F800000:
        return np.uint8(0x7F)
    below = np.int32(121) - (size >> np.int32(23))
    shift = np.int32(20)
    if below > 0:
        size = np.int32((size & np.int32(0x7FFFFF)) | np.int32(0x800000))
        shift = np.int32(shift + min(below, np.int32(5)))
    rounded = (size + (np.int32(1) << (shift - np.int32(1))) - np.int32(1) + ((size >> shift) & np.int32(1))) >> shift
    if below <= 0:
        rounded -= np.int32(120 << 3)
    return np.uint8(min(rounded, np.int32(0x7E)) | ((bits >> np.int32(24)) & np.int32(0x80)))


@device(sim=_narrow(113, 2, 0x7B))
def f32_to_e5m2(x: f32) -> np.uint8:
    """x rounded to e5m2, nearest even, saturating, as bits; NaN is 0x7F (C9, C11)."""
    bits = libdevice.float_as_int(x)
    size = bits & np.int32(0x7FFFFFFF)
    if size > 0x7F800000:
        return np.uint8(0x7F)
    below = np.int32(113) - (size >> np.int32(23))
    shift = np.int32(21)
    if below > 0:
        size = np.int32((size & np.int32(0x7FFFFF)) | np.int32(0x800000))
        shift = np.int32(shift + min(below, np.int32(4)))
    rounded = (size + (np.int32(1) << (shift - np.int32(1))) - np.int32(1) + ((size >> shift) & np.int32(1))) >> shift
    if below <= 0:
        rounded -= np.int32(112 << 2)
    return np.uint8(min(rounded, np.int32(0x7B)) | ((bits >> np.int32(24)) & np.int32(0x80)))


TO = {**TO_F32, "e4m3": e4m3_to_f32, "e5m2": e5m2_to_f32}
FROM = {**FROM_F32, "e4m3": f32_to_e4m3, "e5m2": f32_to_e5m2}
"""Device functions by dtype name: storage (f32, uint16, uint8) to value and back."""


def quantizer(rows: str, cache: str) -> Any:
    """The device function stored(x, scale): what a cache of one dtype stores of an element of another (C11), or every bit of it."""
    if rows == cache:

        @device
        def stored(x, scale):  # noqa: ANN001, ANN202
            return x

        return stored
    to_f32, from_f32 = TO[rows], FROM[cache]

    @device
    def quantized(x, scale):  # noqa: ANN001, ANN202
        return from_f32(div(to_f32(x), scale))

    return quantized


def dequantizer(cache: str, values: str) -> Any:
    """The device function loaded(x, scale): exact up, one multiplication by the scale, rounded to the dtype ``values`` (C11)."""
    to_f32, from_f32 = TO[cache], FROM[values]

    @device
    def loaded(x, scale):  # noqa: ANN001, ANN202
        return from_f32(mul(to_f32(x), scale))

    return loaded


def reader(cache: str) -> Any:
    """The device function value_of(x, scale): the value of an element of a cache in binary32: exact, or of fp8 dequantised (C11)."""
    to_f32 = TO[cache]
    if cache in FP8:

        @device
        def dequantized(x, scale):  # noqa: ANN001, ANN202
            return mul(to_f32(x), scale)

        return dequantized

    @device
    def exact(x, scale):  # noqa: ANN001, ANN202
        return to_f32(x)

    return exact
