"""cuda.atomic. Threads change hands only where they wait and behind atomics, so a plain read and write is atomic with every other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from emu.simt.checked import Checked
from emu.simt.intrinsics import spin
from emu.simt.state import S

PATIENCE = 16  # equal looks at memory in a row before other threads get a turn


def _like(value: Any, dtype: np.dtype) -> Any:
    """The operand in the element's type; integers wrap as in C."""
    if isinstance(value, np.generic) and value.dtype == dtype:
        return value
    if dtype.kind in "iu" and isinstance(value, int):
        bits = 8 * dtype.itemsize
        value &= (1 << bits) - 1
        if dtype.kind == "i" and value >> (bits - 1):
            value -= 1 << bits
        return dtype.type(value)
    return np.asarray(value).astype(dtype)[()]


def _update(array: Any, index: Any, operands: tuple[Any, ...], step: Callable[..., Any], looks: bool = False) -> Any:
    """Reads an element, stores step(old, *operands) and returns the old value. `looks`: a thread may wait by doing this again and again."""
    t = S.thread
    if isinstance(array, Checked):
        array.atomic(index, sys._getframe(2))
        array = array.array
    old = array[index]
    new = step(old, *(_like(v, old.dtype) for v in operands))
    if new is old or new.tobytes() == old.tobytes():
        if looks:
            call = (id(array), index, operands, old)
            t.polls = t.polls + 1 if call == t.polled else 1
            t.polled = call
            if t.polls >= PATIENCE:
                spin(t)
    else:
        t.polled = None
        array[index] = new
        S.launch.idle = 0
        S.launch.after_atomic(t)
    return old


def _inc(old: Any, limit: Any) -> Any:
    return old.dtype.type(0) if old >= limit else old + old.dtype.type(1)


def _dec(old: Any, limit: Any) -> Any:
    return limit if old == 0 or old > limit else old - old.dtype.type(1)


class Atomic:
    """cuda.atomic: every operation returns the old value. Indices are integers or tuples."""

    def add(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] += value"""
        return _update(array, index, (value,), lambda old, v: old + v, value == 0)

    def sub(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] -= value"""
        return _update(array, index, (value,), lambda old, v: old - v, value == 0)

    def and_(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] &= value"""
        return _update(array, index, (value,), lambda old, v: old & v)

    def or_(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] |= value"""
        return _update(array, index, (value,), lambda old, v: old | v, value == 0)

    def xor(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] ^= value"""
        return _update(array, index, (value,), lambda old, v: old ^ v, value == 0)

    def inc(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = 0 if array[index] >= value else array[index] + 1"""
        return _update(array, index, (value,), _inc)

    def dec(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = value if array[index] is 0 or above value, else array[index] - 1"""
        return _update(array, index, (value,), _dec)

    def exch(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = value"""
        return _update(array, index, (value,), lambda old, v: v, True)

    def max(self, array: Any, index: Any, value: Any) -> Any:
        """The larger one; a NaN element stays, a NaN value changes nothing."""
        return _update(array, index, (value,), lambda old, v: v if v > old else old)

    def min(self, array: Any, index: Any, value: Any) -> Any:
        """The smaller one; a NaN element stays, a NaN value changes nothing."""
        return _update(array, index, (value,), lambda old, v: v if v < old else old)

    def nanmax(self, array: Any, index: Any, value: Any) -> Any:
        """The larger one; a number wins over NaN."""
        return _update(array, index, (value,), lambda old, v: np.fmax(old, v))

    def nanmin(self, array: Any, index: Any, value: Any) -> Any:
        """The smaller one; a number wins over NaN."""
        return _update(array, index, (value,), lambda old, v: np.fmin(old, v))

    def cas(self, array: Any, index: Any, old: Any, value: Any) -> Any:
        """array[index] = value where it equals old."""
        return _update(array, index, (old, value), lambda now, o, v: v if now == o else now, True)

    def compare_and_swap(self, array: Any, old: Any, value: Any) -> Any:
        """cas on the first element."""
        return _update(array, (0,) * len(array.shape), (old, value), lambda now, o, v: v if now == o else now, True)
