"""Arrays under checks: a NumPy array whose indices are tested and whose accesses are recorded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import index as integer
from operator import lt as less
from operator import mul as times
from types import FrameType
from typing import Any

import numpy as np

from emu.simt.errors import OutOfBounds, user_frame
from emu.simt.records import Record
from emu.simt.shadow import Cell, Region
from emu.simt.state import S


class Checked:
    """Stands for `array` inside a kernel. `name` is what errors call it, `region` records accesses (None: bounds only). Of a structured
    array each of the `fields` records its own, in the region `memory`."""

    __slots__ = ("array", "cells", "dtype", "fields", "memory", "name", "offset", "races", "region", "shape", "span", "steps", "unit")

    def __init__(self, array: np.ndarray, name: Any, region: Region | None) -> None:
        self.array = array
        self.name = name
        self.shape, self.dtype = array.shape, array.dtype
        self.memory = region
        self.fields: dict[str, Checked] | None = None
        if array.dtype.names:
            self.fields, region = {}, None
        self.region = region
        self.races = region is not None and region.races
        self.cells: dict[Any, Cell] = {}  # index -> its cell, for indices that were found to be inside: most accesses end here
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
        if region is None or region.log is not None:  # nobody has written here
            try:
                value = self.array[index]
                if index.__class__ is not tuple:
                    inside = index >= 0
                elif len(index) == 5:  # written out: this is the most frequent thing that checks do
                    a, b, c, d, e = index
                    inside = a >= 0 and b >= 0 and c >= 0 and d >= 0 and e >= 0
                elif len(index) == 4:
                    a, b, c, d = index
                    inside = a >= 0 and b >= 0 and c >= 0 and d >= 0
                else:
                    inside = min(index) >= 0
                if inside and value.__class__ is not np.ndarray:
                    if region is not None:
                        frame = sys._getframe(1)
                        region.log += (S.thread.now, self, index, frame.f_code, frame.f_lasti)
                    elif self.fields is not None:
                        return Record(self, index)
                    return value
            except (IndexError, TypeError, ValueError):  # outside, or no single element
                pass
        else:
            try:
                cell = self.cells.get(index)
            except TypeError:  # a slice
                cell = None
            if cell is not None:
                if self.races:
                    read = cell.read
                    if read is None or read[0] is not S.thread.now:
                        region.read(cell, self, index, sys._getframe(1))
                elif cell.write is None:
                    region.read(cell, self, index, sys._getframe(1))
                return self.array[index]
        if self._cell(index) is None:
            return self._part(index)
        self._read(index, sys._getframe(1))
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if value.__class__ is Checked:
            value.touch(sys._getframe(1), write=False)
            value = value.array
        region = self.region
        try:
            cell = self.cells.get(index)
        except TypeError:
            cell = None
        if cell is None:
            if self._cell(index) is None:
                part = self._part(index)
                if part.__class__ is Checked:
                    part.touch(sys._getframe(1), value)
            elif region is not None:
                for each in self._find(index):
                    region.write(each, self, index, sys._getframe(1), value)
            elif self.fields is not None:
                value = np.asarray(value, self.array.dtype)
                self.access(index, sys._getframe(1), value)
        elif self.races:
            region.write(cell, self, index, sys._getframe(1), value)
        else:
            cell.write = True
        self.array[index] = value

    def _cell(self, index: Any) -> int | None:
        """The number of one element's first cell, or None for a part of the array. Tests every integer in the index."""
        shape = self.shape
        parts = index if index.__class__ is tuple else (index,)
        region = self.region
        if region is not None and self.unit != region.unit:
            self._place()
        if len(parts) == len(shape):
            with suppress(TypeError):  # a slice
                if parts and (min(parts) < 0 or not all(map(less, parts, shape))):
                    self._outside(index)
                return sum(map(times, map(integer, parts), self.steps), self.offset)
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

    def _find(self, index: Any) -> Sequence[Cell]:
        """The cells of one element, from now on found by its index."""
        region = self.region
        if region.log is not None:
            region.wake()
        number = self._cell(index)
        if self.span > 1:
            return [region.at(n) for n in range(number, number + self.span)]
        cell = region.at(number)
        if not self.cells:
            region.found.append(self.cells)
        with suppress(TypeError):  # an index that cannot be hashed
            self.cells[index] = cell
        return (cell,)

    def _read(self, index: Any, frame: FrameType) -> None:
        """Records a read of one element."""
        region = self.region
        if region is None:
            return
        if region.log is not None:
            region.log += (S.thread.now, self, index, frame.f_code, frame.f_lasti)
        else:
            for cell in self._find(index):
                region.read(cell, self, index, frame)

    def _part(self, index: Any) -> Any:
        if isinstance(index, str):
            return self.field(index)
        return self._wrap(self.array[index])

    def field(self, name: str | int) -> Checked:
        """A field of all elements of a structured array."""
        name = self.array.dtype.names[name] if isinstance(name, int) else name
        if name not in self.fields:
            self.fields[name] = Checked(self.array[name], lambda: f"{self.label()}.{name}", self.memory)
        return self.fields[name]

    def access(self, index: Any, frame: FrameType, value: Any = None, write: bool = True) -> None:
        """Records an access to all of an element, whether it is a number, a record, or the array that a field holds."""
        if self.fields is not None:
            for name in self.array.dtype.names:
                self.field(name).access(index, frame, value[name] if write else None, write)
        elif self._cell(index) is None:
            self._part(index).touch(frame, value, write)
        elif not write:
            self._read(index, frame)
        elif self.region is not None:
            for cell in self._find(index):
                self.region.write(cell, self, index, frame, value)

    def touch(self, frame: FrameType, value: Any = None, write: bool = True) -> None:
        """Records an access to every element."""
        if self.fields is not None:
            values = np.broadcast_to(np.asarray(plain(value), self.array.dtype), self.shape) if write else None
            for name in self.array.dtype.names:
                self.field(name).touch(frame, None if values is None else values[name], write)
            return
        if self.region is None:
            return
        values = np.broadcast_to(value, self.shape) if write else None
        for index in np.ndindex(self.shape):
            if values is None:
                self._read(index, frame)
            else:
                for cell in self._find(index):
                    self.region.write(cell, self, index, frame, values[index])

    def atomic(self, index: Any, frame: FrameType) -> None:
        """Checks the index of an atomic and records the access."""
        region = self.region
        if self._cell(index) is None:
            raise IndexError(f"atomic on {self.label()}: index {index} is not one element of shape {self.shape}")
        if region is None:
            return
        if S.launch.order_of is not None:
            S.launch.order_of.atomic(S.thread, region.base + self._cell(index) * region.unit)
        for cell in self._find(index):
            region.read(cell, self, index, frame, True)
            region.write(cell, self, index, frame, None, True)

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
        whole = self.array.ndim > 1 or self.fields is not None
        for i in range(len(self.array)):
            if not whole:
                self._read(i, user_frame(sys._getframe()))
            yield self[i] if whole else self.array[i]

    def fill(self, value: Any) -> None:
        """Stores one value into every element."""
        self.touch(user_frame(sys._getframe()), value)
        self.array.fill(value)

    @property
    def flat(self) -> Any:
        """The elements in one dimension."""
        return self._wrap(self.array.reshape(-1)) if self.array.flags.c_contiguous else self.array.flat

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
        if self.fields is not None and attribute in self.array.dtype.names:
            return self.field(attribute)
        value = getattr(self.array, attribute)
        return self._method(value) if callable(value) and not isinstance(value, np.ndarray) else self._wrap(value)

    def _method(self, method: Any) -> Any:
        """A method of NumPy's array: views are checked as this array is, for other results it is read."""

        def call(*args: Any, **kwargs: Any) -> Any:
            result = self._wrap(method(*args, **kwargs))
            if result.__class__ is not Checked:
                self.touch(user_frame(sys._getframe()), write=False)
            return result

        return call

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and np.may_share_memory(value, self.array):
            return Checked(value, self._view, self.memory)
        return value

    def _view(self) -> str:
        """What errors call a part, a transpose or a view of the array: their indices are the view's."""
        return self.label().removesuffix("[...]") + "[...]"


def plain(x: Any) -> Any:
    """The NumPy array behind an argument, for the simulator's own use."""
    return x.array if isinstance(x, Checked) else x
