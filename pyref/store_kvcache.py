"""Writes row i of K and V, which may be slices of a fused qkv, to slot slots[i] of paged caches [pages, g, slot, d]: the definition."""

from __future__ import annotations

from pyref import cache_write, row_tiles
from pyref.cache_types import FLOATS
from pyref.cache_write import INDEX
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, itemsize, reference


def _grid(call: Call) -> None:
    row_tiles.fits(call, "slots", "m", RowTiles(call.axes["m"], call.axes["g"] * call.axes["d"]))


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    return 2 * row_tiles.steps(RowTiles(call.axes["m"], -(-call.axes["g"] * call.axes["d"] // piece)), piece)


SPEC = Kernel(
    stem="store_kvcache",
    does="writes row i of K and V, which may be slices of a fused qkv, to slot slots[i] of paged caches [pages, g, slot, d]",
    args={
        **cache_write.ROWS,
        "k_cache": Tensor("pages g page | d", "T", "cache of K: only slots that are named are written", role="inout"),
        "v_cache": Tensor("pages g page | d", "T", "cache of V: only slots that are named are written", role="inout"),
        **cache_write.SLOTS,
    },
    dtypes={"T": FLOATS, "I": INDEX},
    constants={"SB_T": "T", "SB_INDEX": "I"},
    checks=(cache_write.shapes, _grid, cache_write.memory),
    values=(cache_write.slots,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Writes ``k[i]`` and ``v[i]`` to slot ``slots[i]`` of ``k_cache`` and ``v_cache`` for every i < m whose slot is not -1.

    k, v: [n, g, d], f32, f16 or bf16, heads dense, other strides free, such as ``qkv[:, :, 1]`` and ``qkv[:, :, 2]`` of a qkv [n, g, 3, d]
    or slices of a qkv [n, h + 2 g, d]; k_cache, v_cache: [pages, g, page, d] of the same dtype, heads dense, other strides free; slots:
    [m], int32 or int64, m <= n. Any head size. Every bit is kept, and nothing but the named slots is written.

    Returns (k_cache, v_cache), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes, dtypes,
    strides, m > n, caches that overlap each other or an input; with ``checked`` also slots outside the caches and slots that stand twice.
    Without it every negative slot is skipped, and what a slot beyond the caches or one that stands twice does is not defined.
    """
    cache_write.fill(call)
