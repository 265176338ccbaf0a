"""Shared, local and constant arrays of kernels: fresh and poisoned for every block and every declaration (C15)."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from emu.simt.checked import Checked, plain
from emu.simt.shadow import Region
from emu.simt.state import S

STATIC_LIMIT = 48 * 1024  # bytes of shared memory that a kernel can declare
_dtypes: dict[Any, np.dtype] = {}


def dtype_of(dtype: Any) -> np.dtype:
    """NumPy's dtype for what a kernel names: a NumPy or Python type, or a numba type of either package."""
    try:
        return _dtypes[dtype]
    except (KeyError, TypeError):
        pass
    if hasattr(dtype, "mangling_args"):  # a numba type
        from numba.cuda.simulator import kernelapi

        result = kernelapi.numpy_support.as_dtype(dtype)
    else:
        result = np.dtype(dtype)
    _dtypes[dtype] = result
    return result


def poison(array: np.ndarray) -> np.ndarray:
    """Fills with NaN: 0x7FFD in each 16 bits (f16, bf16, f32, f64), 0x7F in 8 (e4m3, e5m2). Integers get large values."""
    if array.dtype == np.bool_:
        array[...] = True
    elif array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8)
        if array.itemsize % 2:
            flat[...] = 0x7F
        else:
            flat.view(np.uint16)[...] = 0x7FFD
    elif array.size:
        array[...] = poison(np.empty(1, array.dtype))[0]
    return array


def _empty(shape: Any, dtype: np.dtype) -> np.ndarray:
    array = poison(np.empty(shape, dtype))
    return array.view(np.recarray) if dtype.names else array  # fields as attributes


def _name(kind: str, code: CodeType, instruction: int) -> Callable[[], str]:
    """Names a declaration when an error asks for it: by its variable where it is assigned to one, and by its place."""

    def find() -> str:
        operations = list(dis.get_instructions(code))
        n = max(k for k, op in enumerate(operations) if op.offset <= instruction)
        where = operations[n].positions
        after = operations[n + 1] if n + 1 < len(operations) else None
        name = f" {after.argval!r}" if after and after.opname in ("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL") else ""
        return f"{kind} array{name} (declared at {where.lineno}:{(where.col_offset or 0) + 1})"

    return find


class Shared:
    """cuda.shared: one array a block for each declaration, that is for each call in the kernel's code; size 0 is the dynamic part."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        """The block's array of this declaration. `alignment` is accepted; memory here is aligned to 16 bytes or more."""
        frame = sys._getframe(1)
        block = S.thread.block
        here = (id(frame.f_code), frame.f_lasti)
        known = block.shared.get(here)
        if known is not None and known[0] is dtype and known[1] == shape:
            return known[2]
        if shape.__class__ is list:
            shape = tuple(shape)
        key = (*here, shape, dtype)  # one code object may serve several functions of a factory
        if key in block.shared:
            return block.shared[key]
        kind = dtype_of(dtype)
        if shape == 0:
            array, region = self._dynamic(block, kind)
        else:
            array = _empty(shape, kind)
            block.shared_bytes += array.nbytes
            if block.shared_bytes > STATIC_LIMIT:
                raise ValueError(f"{S.launch.name}: {block.shared_bytes} bytes of shared arrays, at most {STATIC_LIMIT} can be declared")
            region = _region(array, True) if S.launch.options.check else None
        if S.launch.options.check:
            array = Checked(array, _name("shared" if shape != 0 else "dynamic shared", frame.f_code, frame.f_lasti), region)
        block.shared[key] = array
        block.shared.setdefault(here, (dtype, shape, array))
        return array

    @staticmethod
    def _dynamic(block: Any, kind: np.dtype) -> tuple[np.ndarray, Region | None]:
        if block.dynamic is None:
            size = S.launch.dynamic_bytes
            memory = _empty((size + 15) // 16 * 16, np.dtype(np.uint16) if size % 2 == 0 else np.dtype(np.uint8)).view(np.uint8)[:size]
            units = memory.view(kind) if size % kind.itemsize == 0 else memory  # views with smaller elements refine it
            block.dynamic = memory, _region(units, True) if S.launch.options.check else None
        memory, region = block.dynamic
        return memory[: memory.size // kind.itemsize * kind.itemsize].view(kind), region


class Local:
    """cuda.local: a fresh array for every thread and every execution of the declaration."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        """An array of the calling thread."""
        array = _empty(tuple(shape) if shape.__class__ is list else shape, dtype_of(dtype))
        if S.launch.options.check:
            frame = sys._getframe(1)
            return Checked(array, _name("local", frame.f_code, frame.f_lasti), _region(array, False))
        return array


class Const:
    """cuda.const."""

    def array_like(self, array: Any) -> Any:
        """The host's array, which kernels cannot write."""
        array = plain(array)
        array = array.view(np.recarray) if array.dtype.names else array.view()
        array.flags.writeable = False
        if S.launch.options.check:
            frame = sys._getframe(1)
            return Checked(array, _name("const", frame.f_code, frame.f_lasti), None)
        return array


def _region(array: np.ndarray, races: bool) -> Region:
    return Region(array.__array_interface__["data"][0], array.itemsize, races and S.launch.options.races, True)
