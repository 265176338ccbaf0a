"""Converts between f32, f16 or bf16 and fp8: the numba port of ``kernels_cu/convert_fp8.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.access import alignment_of, widest_access
from emu.cache_rows import one_head
from emu.fp8 import dequantizer, quantizer
from pyref.cache_types import FP8
from pyref.cache_write import bits
from pyref.row_tiles import IN_FLIGHT, RowTiles
from pyref.spec import Call, itemsize


@functools.cache
def kernel(to: str, origin: str, N: int) -> Any:
    """The kernel for these dtypes; N elements are one piece. f16, bf16 and fp8 come as unsigned integers."""
    from numba import cuda, from_dtype, int64

    converted = quantizer(origin, to) if to in FP8 else dequantizer(origin, to)
    held_type = from_dtype(np.dtype(np.float32 if origin == "f32" else f"u{itemsize(origin)}"))
    HELD = IN_FLIGHT * N

    @cuda.jit
    def convert_rows(out, x, scale, pieces, width, abreast, shift):  # noqa: ANN001, ANN202
        piece = int64(cuda.blockIdx.x & ((1 << shift) - 1)) * width + cuda.threadIdx.x
        if piece >= pieces:
            return
        first_row = int64(cuda.blockIdx.x >> shift) * abreast * IN_FLIGHT
        heads = x.shape[1]
        rows = x.shape[0] * heads
        held = cuda.local.array(HELD, held_type)
        for u in range(IN_FLIGHT):
            row = first_row + u * abreast + cuda.threadIdx.y
            if row < rows:
                for i in range(N):
                    held[u * N + i] = x[row // heads, row % heads, piece * N + i]
        for u in range(IN_FLIGHT):
            row = first_row + u * abreast + cuda.threadIdx.y
            if row < rows:
                factor = scale[row % heads if scale.shape[0] > 1 else 0]
                for i in range(N):
                    out[row // heads, row % heads, piece * N + i] = converted(held[u * N + i], factor)

    return convert_rows


def _storage(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float32 else bits(array)


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    if call.axes["n"] == 0:
        return  # an empty grid cannot be launched
    out, x, scale = _storage(call["out"]), _storage(call["x"]), call["scale"]
    w = x.shape[2]
    if scale.size == 1 and x.shape[1] > 1 and all(array.strides[1] == w * array.itemsize for array in (out, x)):
        out, x = one_head(out), one_head(x)
    elements = min(widest_access(alignment_of(a) | a.shape[2] * a.itemsize) // a.itemsize for a in (out, x))
    elements = min(elements, 16 // max(out.itemsize, x.itemsize))
    tiles = RowTiles(x.shape[0] * x.shape[1], x.shape[2] // elements)
    port = kernel(call.dtypes["O"], call.dtypes["X"], elements)[tiles.blocks, tiles.threads]
    port(out, x, scale, tiles.pieces, tiles.width, tiles.abreast, tiles.shift)
