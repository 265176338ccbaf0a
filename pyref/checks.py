"""Checks that several kernels declare: memory that must not be shared, axes that must not be empty, grids that must fit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pyref.spec import Call

GRID_X = 2**31 - 1  # blocks of a grid along x
GRID_Y = 65535  # and along y or z
_WORK = 100_000  # candidates that the exact answer about two strided views may take; the views of real callers take fewer than ten


def same_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether every element of ``a`` is the element of ``b`` with the same index."""
    if a.ctypes.data != b.ctypes.data or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(size < 2 or left == right for size, left, right in zip(a.shape, a.strides, b.strides, strict=True))


def separate(call: Call, written: str, others: Iterable[str], *, same: Iterable[str] = ()) -> None:
    """Refuses a call whose array ``written`` shares memory with one of ``others`` (those in ``same``: unless they are the very same view).

    Absent arrays share nothing. Views that interleave without sharing an element are allowed. Raises ValueError.
    """
    array = call[written]
    for other in others:
        against = call[other]
        if array is None or against is None or (other in same and same_view(array, against)):
            continue
        try:
            shared = np.shares_memory(array, against, max_work=_WORK)  # type: ignore[call-overload,arg-type]
        except np.exceptions.TooHardError:
            shared = True
        if shared:
            wanted = "the same view or memory of its own" if other in same else "memory of its own"
            raise call.error(ValueError, written, f"got memory that overlaps {other}, expected {wanted}")


def at_least_one(call: Call, argument: str, axis: str) -> None:
    """Refuses an axis of size 0. Raises ValueError."""
    if call.axes[axis] < 1:
        raise call.error(ValueError, argument, f"axis {axis}: got 0, expected at least 1")
