"""numba.cuda.libdevice in the simulator: numba's module has the names without bodies. Unknown ones raise when they are called.

Rounded operations (`_rn`) are exact in the sense of IEEE 754, as on the GPU. Elementary functions (expf, sinf ...) are NumPy's,
whose last bits differ from the GPU's: the project's own kernels call none of them (C4).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from emu.simt import arith, intrinsics
from emu.simt.arith import f32, f64, to32
from emu.simt.functions import saturated

i32, i64 = np.int32, np.int64
_pack_f, _pack_i = struct.Struct("<f").pack, struct.Struct("<i").pack
_unpack_i = struct.Struct("<i").unpack


def float_as_int(x: Any) -> np.int32:
    """The bits of a binary32 as an int32."""
    return (x if type(x) is f32 else f32(x)).view(i32)


def int_as_float(x: Any) -> np.float32:
    """The binary32 with these 32 bits."""
    if type(x) is not i32:
        x = np.array(int(x) & 0xFFFFFFFF, np.uint32)[()]
    return x.view(f32)


def double_as_longlong(x: Any) -> np.int64:
    """The bits of a binary64 as an int64."""
    return f64(x).view(i64)


def longlong_as_double(x: Any) -> np.float64:
    """The binary64 with these 64 bits."""
    return np.array(int(x) & (2**64 - 1), np.uint64).view(f64)[()]


def _to_int(rounding: Callable[[float], Any], bits: int, signed: bool) -> Callable[[Any], Any]:
    """float to integer as cvt does it."""
    convert, kind = saturated(rounding, bits, signed), np.dtype(f"{'i' if signed else 'u'}{bits // 8}").type
    return lambda x: kind(convert(x))


def _unary32(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: f32(f(*map(f32, a)))


def _unary64(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: f64(f(*map(f64, a)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fmaf_rn": arith.fma32,
    "fmaf": arith.fma32,
    "fadd_rn": arith.add32,
    "fsub_rn": arith.sub32,
    "fmul_rn": arith.mul32,
    "fdiv_rn": arith.div32,
    "fsqrt_rn": arith.sqrt32,
    "frcp_rn": lambda x: f32(1.0) / to32(x),
    "fma_rn": arith.fma64,
    "fma": arith.fma64,
    "dadd_rn": lambda a, b: f64(a) + f64(b),
    "dmul_rn": lambda a, b: f64(a) * f64(b),
    "ddiv_rn": lambda a, b: f64(a) / f64(b),
    "dsqrt_rn": lambda a: np.sqrt(f64(a)),
    "drcp_rn": lambda a: f64(1.0) / f64(a),
    "float_as_int": float_as_int,
    "int_as_float": int_as_float,
    "double_as_longlong": double_as_longlong,
    "longlong_as_double": longlong_as_double,
    "double2float_rn": f32,
    "int2float_rn": f32,
    "uint2float_rn": f32,
    "ll2float_rn": f32,
    "ull2float_rn": f32,
    "int2double_rn": f64,
    "uint2double_rn": f64,
    "half2float": lambda bits: np.uint16(int(bits) & 0xFFFF).view(np.float16).astype(f32),
    "float2half_rn": lambda x: np.float16(to32(x)).view(np.int16),
    "popc": intrinsics.popc,
    "popcll": intrinsics.popc,
    "clz": lambda x: 32 - (int(x) & 0xFFFFFFFF).bit_length(),
    "clzll": lambda x: 64 - (int(x) & (2**64 - 1)).bit_length(),
    "ffs": lambda x: intrinsics.ffs(i32(x)),
    "ffsll": lambda x: intrinsics.ffs(i64(x)),
    "brev": lambda x: intrinsics.brev(i32(x)),
    "brevll": lambda x: intrinsics.brev(i64(x)),
    "mulhi": lambda a, b: i32(int(a) * int(b) >> 32),
    "umulhi": lambda a, b: np.uint32(int(a) * int(b) >> 32),
    "mul64hi": lambda a, b: i64(int(a) * int(b) >> 64),
    "umul64hi": lambda a, b: np.uint64(int(a) * int(b) >> 64),
    "saturatef": lambda x: f32(0) if not x > 0 else f32(min(f32(1), f32(x))),
    "rsqrtf": _unary32(lambda x: 1 / np.sqrt(f64(x))),
    "rsqrt": _unary64(lambda x: 1 / np.sqrt(x)),
    "signbitf": lambda x: int(np.signbit(x)),
    "signbitd": lambda x: int(np.signbit(x)),
    "isnanf": lambda x: int(np.isnan(x)),
    "isnand": lambda x: int(np.isnan(x)),
    "isinff": lambda x: int(np.isinf(x)),
    "isinfd": lambda x: int(np.isinf(x)),
    "finitef": lambda x: int(np.isfinite(x)),
    "isfinited": lambda x: int(np.isfinite(x)),
    "abs": lambda x: i32(abs(int(x)) if int(x) > -(2**31) else int(x)),
    "llabs": lambda x: i64(abs(int(x)) if int(x) > -(2**63) else int(x)),
    "max": max,
    "min": min,
    "umax": max,
    "umin": min,
    "sad": lambda x, y, z: i32(abs(int(x) - int(y)) + int(z)),
    "usad": lambda x, y, z: np.uint32(abs(int(x) - int(y)) + int(z)),
    "sincos": lambda x: (np.sin(f64(x)), np.cos(f64(x))),
    "sincosf": lambda x: (np.sin(f32(x)), np.cos(f32(x))),
    "frexp": lambda x: np.frexp(f64(x)),
    "frexpf": lambda x: np.frexp(f32(x)),
    "modf": lambda x: np.modf(f64(x)),
    "modff": lambda x: np.modf(f32(x)),
}
for _name, _f in (
    ("fmax", np.fmax), ("fmin", np.fmin), ("fabs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rint", np.rint),
    ("nearbyint", np.rint), ("sqrt", np.sqrt), ("copysign", np.copysign), ("nextafter", np.nextafter), ("fmod", np.fmod), ("exp", np.exp),
    ("exp2", np.exp2), ("expm1", np.expm1), ("log", np.log), ("log2", np.log2), ("log10", np.log10), ("log1p", np.log1p), ("sin", np.sin),
    ("cos", np.cos), ("tan", np.tan), ("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan), ("atan2", np.arctan2),
    ("sinh", np.sinh), ("cosh", np.cosh), ("tanh", np.tanh), ("pow", np.power), ("hypot", np.hypot), ("cbrt", np.cbrt),
    ("erf", np.vectorize(math.erf)), ("erfc", np.vectorize(math.erfc)), ("lgamma", np.vectorize(math.lgamma)),
):  # fmt: skip
    FUNCTIONS.setdefault(_name, _unary64(_f))
    FUNCTIONS.setdefault(_name + "f", _unary32(_f))
for _suffix, _round in (("rn", round), ("rd", math.floor), ("ru", math.ceil), ("rz", math.trunc)):
    for _kind, _bits, _signed in (("int", 32, True), ("uint", 32, False), ("ll", 64, True), ("ull", 64, False)):
        for _from in ("float", "double"):
            FUNCTIONS[f"{_from}2{_kind}_{_suffix}"] = _to_int(_round, _bits, _signed)


def unknown(name: str) -> Callable[..., Any]:
    """Stands for a libdevice function that the simulator does not model."""

    def raises(*args: Any) -> Any:
        raise NotImplementedError(f"libdevice.{name} is not modelled by the simulator")

    raises.__name__ = name
    return raises
