"""What specialises paged_decode and how a block shares out its work: the names of ``kernels_cu/decode_shape.cuh``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from emu.simt import device
from pyref.paged_decode import SPAN, TILE
from pyref.spec import Array, Call, itemsize

THREADS = 128
ALL = 0xFFFFFFFF


def unit_of(n: int, most: int) -> int:
    """The largest power of two up to ``most`` that is not above n; at least 1."""
    unit = 1
    while 2 * unit <= n and 2 * unit <= most:
        unit *= 2
    return unit


@dataclass(frozen=True)
class Shape:
    """One specialisation. ``dtype`` of q and out, ``cache`` of K and V; ``group``: query heads of a kv head; ``rows``: a token's V
    lies side by side; ``warps`` share a tile."""

    dtype: str
    cache: str
    d: int
    page: int
    group: int
    rows: int
    warps: int

    @property
    def head_blocks(self) -> int:
        """Blocks that share a kv head."""
        return -(-self.group // (2 if self.warps == 4 else 4 if self.d > 128 else 8))

    @property
    def heads(self) -> int:
        """Heads of a block; the last block of a kv head may have fewer."""
        return -(-self.group // self.head_blocks)

    @property
    def pad(self) -> int:
        """The same as a power of two: what ``fold`` halves."""
        return self.heads if self.heads <= 2 else -(-self.heads // 4) * 4

    @property
    def x(self) -> int:
        """Elements of a cache in 16 bytes."""
        return 16 // itemsize(self.cache)

    @property
    def elements(self) -> int:
        """Elements of a[h,d] that a thread joins."""
        return -(-self.heads * self.d // THREADS)

    @property
    def table(self) -> int:
        """Pages of a tile."""
        return max(TILE // self.page, 1)

    @property
    def tiles(self) -> int:
        """Tiles at a time."""
        return SPAN // self.warps

    @property
    def tokens(self) -> int:
        """Tokens of a lane in QK."""
        return 4 // self.warps

    @property
    def lanes(self) -> int:
        """Threads that share a tile."""
        return 32 * self.warps

    @property
    def unit(self) -> int:
        """Neighbouring dimensions of a thread in PV."""
        return unit_of(self.d // self.lanes, self.x) if self.rows else 1

    @property
    def units(self) -> int:
        """Such neighbourhoods of a thread; the last may lie beyond d."""
        return -(-self.d // self.unit // self.lanes)

    @property
    def scratch(self) -> int:
        """Floats of a tile that hold p[t,h] first and a[h,d] afterwards."""
        return max(self.pad * TILE, self.heads * self.d)


class Params(NamedTuple):
    """What the kernel is called with; optional arrays that are absent have size 0."""

    out: Any  # [n, h, d]
    lse: Any  # [n, h]
    q: Any  # [n, h, d]
    k_cache: Any  # [pages, g, d/x, page, x]
    v_cache: Any  # [pages, g, d, page]
    block_tables: Any  # [n, max_pages]
    seq_lens: Any  # [n]
    alibi_slopes: Any  # [h]
    sinks: Any  # [h]
    k_scale: Any  # [1] or [g]
    v_scale: Any  # [1] or [g]
    part_a: Any  # [n, h, states, d], unnormalised
    part_l: Any  # [n, h, states]
    part_m: Any  # [n, h, states]
    scale: Any
    scale2: Any
    cap: Any
    window: Any
    split: Any


class Stored(NamedTuple):
    """What says which states of a row are stored."""

    seq_lens: Any  # [n]
    window: Any
    split: Any


class Block(NamedTuple):
    """Shared memory."""

    q: Any  # [d, pad]
    scratch: Any  # [tiles, scratch]: p[t,h], then a[h,d]
    m: Any  # [tiles, pad]
    l: Any  # [tiles, pad]  # noqa: E741
    partial: Any  # [tiles, 4, pad]: maxima of warps, then sums of C7's rows
    weights: Any  # [4 warps, tiles, 2, pad, 2]: of every warp, it walks by itself; of tiles and of spans; so_far and next
    table: Any  # [tiles, table]
    part: Any  # [4]: of balanced parts, what the block takes: sequence, row of it, first unit and end


class Row(NamedTuple):
    """One row of work: what a block needs of sequence n and kv head g."""

    n: Any
    g: Any
    head: Any  # the first query head of this block
    heads: Any  # query heads of this block
    start: Any
    len: Any  # tokens [start, len) take part
    k_scale: Any
    v_scale: Any


class Place(NamedTuple):
    """A tile and this thread's place in it."""

    origin: Any  # first token of the tile
    low: Any
    high: Any  # tokens [low, high) of the tile take part
    slot: Any  # which of the block's tiles it is
    warp: Any  # of those that share the tile
    lane: Any


class Walk(NamedTuple):
    """m and l of a walk (C13.3, C13.4) of the head that is this lane's number."""

    m: Any
    l: Any  # noqa: E741


START = Walk(np.float32(-np.inf), np.float32(0))


@device
def scale_of(scales, kv_head):  # noqa: ANN001, ANN201
    """The scale of a kv head; where the caches are not fp8, a 1 that nobody multiplies by."""
    if scales.shape[0] == 0:
        return np.float32(1)
    return scales[kv_head if scales.shape[0] > 1 else 0]


@device(sim=int)
def index(x: Any) -> np.int64:
    """A number as 64 bits (C16)."""
    return np.int64(x)


def storage(array: Array) -> Array:
    """Floats of 8 and 16 bits as integers, as ports take them."""
    return array.view(f"u{array.itemsize}") if array.itemsize < 4 else array


def params(call: Call) -> Params:
    """The arguments of a call."""
    found = {name: call[name] for name in Params._fields}
    found |= {name: storage(call[name]) for name in ("out", "q", "k_cache", "v_cache")}
    for name, axes in (("lse", 2), ("alibi_slopes", 1), ("sinks", 1), ("k_scale", 1), ("v_scale", 1)):
        if found[name] is None:
            found[name] = np.empty((0,) * axes, np.float32)
    return Params(**found)
