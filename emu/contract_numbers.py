"""Rounded operations, bits and 16-bit storage for numba ports (C1-C3, C5, C9, C11). Import these names from `emu.contract`.

No bare float operator stands here: numba cannot switch contraction off (C2). Unary minus and abs are bit operations. A literal would be a
float64, so constants are np.float32 and np.int32.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numba.cuda import libdevice

from emu.simt import arith, device

f32 = np.float32
ZERO, HALF, ONE, TWO = f32(0), f32(0.5), f32(1), f32(2)
INF, NAN = f32(np.inf), np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()]
_UP112 = f32(2.0**112)


# --- C1, C2, C3, C5: one rounding each ---


@device(sim=arith.fma32)
def fma(a: f32, b: f32, c: f32) -> f32:
    """RN(a * b + c), one rounding (C3)."""
    return libdevice.fmaf_rn(a, b, c)


@device(sim=arith.mul32)
def mul(a: f32, b: f32) -> f32:
    """RN(a * b)."""
    return libdevice.fmul_rn(a, b)


@device(sim=arith.add32)
def add(a: f32, b: f32) -> f32:
    """RN(a + b)."""
    return libdevice.fadd_rn(a, b)


@device(sim=arith.sub32)
def sub(a: f32, b: f32) -> f32:
    """RN(a - b)."""
    return libdevice.fsub_rn(a, b)


@device(sim=arith.div32)
def div(a: f32, b: f32) -> f32:
    """RN(a / b) (C5)."""
    return libdevice.fdiv_rn(a, b)


@device(sim=arith.sqrt32)
def sqrt(a: f32) -> f32:
    """RN(sqrt(a)) (C5)."""
    return libdevice.fsqrt_rn(a)


# --- bits ---


@device(sim=lambda x: -x)
def neg(x: f32) -> f32:
    """x with its sign changed."""
    return libdevice.int_as_float(libdevice.float_as_int(x) ^ np.int32(-2147483648))


@device(sim=abs)
def fabs(x: f32) -> f32:
    """x without its sign."""
    return libdevice.int_as_float(libdevice.float_as_int(x) & np.int32(0x7FFFFFFF))


# --- C9, C11: what enters and leaves ---


@device
def canonical_nan(x: f32) -> f32:
    """x, every NaN as 0x7FFFFFFF (C9)."""
    return x if x == x else NAN


_all16 = np.arange(1 << 16, dtype=np.uint16)
with np.errstate(invalid="ignore"):
    _F16 = list(_all16.view(np.float16).astype(np.float32))
_BF16 = list((_all16.astype(np.uint32) << np.uint32(16)).view(np.float32))
_pack, _unpack = struct.Struct("<f").pack, struct.Struct("<I").unpack


def _bf16_bits(x: Any) -> np.uint16:
    if x != x:
        return np.uint16(0x7FFF)
    (bits,) = _unpack(_pack(x))
    return np.uint16(bits + 0x7FFF + (bits >> 16 & 1) >> 16)


def _f16_bits(x: Any) -> np.uint16:
    return np.float16(x).view(np.uint16) if x == x else np.uint16(0x7FFF)


@device(sim=_F16.__getitem__)
def f16_to_f32(h: np.uint16) -> f32:
    """The value of a binary16, exact (C11)."""
    bits = np.int32(h)
    magnitude = bits & np.int32(0x7FFF)
    sign = (bits & np.int32(0x8000)) << np.int32(16)
    wide = np.int32(magnitude << np.int32(13))
    if magnitude >= 0x7C00:
        wide = np.int32(wide | np.int32(0x7F800000))
    else:
        wide = libdevice.float_as_int(mul(libdevice.int_as_float(wide), _UP112))  # exact, subnormals included
    return libdevice.int_as_float(np.int32(wide | sign))


@device(sim=_BF16.__getitem__)
def bf16_to_f32(h: np.uint16) -> f32:
    """The value of a bfloat16, exact (C11)."""
    return libdevice.int_as_float(np.int32(np.int32(h) << np.int32(16)))


@device(sim=_f16_bits)
def f32_to_f16(x: f32) -> np.uint16:
    """x rounded to binary16, nearest even, as bits; NaN is 0x7FFF (C9, C11)."""
    bits = libdevice.float_as_int(x)
    magnitude = bits & np.int32(0x7FFFFFFF)
    sign = (bits >> np.int32(16)) & np.int32(0x8000)
    if magnitude > 0x7F800000:
        return np.uint16(0x7FFF)
    if magnitude >= 0x47800000:  # 65536
        r = np.int32(0x7C00)
    elif magnitude >= 0x38800000:  # 2^-14
        r = np.int32((magnitude + np.int32(0xFFF) + ((magnitude >> np.int32(13)) & np.int32(1))) >> np.int32(13)) - np.int32(112 << 10)
    else:  # the unit in the last place of 1/2 is the least binary16
        r = libdevice.float_as_int(add(fabs(x), HALF)) - np.int32(0x3F000000)
    return np.uint16(r | sign)


@device(sim=_bf16_bits)
def f32_to_bf16(x: f32) -> np.uint16:
    """x rounded to bfloat16, nearest even, as bits; NaN is 0x7FFF (C9, C11)."""
    bits = libdevice.float_as_int(x)
    if (bits & np.int32(0x7FFFFFFF)) > 0x7F800000:
        return np.uint16(0x7FFF)
    return np.uint16(((bits + np.int32(0x7FFF) + ((bits >> np.int32(16)) & np.int32(1))) >> np.int32(16)) & np.int32(0xFFFF))


@device(sim=lambda x: x)
def same(x: f32) -> f32:
    """f32 storage as it is."""
    return x


TO_F32 = {"f32": same, "f16": f16_to_f32, "bf16": bf16_to_f32}
FROM_F32 = {"f32": canonical_nan, "f16": f32_to_f16, "bf16": f32_to_bf16}
"""Device functions by dtype name, for a port's factory to pick from: storage (f32, uint16) to value and back."""
