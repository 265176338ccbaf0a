"""Copies pages of one cache to pages of another: the port of ``kernels_cu/swap_blocks.cu``. Like that it has no kernel; copies of slices
stand for its calls of the copy engine."""

from __future__ import annotations

from pyref.cache_write import bits
from pyref.spec import Call
from pyref.swap_blocks import runs


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, in the order of the CUDA source."""
    src, dst = bits(call["src"]), bits(call["dst"])
    row = src.shape[1] * src.itemsize
    dense = src.strides[0] == row == dst.strides[0]
    for read, written, count in runs(call["pairs"], dense):
        dst[written : written + count] = src[read : read + count]
