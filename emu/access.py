"""How wide an access to memory may be: the largest size that a row's length, its strides and its address allow.

The same text as ``kernels_cu/access.cuh``.
"""

from __future__ import annotations

import numpy as np


def alignment_of(array: np.ndarray) -> int:
    """Bytes that no row of an array [..., dense] may be cut by, or'ed into one number: its address and the strides that are used."""
    bits = array.ctypes.data
    for size, stride in zip(array.shape[:-1], array.strides[:-1], strict=True):
        bits |= stride if size > 1 else 0
    return bits


def widest_access(bits: int) -> int:
    """The widest of 16, 8, 4, 2 and 1 bytes that divides every number or'ed into ``bits``: addresses, strides and lengths in bytes."""
    bits |= 16
    return bits & -bits
