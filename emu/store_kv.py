"""Copies row i of K and V to slot slots[i] of their pools, bit for bit: the numba port of ``kernels_cu/store_kv.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, from_dtype

from emu.access import alignment_of, widest_access
from pyref.spec import Call

WARPS = 8  # rows a block
IN_FLIGHT = 4  # pieces of K, and as many of V, that a lane loads before it stores any


@functools.cache
def kernel(units: int, unit: str) -> Any:
    """The kernel for pieces of ``units`` unsigned integers of NumPy type ``unit`` (numba knows none of 16 bytes)."""
    storage, held = from_dtype(np.dtype(unit)), IN_FLIGHT * units

    @cuda.jit
    def store_rows(k, v, k_pool, v_pool, slots, pieces):  # noqa: ANN001, ANN202
        row = np.int64(cuda.blockIdx.x) * WARPS + cuda.threadIdx.x // 32
        lane = cuda.threadIdx.x % 32
        if row >= slots.shape[0]:
            return
        slot = np.int64(slots[row])  # C16
        if slot < 0:
            return  # a padding row

        held_k = cuda.local.array(held, storage)
        held_v = cuda.local.array(held, storage)
        for first in range(lane, pieces, 32 * IN_FLIGHT):
            for u in range(IN_FLIGHT):
                i = first + 32 * u
                if i < pieces:
                    for part in range(units):
                        held_k[u * units + part] = k[row, i * units + part]
                        held_v[u * units + part] = v[row, i * units + part]
            for u in range(IN_FLIGHT):
                i = first + 32 * u
                if i < pieces:
                    for part in range(units):
                        k_pool[slot, i * units + part] = held_k[u * units + part]
                        v_pool[slot, i * units + part] = held_v[u * units + part]

    return store_rows


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    if call.axes["m"] == 0:
        return  # an empty grid cannot be launched
    arrays = [call[name] for name in ("k", "v", "k_pool", "v_pool")]
    row = call.axes["w"] * arrays[0].itemsize
    bits = row
    for array in arrays:
        bits |= alignment_of(array)
    size = widest_access(bits)
    unit = f"u{min(size, 8)}"
    views = [array.view(unit) for array in arrays]
    blocks = (call.axes["m"] + WARPS - 1) // WARPS
    kernel(size // int(unit[1:]), unit)[blocks, WARPS * 32](*views, call["slots"], row // size)
