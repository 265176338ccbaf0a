"""What kernels call by Python's own names, as numba compiles it: casts, builtins and `math`. Nothing raises; results have numba's types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from emu.simt.operators import COMMON, OPERATORS, power

f32, f64 = np.float32, np.float64


def saturated(rounding: Callable[[float], Any], bits: int, signed: bool) -> Callable[[Any], int]:
    """float to integer as cvt does it: NaN gives 0 (the most negative number for 64 bits), out of range saturates."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    nan = 0 if bits == 32 else 1 << 63 if not signed else low

    def convert(x: Any) -> int:
        x = float(x)
        if x != x:
            return nan
        return min(max(rounding(x), low), high) if math.isfinite(x) else high if x > 0 else low

    return convert


_truncated, _rounded = saturated(math.trunc, 64, True), saturated(round, 64, True)


def integer(dtype: Any) -> Callable[[Any], Any]:
    """The cast to an integer type: integers wrap, floats saturate at 32 or 64 bits and then wrap."""
    dtype = np.dtype(dtype)
    kind, bits, signed = dtype.type, 8 * dtype.itemsize, dtype.kind == "i"
    narrow = saturated(math.trunc, max(bits, 32), signed)
    mask, high, span = (1 << bits) - 1, (1 << bits - signed) - 1, 1 << bits

    def cast(x: Any = 0) -> Any:
        if x.__class__ is kind:
            return x
        if isinstance(x, (float, np.floating)):
            n = narrow(x)
        elif isinstance(x, (int, np.integer, np.bool_)):
            n = int(x)
        else:
            return kind(x)
        n &= mask
        return kind(n - span if n > high else n)

    return cast


def _int(x: Any = 0, *base: Any) -> Any:
    if isinstance(x, (float, np.floating)):
        return _truncated(x)
    return x if x.__class__ is np.uint64 else int(x, *base)


def _float(x: Any = 0.0) -> Any:
    return x if isinstance(x, np.floating) else float(x)


def _round(x: Any, *digits: Any) -> Any:
    if not isinstance(x, (float, np.floating)):
        return round(x, *digits)
    if not digits:
        return _rounded(x)
    rounded = np.round(f64(x), *digits)  # as numba does: x * 10^n to an integer, and back
    return x.__class__(rounded) if rounded - rounded == 0 else x  # x * 10^n is too large: nothing to round


def _extreme(builtin: Callable[..., Any], below: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """min or max of numbers: a NaN loses, and the result has the type that the arguments have together."""

    def two(a: Any, b: Any) -> Any:
        kind = COMMON[a.__class__, b.__class__]
        if kind is not None and kind is not int and kind is not np.uint64:
            a, b = kind(a), kind(b)
        return b if below(a, b) or a != a else a

    return lambda *args: reduce(two, args) if len(args) > 1 else builtin(*args)


# --- math ---

# where NumPy has another name than `math`
_NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
          "atan2": "arctan2", "pow": "power"}  # fmt: skip


def _ends(name: str, exact: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `math` where that raises."""
    if name in ("gamma", "lgamma"):  # poles and overflow
        return lambda x: math.nan if name == "gamma" and x < 0 else math.inf
    return getattr(np, _NUMPY.get(name, name), exact)


def _mathematical(name: str) -> Callable[..., Any]:
    """A function of `math` in the type of its arguments, float64 for integers."""
    exact = getattr(math, name) if name != "ldexp" else lambda x, n: math.ldexp(x, int(n))
    ends = _ends(name, exact)

    def call(*args: Any) -> Any:
        try:
            r = exact(*args)
        except (ValueError, OverflowError, ZeroDivisionError):
            r = ends(*map(f64, args))
        first = args[0].__class__
        return f32(r) if COMMON[first, first if name == "ldexp" else args[-1].__class__] is f32 else f64(r)

    return call


def _parts(name: str) -> Callable[[Any], tuple[Any, Any]]:
    """math.frexp and math.modf."""

    def call(x: Any) -> tuple[Any, Any]:
        first, second = getattr(np, name)(x if isinstance(x, np.floating) else f64(x))
        return (first, int(second)) if name == "frexp" else (first, second)

    return call


def _integral(name: str) -> Callable[[Any], Any]:
    """math.floor, ceil and trunc: on a GPU numba leaves them floating."""
    return lambda x: getattr(np, name)(x if isinstance(x, np.floating) else f64(x))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    int: _int, float: _float, round: _round, pow: power, divmod: lambda a, b: (OPERATORS["FloorDiv"](a, b), OPERATORS["Mod"](a, b)),
    min: _extreme(min, lambda a, b: b < a), max: _extreme(max, lambda a, b: b > a), math.frexp: _parts("frexp"), math.modf: _parts("modf"),
}  # fmt: skip
"""What a kernel calls -> what runs in its place."""
for _name in ("floor", "ceil", "trunc"):
    FUNCTIONS[getattr(math, _name)] = _integral(_name)
for _name in (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "degrees", "erf", "erfc", "exp", "expm1", "fabs",
    "fmod", "gamma", "hypot", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "pow", "radians", "remainder", "sin", "sinh", "sqrt",
    "tan", "tanh",
):  # fmt: skip
    FUNCTIONS[getattr(math, _name)] = _mathematical(_name)
_CASTS = {np.dtype(c): integer(c) for c in "bBhHiIlLqQ"}
FUNCTIONS |= {dtype.type: cast for dtype, cast in _CASTS.items()}


def stored(array: Any, value: Any) -> Any:
    """A value as a store puts it into an array: in integers it wraps."""
    cast = _CASTS.get(getattr(array, "dtype", None))
    return value if cast is None else cast(value)


def field(record: Any, value: Any, name: str) -> Any:
    """A value as a store puts it into a field of a record."""
    fields = getattr(getattr(record, "dtype", None), "fields", None)
    cast = _CASTS.get(fields[name][0]) if fields and name in fields else None
    return value if cast is None else cast(value)
