"""Memory for a case: every array lies in its own buffer between guard bands, with poison wherever no element of it is.

Poison is the byte 0xFF: NaN in every float type, -1 in every integer. Outputs begin as a sentinel instead, so that an element that
nobody wrote is seen; in floats of two bytes and more it is a NaN too, so that a kernel that reads such an element is seen as well.
Guards and gaps are compared after a run like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

POISON = 0xFF
SENTINEL = 0xA5
GUARD = 16384  # bytes on both sides; a multiple of every vector size
_ALIGN = 256  # as cudaMalloc aligns


@dataclass(frozen=True)
class Region:
    """An array (``view``) and the whole buffer of bytes that it lies in. ``host``: a leg of a GPU leaves it in host memory, where the
    kernel takes arguments from both (``Tensor.where`` "any")."""

    buffer: np.ndarray
    view: np.ndarray
    host: bool = False

    @property
    def offset(self) -> int:
        """Bytes from the buffer's start to the view's first element."""
        return self.view.ctypes.data - self.buffer.ctypes.data

    def copy(self) -> Region:
        """The same view of a copy of the whole buffer, equally aligned."""
        buffer = _aligned(self.buffer.size)
        buffer[:] = self.buffer
        return Region(buffer, np.ndarray(self.view.shape, self.view.dtype, buffer, self.offset, self.view.strides), self.host)

    def outside(self) -> np.ndarray:
        """The buffer with every byte of the view zeroed: what no kernel may change."""
        rest = self.copy()
        rest.view[...] = np.zeros((), rest.view.dtype)
        return rest.buffer


def _aligned(size: int) -> np.ndarray:
    raw = np.empty(size + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + size]


def place(
    values: np.ndarray,
    *,
    pad: Mapping[int, int] | None = None,
    offset: int = 0,
    swap: tuple[int, int] | None = None,
    host: bool = False,
) -> Region:
    """A copy of ``values`` in a guarded buffer.

    ``pad``: axis -> how many more elements its parent has along that axis (the view takes the first ones), which gives the axes before
    it a larger stride. ``offset``: elements by which the parent's start is moved from an aligned address. ``swap``: two axes whose
    order in memory is exchanged. ``host``: see Region.
    """
    order = list(range(values.ndim))
    if swap:
        order[swap[0]], order[swap[1]] = order[swap[1]], order[swap[0]]
    strides = [0] * values.ndim
    step = values.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= values.shape[axis] + (pad or {}).get(axis, 0)
    start = GUARD + offset * values.itemsize
    buffer = _aligned(start + step + GUARD)
    buffer[:] = POISON
    view = np.ndarray(values.shape, values.dtype, buffer, start, strides)
    view[...] = values
    return Region(buffer, view, host)


def sentinel_bits(dtype: np.dtype) -> int:
    """The sentinel of one element as an unsigned integer of its size, such as 0xFFA5A5A5."""
    last = POISON if dtype.kind not in "iub" and dtype.itemsize > 1 else SENTINEL
    return int.from_bytes([last] + [SENTINEL] * (dtype.itemsize - 1))


def sentinel(shape: tuple[int, ...], dtype: np.dtype, **layout: object) -> Region:
    """A placed output in which every element is the sentinel."""
    return place(np.full(shape, sentinel_bits(dtype), f"u{dtype.itemsize}").view(dtype), **layout)  # type: ignore[arg-type]
