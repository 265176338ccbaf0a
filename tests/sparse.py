"""Arrays of many gigabytes that take no memory: address space is mapped, and pages come to be where they are written.

An offset that was computed in 32 bits then lands in another row of the same array, where a test looks for it.
"""

from __future__ import annotations

import math
import mmap

import numpy as np

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python 3.13 names it


def sparse(shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> np.ndarray:
    """An array of zeros with these strides (in elements, none negative) over untouched memory."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = mmap.mmap(-1, reach * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    assert math.prod(shape) > 0, "an empty array needs no sparse memory"
    return np.ndarray(shape, dtype, memory, 0, tuple(stride * dtype.itemsize for stride in strides))
