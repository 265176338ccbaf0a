"""Compares arrays bit for bit and says where they differ. There is no tolerance here: -0 is not +0, and one NaN is not another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyref.spec import dtype_name
from tools.arena import Region, sentinel_bits

_UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Difference:
    """Why two arrays are not the same bytes: ``text`` is one line for people, ``count`` the number of differing elements."""

    text: str
    count: int = 0


def bits(values: np.ndarray) -> np.ndarray:
    """The elements as unsigned integers of their size, in a C-contiguous array."""
    return np.ascontiguousarray(values).view(_UINT[values.dtype.itemsize])


def ulp_distance(got: int, expected: int, size: int) -> int:
    """How many representable values lie between two float patterns of ``size`` bytes, with -0 and +0 as neighbours."""

    def ordered(pattern: int) -> int:
        sign = 1 << (8 * size - 1)
        return -1 - (pattern & (sign - 1)) if pattern & sign else pattern

    return abs(ordered(got) - ordered(expected))


def difference(name: str, got: np.ndarray, expected: np.ndarray) -> Difference | None:
    """None where ``got`` and ``expected`` have one shape, dtype and bytes; otherwise the first place where they do not."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return Difference(f"{name}: got {dtype_name(got)} {got.shape}, expected {dtype_name(expected)} {expected.shape}")
    left, right = bits(got), bits(expected)
    wrong = left != right
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    a, b, size = int(left[where]), int(right[where]), got.dtype.itemsize
    text = f"{name}: {count} of {got.size} elements differ, first at {list(where)}: "
    text += f"got 0x{a:0{2 * size}X} ({got[where]}), expected 0x{b:0{2 * size}X} ({expected[where]})"
    if got.dtype.kind not in "iub":
        text += f", {ulp_distance(a, b, size)} ulp apart"
    if a == sentinel_bits(got.dtype):
        text += "; the element still holds the sentinel: nobody wrote it"
    return Difference(text, count)


def surroundings_difference(name: str, got: Region, before: Region) -> Difference | None:
    """Whether a run wrote around an argument's elements: guards, gaps between rows."""
    around = got.outside() != before.outside()
    if not around.any():
        return None
    places = np.flatnonzero(around)
    start = int(places[0]) - got.offset
    text = f"{name}: {places.size} bytes outside the array were written, the first {start} bytes from its first element"
    return Difference(text, int(places.size))
