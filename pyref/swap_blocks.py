"""Copies pages of one cache to pages of another, each on the device or in host memory: the definition. It serves swapping out and in."""

from __future__ import annotations

from pyref import checks, row_tiles
from pyref.cache_write import bits
from pyref.copy_blocks import outside, repeated
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, itemsize, reference


def _shapes(call: Call) -> None:
    checks.at_least_one(call, "src", "w")


def _memory(call: Call) -> None:
    checks.separate(call, "dst", ("src", "pairs"))


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    return row_tiles.steps(RowTiles(call.axes["m"], -(-call.axes["w"] // piece)), piece)


def _pairs(call: Call) -> None:
    outside(call, 0, call.axes["pages_src"], "src")
    outside(call, 1, call.axes["pages_dst"], "dst")
    repeated(call)


SPEC = Kernel(
    stem="swap_blocks",
    does="copies pages of one cache to pages of another, bit for bit; each cache may lie on the device or in host memory",
    args={
        "src": Tensor("pages_src | w", "T", "the cache that is read, all of a page as one axis", where="any"),
        "dst": Tensor("pages_dst | w", "T", "the cache that is written: only pages that are named", role="inout", where="any"),
        "pairs": Tensor("m 2", "i64", "from page and to page; no page is written twice", where="host"),
    },
    dtypes={"T": ("f32", "f16", "bf16", "e4m3", "e5m2")},
    constants={"SB_T": "T"},
    checks=(_shapes, _memory),
    values=(_pairs,),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Copies page ``pairs[i, 0]`` of ``src`` to page ``pairs[i, 1]`` of ``dst``, for every i.

    src: [pages_src, w], dst: [pages_dst, w], f32, f16, bf16, e4m3 or e5m2, pages dense, their strides free (a cache of more axes is
    reshaped by the caller; w is the number of elements of a page); pairs: [m, 2], int64. Every bit is kept. With a GPU each of the caches
    may lie on the device or in host memory; the pairs lie in host memory. The call reads the pairs, waits for nothing and leaves the copies
    to the stream: a cache in host memory must be left alone until the stream has done them (pageable memory makes the call wait itself, and
    takes a copy for each run of pages).

    Returns dst, which is the array given. Raises TypeError or ValueError before anything is written: shapes, dtypes, strides, a dst that
    overlaps src or the pairs; with ``checked`` also pages outside the caches and pages that are written twice. Without it, what those do is
    not defined.
    """
    pairs = call["pairs"]
    bits(call["dst"])[pairs[:, 1]] = bits(call["src"])[pairs[:, 0]]
