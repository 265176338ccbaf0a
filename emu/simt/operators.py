"""Python's operators on scalars, as numba compiles them for a GPU.

Integers of any width compute in 64 bits, signed unless both are unsigned; int and float are int64 and float64, never "weak" beside a NumPy
scalar; what overflows wraps; nothing raises: x / 0 is an infinity or NaN, and integers divided by zero give 0 (with debug=True of
`cuda.jit` they raise ZeroDivisionError, as numba's do). A signed 64-bit integer is a Python int, an unsigned one an np.uint64. Whatever
is no number, an array or a tuple, keeps its own operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from emu.simt.state import S

LOW, HIGH, _MASK = -(2**63), 2**63 - 1, 2**64 - 1
uint64, float64 = np.uint64, np.float64
NUMBERS: dict[type, type] = {int: np.int64, float: float64, bool: np.bool_, complex: np.complex128}  # what Python's numbers are
_SIGNED = {np.uint8: np.int16, np.uint16: np.int32}  # as which floating types meet them
_FLOATS = frozenset({float, complex, np.float16, np.float32, float64, np.complex64, np.complex128})


def wrapped(n: int) -> int:
    """An integer in 64 bits, signed."""
    n &= _MASK
    return n - 2**64 if n > HIGH else n


def _unsigned(n: int) -> np.uint64:
    return uint64(n & _MASK)


class _Common(dict[tuple[type, type], Any]):
    """(class, class) -> the type in which numba computes with both: int (64 bits, signed), np.uint64, a floating type; None: no numbers."""

    def __missing__(self, pair: tuple[type, type]) -> Any:
        kinds = [NUMBERS.get(c, c) for c in pair]
        kind = None
        if all(issubclass(k, (np.integer, np.bool_)) for k in kinds):
            kind = uint64 if all(issubclass(k, np.unsignedinteger) for k in kinds) else int
        elif all(issubclass(k, (np.number, np.bool_)) for k in kinds):
            kind = np.result_type(*(_SIGNED.get(k, k) for k in kinds)).type
        self[pair] = kind
        return kind


class _Kinds(dict[tuple[type, type], Any]):
    """(class, class) -> what the operands must be converted to: as COMMON, but None where NumPy and Python come to it by themselves."""

    def __missing__(self, pair: tuple[type, type]) -> Any:
        kind = COMMON[pair]
        if kind is not None and kind is not int and kind is not uint64:
            own = type(pair[0]() + pair[1]())
            kind = None if NUMBERS.get(own, own) is kind else kind
        self[pair] = kind
        return kind


COMMON = _Common()
KINDS = _Kinds()


def _by_zero(b: Any) -> bool:
    """Whether an integer division has no answer; numba's debug mode raises."""
    if b:
        return False
    if S.launch is not None and S.launch.debug:
        raise ZeroDivisionError("division by zero")
    return True


