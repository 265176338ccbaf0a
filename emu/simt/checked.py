"""Arrays under checks: a NumPy array whose indices are tested and whose accesses are recorded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from operator import index as integer
from types import FrameType
from typing import Any

import numpy as np

from emu.simt.errors import OutOfBounds, user_frame
from emu.simt.shadow import Region
from emu.simt.state import S


class Checked:
    """Stands for `array` inside a kernel. `name` is what errors call it, `region` records accesses (None: bounds only)."""

    __slots__ = ("array", "name", "offset", "region", "shape", "span", "steps", "unit")

    def __init__(self, array: np.ndarray, name: Any, region: Region | None) -> None:
        self.array = array
        self.name = name
        self.shape = array.shape
        if array.dtype.names:
            region = None  # fields are reached by views that record nothing
        self.region = region
        self.offset, self.unit, self.steps = 0, 0, (0,) * array.ndim
        if region is not None:
            address = array.__array_interface__["data"][0] - region.base
            unit = math.gcd(region.unit, address, array.itemsize, *(s for s, n in zip(array.strides, array.shape, strict=True) if n > 1))
            if unit != region.unit:
                region.refine(unit)
            self._place()

    def _place(self) -> None:
        """Where the elements lie, in cells of the region."""
        region, array = self.region, self.array
        self.unit = region.unit
        self.offset = (array.__array_interface__["data"][0] - region.base) // self.unit
        self.steps = tuple(s // self.unit for s in array.strides)
        self.span = array.itemsize // self.unit

    # --- elements ---

    def __getitem__(self, index: Any) -> Any:
        region = self.region
        if region is not None:
            if self.unit != region.unit:
                self._place()
            cell = self._cell(index)
            if cell is None:
                return self._part(index)
            region.read(cell, self.span, self, index, sys._getframe(1))
        elif self._cell(index) is None:
            return self._part(index)
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if value.__class__ is Checked:
            value = value.array
        region = self.region
        if region is not None and self.unit != region.unit:
            self._place()
        cell = self._cell(index)
        if cell is None:
            part = self._part(index)
            if part.__class__ is Checked:
                part.touch(sys._getframe(1), value)
        elif region is not None:
            region.write(cell, self.span, self, index, sys._getframe(1), value)
        self.array[index] = value

    def _cell(self, index: Any) -> int | None:
        """The cell of one element, or None for a part of the array. Tests every integer in the index."""
        shape = self.shape
        parts = index if index.__class__ is tuple else (index,)
        if len(parts) == len(shape):
            cell = self.offset
            try:
                for i, n, step in zip(map(integer, parts), shape, self.steps):  # noqa: B905  speed; lengths are equal
                    if not 0 <= i < n:
                        self._outside(index)
                    cell += i * step
            except TypeError:  # a slice
                pass
            else:
                return cell
        if len(parts) > len(shape) and Ellipsis not in parts and None not in parts:
            self._outside(index)
        axis = 0
        for i in parts:
            if i is Ellipsis:
                axis += len(shape) - len(parts) + 1
                continue
            if isinstance(i, (int, np.integer)) and not 0 <= i < shape[axis]:
                self._outside(index)
            axis += i is not None
        return None

    def _part(self, index: Any) -> Any:
        part = self.array[index]
        if isinstance(part, np.ndarray) and np.may_share_memory(part, self.array):
            return Checked(part, self.name, self.region)
        return part

    def touch(self, frame: FrameType, value: Any = None, write: bool = True) -> None:
        """Records an access to every element."""
        if self.region is None:
            return
        self._place()
        values = np.broadcast_to(value, self.shape) if write else None
        for index in np.ndindex(self.shape):
            cell = self.offset + sum(i * s for i, s in zip(index, self.steps, strict=True))
            if values is None:
                self.region.read(cell, self.span, self, index, frame)
            else:
                self.region.write(cell, self.span, self, index, frame, values[index])

    def atomic(self, index: Any, frame: FrameType) -> int:
        """Checks the index of an atomic and records the access. Returns the element's address."""
        region = self.region
        if region is not None and self.unit != region.unit:
            self._place()
        cell = self._cell(index)
        if cell is None:
            raise IndexError(f"atomic on {self.label()}: index {index} is not one element of shape {self.shape}")
        if region is None:
            return 0
        address = region.base + cell * region.unit
        if S.launch.order_of is not None:
            S.launch.order_of.atomic(S.thread, address)
        region.read(cell, self.span, self, index, frame, True)
        region.write(cell, self.span, self, index, frame, None, True)
        return address

    def same(self, index: Any, value: Any) -> bool:
        """Whether a store of `value` would leave the element's bits as they are."""
        old = self.array[index]
        try:
            return np.asarray(value, old.dtype).tobytes() == old.tobytes()
        except (TypeError, ValueError, OverflowError):
            return False

    # --- errors ---

    def _outside(self, index: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        negative = any(isinstance(i, (int, np.integer)) and i < 0 for i in parts)
        what = f"{'negative index' if negative else 'index'} [{self.text(index)}] of {self.label()}, shape {self.shape}"
        raise S.launch.fault(OutOfBounds, what, S.thread, user_frame(sys._getframe(1)))

    def label(self) -> str:
        """The array's name in errors."""
        return self.name if isinstance(self.name, str) else self.name()

    @staticmethod
    def text(index: Any) -> str:
        """An index as a kernel writes it."""
        return ", ".join(str(i) for i in index) if isinstance(index, tuple) else str(index)

    # --- everything else is NumPy's ---

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self.array)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.touch(user_frame(sys._getframe(1)), write=False)
        return np.array(self.array, dtype) if copy or dtype else self.array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **kwargs: Any) -> Any:
        frame = user_frame(sys._getframe(1))
        plain = [np.asarray(x) if isinstance(x, Checked) else x for x in inputs]
        if not out:
            return getattr(ufunc, method)(*plain, **kwargs)
        result = getattr(ufunc, method)(*plain, **kwargs)
        for o in out:
            if isinstance(o, Checked):
                o.touch(frame, result)
                o.array[...] = result
            else:
                o[...] = result
        return out[0]

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        value = getattr(self.array, attribute)
        if isinstance(value, np.ndarray) and np.may_share_memory(value, self.array):
            return Checked(value, self.name, self.region)
        if callable(value):
            return lambda *a, **k: self._wrap(value(*a, **k))
        return value

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and np.may_share_memory(value, self.array):
            return Checked(value, self.name, self.region)
        return value


def plain(x: Any) -> Any:
    """The NumPy array behind an argument, for the simulator's own use."""
    return x.array if isinstance(x, Checked) else x
