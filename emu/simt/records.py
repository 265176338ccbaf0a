"""Elements of structured arrays under checks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.simt.errors import user_frame

if TYPE_CHECKING:
    from emu.simt.checked import Checked


class Record:
    """Stands for `array[index]`, an element of a structured array; its fields, by name or number, are elements of the array's fields."""

    __slots__ = ("_array", "_index")

    def __init__(self, array: Checked, index: Any) -> None:
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_index", index)

    def __getitem__(self, field: str | int) -> Any:
        field, index = self._array.field(field), self._index
        if field.fields is not None:
            return Record(field, index) if len(field.shape) == len(self._array.shape) else field._part(index)
        if field._cell(index) is None:  # it holds an array
            return field._part(index)
        field.access(index, user_frame(sys._getframe(1)), write=False)
        return field.array[index]

    def __setitem__(self, field: str | int, value: Any) -> None:
        field = self._array.field(field)
        value = np.asarray(value, field.array.dtype)
        field.access(self._index, user_frame(sys._getframe(1)), value)
        field.array[self._index] = value

    def __getattr__(self, name: str) -> Any:
        if name in self._array.array.dtype.names:
            return self[name]
        if name.startswith("__"):  # NumPy asks for them, and takes what __array__ gives
            raise AttributeError(name)
        return getattr(self._array.array[self._index], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._array.array.dtype.names:
            raise AttributeError(f"{self._array.label()} has no field {name!r}, only {', '.join(self._array.array.dtype.names)}")
        self[name] = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self._array.access(self._index, user_frame(sys._getframe(1)), write=False)
        return np.array(self._array.array[self._index], dtype)
