"""Merges two attention states of every (token, head) into one: the numba port of ``kernels_cu/merge_attn_states.cu``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, from_dtype

from emu import contract as c
from emu.access import alignment_of, widest_access
from emu.simt import device
from pyref.spec import Call

THREADS = 256
PACKS = 4  # packs a thread may own: all are loaded before the first is stored
FEW_PACKS = 1 << 18  # up to here every pack gets a thread of its own


@device
def weights(prefix_lse, suffix_lse):  # noqa: ANN001, ANN201
    """(weight of the prefix, weight of the suffix, the sum s, m) where both take part."""
    top = c.running_max(prefix_lse, suffix_lse)
    e_prefix = c.exp(c.sub(prefix_lse, top))
    e_suffix = c.exp(c.sub(suffix_lse, top))
    total = c.add(e_prefix, e_suffix)
    return c.div(e_prefix, total), c.div(e_suffix, total), total, top  # C5


@functools.cache
def kernel(dtype: str, elements: int) -> Any:
    """The kernel for one dtype and packs of so many elements. 16-bit floats are uint16 here."""
    to_f32, from_f32 = c.TO_F32[dtype], c.FROM_F32[dtype]
    storage, held = from_dtype(np.dtype(np.float32 if dtype == "f32" else np.uint16)), PACKS * elements

    @cuda.jit
    def merge_rows(out, out_lse, prefix_out, prefix_lse, suffix_out, suffix_lse, lanes):  # noqa: ANN001, ANN202
        thread = np.int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        row = thread // lanes
        lane = thread - row * lanes
        if row >= out.shape[0] * out.shape[1]:
            return
        n = row // out.shape[1]
        h = row - n * out.shape[1]
        packs = out.shape[2] // elements

        a, b = prefix_lse[h, n], suffix_lse[h, n]
        unknown = a != a or b != b  # Merge: a NaN LSE gives NaN, whatever the other side is
        prefix = not unknown and c.fabs(a) != c.INF  # Merge: +inf and -inf both mean empty
        suffix = not unknown and c.fabs(b) != c.INF
        both = prefix and suffix
        weight_prefix, weight_suffix, total, top = weights(a, b) if both else (c.ZERO, c.ZERO, c.ONE, c.ZERO)
        rest = c.NAN if unknown else c.ZERO

        held_prefix = cuda.local.array(held, storage)
        held_suffix = cuda.local.array(held, storage)
        for u in range(PACKS):
            pack = lane + u * lanes
            if pack < packs:
                for i in range(elements):
                    if prefix:
                        held_prefix[u * elements + i] = prefix_out[n, h, pack * elements + i]
                    if suffix:
                        held_suffix[u * elements + i] = suffix_out[n, h, pack * elements + i]
        for u in range(PACKS):
            pack = lane + u * lanes
            if pack < packs:
                for i in range(elements):
                    value = rest
                    if both:  # Merge: RN(RN(o_a * w_a) + RN(o_b * w_b))
                        o_prefix = to_f32(held_prefix[u * elements + i])
                        o_suffix = to_f32(held_suffix[u * elements + i])
                        value = c.add(c.mul(o_prefix, weight_prefix), c.mul(o_suffix, weight_suffix))
                    elif prefix:
                        value = to_f32(held_prefix[u * elements + i])
                    elif suffix:
                        value = to_f32(held_suffix[u * elements + i])
                    out[n, h, pack * elements + i] = from_f32(value)  # C9, C11
        if lane == 0 and out_lse.shape[0] > 0:
            lse = c.NAN if unknown else c.neg(c.INF)
            if both:
                lse = c.add(c.log(total), top)
            elif prefix or suffix:
                lse = a if prefix else b
            out_lse[h, n] = c.canonical_nan(lse)  # C9

    return merge_rows


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    n, h, d, dtype = call.axes["n"], call.axes["h"], call.axes["d"], call.dtypes["T"]
    if n == 0 or h == 0:
        return  # an empty grid cannot be launched
    out, prefix_out, suffix_out = (call[name] for name in ("out", "prefix_out", "suffix_out"))
    bits = d * out.itemsize
    for array in (out, prefix_out, suffix_out):
        bits |= alignment_of(array)
    elements = widest_access(bits) // out.itemsize
    if dtype != "f32":
        out, prefix_out, suffix_out = (array.view(np.uint16) for array in (out, prefix_out, suffix_out))
    out_lse = call["out_lse"] if call["out_lse"] is not None else np.empty((0, 0), np.float32)

    packs = d // elements
    lanes = packs if n * h * packs <= FEW_PACKS else (packs + PACKS - 1) // PACKS
    blocks = (n * h * lanes + THREADS - 1) // THREADS
    kernel(dtype, elements)[blocks, THREADS](out, out_lse, prefix_out, call["prefix_lse"], suffix_out, call["suffix_lse"], lanes)
