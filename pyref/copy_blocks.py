"""Copies pages of K and V to other pages of the same caches: the definition. It serves copy-on-write of shared pages."""

from __future__ import annotations

import numpy as np

from pyref import checks, row_tiles
from pyref.cache_write import bits
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, itemsize, reference


def _shapes(call: Call) -> None:
    checks.at_least_one(call, "k_cache", "w")
    row_tiles.fits(call, "pairs", "m", RowTiles(call.axes["m"], call.axes["w"]))


def _memory(call: Call) -> None:
    checks.separate(call, "k_cache", ("v_cache", "pairs"))
    checks.separate(call, "v_cache", ("pairs",))


def outside(call: Call, column: int, pages: int, source: str) -> None:
    """Refuses pairs with a page outside ``pages`` in a column. Raises ValueError."""
    ids = call["pairs"][:, column]
    wrong = np.flatnonzero((ids < 0) | (ids >= pages))
    if wrong.size:
        at = int(wrong[0])
        text = f"pair {at}: got {('from', 'to')[column]} page {ids[at]}, expected 0 to {pages - 1} (from {source})"
        raise call.error(ValueError, "pairs", text)


def repeated(call: Call) -> None:
    """Refuses pairs that write a page twice. Raises ValueError."""
    to = call["pairs"][:, 1]
    order = np.argsort(to, kind="stable")
    twice = np.flatnonzero(to[order][1:] == to[order][:-1])
    if twice.size:
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        text = f"got page {to[first]} written by pair {first} and by pair {second}, expected every page once: they have no defined order"
        raise call.error(ValueError, "pairs", text)


def _pairs(call: Call) -> None:
    for column in (0, 1):
        outside(call, column, call.axes["pages"], "k_cache")
    repeated(call)
    pairs = call["pairs"]
    writer = np.full(call.axes["pages"], -1, np.int64)
    writer[pairs[:, 1]] = np.arange(len(pairs))
    chained = np.flatnonzero(writer[pairs[:, 0]] >= 0)
    if chained.size:
        reads = int(chained[0])
        page, writes = int(pairs[reads, 0]), int(writer[pairs[reads, 0]])
        text = f"got page {page} read by pair {reads} and written by pair {writes}, expected no chain: pairs have no defined order"
        raise call.error(ValueError, "pairs", text)


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    return (1 if call["v_cache"] is None else 2) * row_tiles.steps(RowTiles(call.axes["m"], -(-call.axes["w"] // piece)), piece)


SPEC = Kernel(
    stem="copy_blocks",
    does="copies pages of K and V to other pages of the same caches, bit for bit",
    args={
        "k_cache": Tensor("pages | w", "T", "cache of K, all of a page as one axis: only pages that are named are written", role="inout"),
        "v_cache": Tensor("pages | w", "T", "cache of V; may be absent", role="inout", optional=True),
        "pairs": Tensor("m 2", "i64", "from page and to page; no page is written twice, none is both read and written"),
    },
    dtypes={"T": ("f32", "f16", "bf16", "e4m3", "e5m2")},
    constants={"SB_T": "T"},
    checks=(_shapes, _memory),
    values=(_pairs,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Copies page ``pairs[i, 0]`` to page ``pairs[i, 1]`` of ``k_cache`` and, where given, of ``v_cache``, for every i.

    k_cache, v_cache: [pages, w], f32, f16, bf16, e4m3 or e5m2, pages dense, their stride free (a cache of more axes is reshaped by the
    caller; w is the number of elements of a page); pairs: [m, 2], int64, any number of them. Every bit is kept.

    Returns k_cache, or (k_cache, v_cache), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes,
    dtypes, strides, caches that overlap each other or the pairs, a grid beyond its limit; with ``checked`` also pages outside the caches,
    pages that are written twice, and pages that are both read and written (a to b and b to c in one call). Without it, what those do is
    not defined.
    """
    pairs = call["pairs"]
    for name in ("k_cache", "v_cache"):
        if call[name] is not None:
            cache = bits(call[name])
            cache[pairs[:, 1]] = cache[pairs[:, 0]]