def _arithmetic(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """+, - and *."""

    def apply(a: Any, b: Any) -> Any:
        t = a.__class__
        if t is b.__class__:
            if t is int:
                r = op(a, b)
                return r if LOW <= r <= HIGH else wrapped(r)
            if t in _FLOATS:
                return op(a, b)
        kind = KINDS[t, b.__class__]
        if kind is None:
            return op(a, b)
        if kind is int:
            r = op(int(a), int(b))
            return r if LOW <= r <= HIGH else wrapped(r)
        return op(kind(a), kind(b))

    return apply


def _floats(a: Any, b: Any, kind: Any) -> tuple[Any, Any]:
    """Operands of a floating operation in NumPy's types, which raise nothing."""
    if kind is None:
        return NUMBERS.get(a.__class__, _same)(a), b
    return (float64(int(a)), float64(int(b))) if kind is int or kind is uint64 else (kind(a), kind(b))


def _same(x: Any) -> Any:
    return x


def divide(a: Any, b: Any) -> Any:
    """a / b: of two integers in float64."""
    t = a.__class__
    if t is b.__class__ and (t is np.float32 or t is float64):
        return a / b
    kind = KINDS[t, b.__class__]
    if kind is int or kind is uint64:
        _by_zero(b)
    a, b = _floats(a, b, kind)
    return a / b


def _floored(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """// and %, whose signs are Python's."""

    def apply(a: Any, b: Any) -> Any:
        if a.__class__ is int and b.__class__ is int and b > 0:
            return op(a, b)
        kind = KINDS[a.__class__, b.__class__]
        if kind is int:
            r = 0 if _by_zero(b) else op(wrapped(int(a)), wrapped(int(b)))
            return r if r <= HIGH else 0  # -2^63 // -1
        if kind is uint64:
            return uint64(0) if _by_zero(b) else op(uint64(a), uint64(b))
        a, b = _floats(a, b, kind)
        return op(np.float32(a), b) if a.__class__ is np.float16 else op(a, b)

    return apply


def power(a: Any, b: Any) -> Any:
    """a ** b. A floating base keeps its type beside an integer exponent; an integer with a negative exponent is 1, -1 or 0."""
    kind = KINDS[a.__class__, b.__class__]
    if kind is int or kind is uint64:
        a, b = int(a), int(b)
        r = pow(a, b, 2**64) if b >= 0 else (a if b & 1 else 1) if a in (1, -1) else 0 if a else LOW
        return wrapped(r) if kind is int else _unsigned(r)
    integer = b.__class__ is int or isinstance(b, np.integer)
    if integer and isinstance(a, (np.float16, np.float32)):
        return np.float32(a) ** np.float32(b)
    a, b = _floats(a, b, kind)
    return a**b


def shift_left(a: Any, b: Any) -> Any:
    """a << b: signed as `a` is; bits that leave are lost."""
    if a.__class__ is int and b.__class__ is int and 0 <= b < 64:
        r = a << b
        return r if LOW <= r <= HIGH else wrapped(r)
    kind = KINDS[a.__class__, a.__class__]
    if kind is not int and kind is not uint64:
        return a << b
    n = int(a) << int(b) if 0 <= b < 64 else 0
    return wrapped(n) if kind is int else _unsigned(n)


def shift_right(a: Any, b: Any) -> Any:
    """a >> b: arithmetic where `a` is signed."""
    if a.__class__ is int and b.__class__ is int and 0 <= b < 64:
        return a >> b
    kind = KINDS[a.__class__, a.__class__]
    if kind is not int and kind is not uint64:
        return a >> b
    n = int(a) >> (int(b) if 0 <= b < 64 else 64)
    return n if kind is int else uint64(n)


def _bitwise(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """&, | and ^. Of two booleans they are a boolean."""

    def apply(a: Any, b: Any) -> Any:
        t = a.__class__
        if t is b.__class__ and (t is int or t is uint64 or t is bool):
            return op(a, b)
        kind = KINDS[t, b.__class__]
        if kind is int:
            boolean = isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_))
            return op(bool(a), bool(b)) if boolean else wrapped(op(int(a), int(b)))
        return op(a, b) if kind is None else op(kind(a), kind(b))

    return apply


def _comparison(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Integers compare by value, uint64 with a signed one in float64; so does a float32 beside a Python number."""

    def apply(a: Any, b: Any) -> Any:
        if a.__class__ is b.__class__:
            return op(a, b)
        kind = KINDS[a.__class__, b.__class__]
        if kind is int and uint64 in (a.__class__, b.__class__):
            kind = float64
        return op(a, b) if kind is None or kind is int or kind is uint64 else op(kind(a), kind(b))

    return apply


def _unary(op: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """- and ~: integers at their own width, then in 64 bits."""

    def apply(a: Any) -> Any:
        kind = KINDS[a.__class__, a.__class__]
        if a.__class__ is bool or a.__class__ is np.bool_:
            return not a if op is operator.invert else -int(a)
        if kind is int:
            return wrapped(int(op(a)))
        return op(a) if kind is None else kind(op(a))

    return apply


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": _arithmetic(operator.add), "Sub": _arithmetic(operator.sub), "Mult": _arithmetic(operator.mul), "Div": divide,
    "FloorDiv": _floored(operator.floordiv), "Mod": _floored(operator.mod), "Pow": power, "LShift": shift_left, "RShift": shift_right,
    "BitAnd": _bitwise(operator.and_), "BitOr": _bitwise(operator.or_), "BitXor": _bitwise(operator.xor), "USub": _unary(operator.neg),
    "Invert": _unary(operator.invert), "Lt": _comparison(operator.lt), "LtE": _comparison(operator.le), "Gt": _comparison(operator.gt),
    "GtE": _comparison(operator.ge), "Eq": _comparison(operator.eq), "NotEq": _comparison(operator.ne),
}  # fmt: skip
"""By the names of Python's `ast`; `emu.simt.typed` puts them into kernels."""
