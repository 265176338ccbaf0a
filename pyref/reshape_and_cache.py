"""Writes row i of K and V to slot slots[i] of paged caches in the layout of the classic attention kernels: the definition.

Layout: K [pages, g, d/x, page, x] with x = 16 / element size, V [pages, g, d, page] ("Efficient Memory Management for Large Language Model
Serving with PagedAttention", Kwon et al. 2023, and its published kernels).
"""

from __future__ import annotations

import numpy as np

from pyref import cache_types, cache_write, checks
from pyref.cache_types import FLOATS, FP8
from pyref.cache_write import INDEX
from pyref.spec import Call, Kernel, Tensor, itemsize, reference

VECTOR = 16  # bytes that lie together in K
TILE_ROWS = 32  # rows that a block of the CUDA kernel takes


def tile_columns(rows: str, cache: str) -> int:
    """Elements that a block of the CUDA kernel takes of each row, for the dtypes of rows and cache."""
    return (256 if rows == cache else 512) // itemsize(rows)


def _across(call: Call) -> int:
    return -(-call.axes["g"] * call.axes["d"] // tile_columns(call.dtypes["T"], call.dtypes["C"]))


def _grid(call: Call) -> None:
    most = checks.GRID_X // _across(call) * TILE_ROWS
    if call.axes["m"] > most:
        raise call.error(ValueError, "slots", f"axis m: got {call.axes['m']}, expected at most {most} (grid)")


def _work(call: Call) -> int:
    row = call.axes["g"] * call.axes["d"]
    tiles = -(-call.axes["m"] // TILE_ROWS) * _across(call)
    return 2 * (tiles * 3_500 + call.axes["m"] * row * (4 if call.dtypes["T"] == call.dtypes["C"] else 8))


SPEC = Kernel(
    stem="reshape_and_cache",
    does="writes row i of K and V to slot slots[i] of paged caches, K [pages, g, d/x, page, x], V [pages, g, d, page]",
    args={
        **cache_write.ROWS,
        "k_cache": Tensor("pages g | d/x page x", "C", "cache of K: only slots that are named are written", role="inout", align=VECTOR),
        "v_cache": Tensor("pages g | d page", "C", "cache of V: only slots that are named are written", role="inout"),
        **cache_write.SLOTS,
        **cache_types.SCALES,
    },
    dtypes={"T": FLOATS, "C": (*FLOATS, *FP8), "I": INDEX},
    constants={"SB_T": "T", "SB_C": "C", "SB_INDEX": "I"},
    derived={"x": cache_types.x("k")},
    sizes=cache_types.SCALE_SIZES,
    checks=(cache_write.shapes, cache_types.check("k"), _grid, cache_write.memory),
    values=(cache_write.slots,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Writes ``k[i]`` and ``v[i]`` to slot ``slots[i]`` of ``k_cache`` and ``v_cache`` for every i < m whose slot is not -1.

    k, v: [n, g, d], f32, f16 or bf16, heads dense, other strides free; k_cache: [pages, g, d/x, page, x], x = 16 / element size;
    v_cache: [pages, g, d, page]; both of the dtype of k, which keeps every bit, or both e4m3 or e5m2, with k_scale and v_scale: f32, [1] or
    [g] (C11: one division, then nearest even, saturating; NaN by C9). Strides of pages and heads are free, those of k_cache multiples of
    16 bytes. slots: [m], int32 or int64, m <= n. Nothing but the named slots is written.

    Returns (k_cache, v_cache), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes, dtypes,
    strides, alignment of k_cache, d that x does not divide, scales, m > n, caches that overlap each other or an input; with ``checked``
    also slots outside the caches and slots that stand twice. Without it every negative slot is skipped, and what a slot beyond the caches
    or one that stands twice does is not defined.
    """
    x = call.axes["x"]

    def within(name: str, values: np.ndarray) -> np.ndarray:
        return values.reshape(*values.shape[:-1], call.axes["d"] // x, x) if name == "k" else values

    cache_write.fill(call, within)
