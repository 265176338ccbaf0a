"""Writes row i of K and V to slot slots[i] of paged caches [pages, slot, g, d], or permuted [pages, g, slot, d]: the definition."""

from __future__ import annotations

from pyref import cache_types, cache_write, row_tiles
from pyref.cache_types import FLOATS, FP8
from pyref.cache_write import INDEX
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, itemsize, reference


def _grid(call: Call) -> None:
    row_tiles.fits(call, "slots", "m", RowTiles(call.axes["m"], call.axes["g"] * call.axes["d"]))


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    return 2 * row_tiles.steps(RowTiles(call.axes["m"], -(-call.axes["g"] * call.axes["d"] // piece)), piece)


SPEC = Kernel(
    stem="reshape_and_cache_flash",
    does="writes row i of K and V to slot slots[i] of paged caches [pages, slot, g, d], or permuted [pages, g, slot, d]",
    args={
        **cache_write.ROWS,
        "k_cache": Tensor("pages page g | d", "C", "cache of K: only slots that are named are written", role="inout"),
        "v_cache": Tensor("pages page g | d", "C", "cache of V: only slots that are named are written", role="inout"),
        **cache_write.SLOTS,
        **cache_types.SCALES,
    },
    dtypes={"T": FLOATS, "C": (*FLOATS, *FP8), "I": INDEX},
    constants={"SB_T": "T", "SB_C": "C", "SB_INDEX": "I"},
    sizes=cache_types.SCALE_SIZES,
    checks=(cache_write.shapes, cache_types.check("k"), _grid, cache_write.memory),
    values=(cache_write.slots,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Writes ``k[i]`` and ``v[i]`` to slot ``slots[i]`` of ``k_cache`` and ``v_cache`` for every i < m whose slot is not -1.

    k, v: [n, g, d], f32, f16 or bf16, heads dense, other strides free; k_cache, v_cache: [pages, page, g, d], heads dense, other strides
    free, so a cache [pages, g, page, d] is given as its permuted view; both of the dtype of k, which keeps every bit, or both e4m3 or
    e5m2, with k_scale and v_scale: f32, [1] or [g] (C11: one division, then nearest even, saturating; NaN by C9). Any head size. slots:
    [m], int32 or int64, m <= n. Nothing but the named slots is written.

    Returns (k_cache, v_cache), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes, dtypes,
    strides, scales, m > n, caches that overlap each other or an input; with ``checked`` also slots outside the caches and slots that stand
    twice. Without it every negative slot is skipped, and what a slot beyond the caches or one that stands twice does is not defined.
    """
    cache_write.fill(call)
