"""Packs contiguous K and V into paged caches by a block table, and back. Bits are kept, whatever the dtype; nothing is computed.

Contiguous K or V holds the tokens of all sequences one after another: [tokens, g, d], where sequence n has ``lengths[n]`` of them.
Token t of sequence n lies in page ``block_table[n, t // page]``, slot ``t % page``. Two layouts, by the names of their axes:

- classic (paged_attention_v1 and _v2): K [pages, g, d/x, page, x] with x = 16 / element size, V [pages, g, d, page];
- NHD: K and V [pages, page, g, d].

``pack_*`` writes into the caches it is given and leaves the other slots as they are, or makes caches filled with poison.
``unpack_*`` is its inverse. Both read the block table no further than the lengths reach, so its other entries may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
_VECTOR = 16  # bytes of a vector of the classic K layout


def vector_elements(dtype: np.dtype) -> int:
    """x of the classic K layout: elements of ``dtype`` in 16 bytes."""
    return _VECTOR // np.dtype(dtype).itemsize


@dataclass(frozen=True)
class _Slots:
    """For every token of all sequences: its page and its slot there."""

    pages: Array
    slots: Array


def _integers(what: str, values: ArrayLike, axes: int) -> Array:
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)  # an empty list has no type
    if array.dtype.kind not in "iu":
        raise TypeError(f"layout: {what}: got {array.dtype}, expected integers")
    if array.ndim != axes:
        raise ValueError(f"layout: {what}: got {array.ndim} axes {array.shape}, expected {axes}")
    return array.astype(np.int64)


def _place(lengths: ArrayLike, block_table: ArrayLike, page: int, pages: int) -> _Slots:
    """Where every token lies. Raises ValueError for lengths or page ids that cannot be."""
    lengths = _integers("lengths", lengths, 1)
    table = _integers("block_table", block_table, 2)
    if table.shape[0] != lengths.size:
        raise ValueError(f"layout: block_table: axis n: got {table.shape[0]}, expected {lengths.size} (from lengths)")
    if (lengths < 0).any():
        n = int(np.argmax(lengths < 0))
        raise ValueError(f"layout: lengths: sequence {n}: got {lengths[n]}, expected at least 0")
    reach = table.shape[1] * page
    if (lengths > reach).any():
        n = int(np.argmax(lengths > reach))
        text = f"got {lengths[n]}, expected at most {reach} ({table.shape[1]} pages of {page}, from block_table)"
        raise ValueError(f"layout: lengths: sequence {n}: {text}")
    sequence = np.repeat(np.arange(lengths.size), lengths)
    token = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = table[sequence, token // page]
    wrong = (ids < 0) | (ids >= pages)
    if wrong.any():
        at = int(np.argmax(wrong))
        where = f"sequence {sequence[at]}, entry {token[at] // page}"
        raise ValueError(f"layout: block_table: {where}: got page {ids[at]}, expected 0 to {pages - 1}")
    return _Slots(ids, token % page)


def _bits(array: Array) -> Array:
    """The same elements as unsigned integers: assignments between them keep every bit."""
    return array.view(f"u{array.itemsize}")


def _rows(what: str, rows: Array, tokens: int | None, like: Array | None = None) -> None:
    if not isinstance(rows, np.ndarray) or rows.ndim != 3:
        got = f"{rows.ndim} axes {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ValueError(f"layout: {what}: got {got}, expected an array [tokens, g, d]")
    if tokens is not None and rows.shape[0] != tokens:
        raise ValueError(f"layout: {what}: axis tokens: got {rows.shape[0]}, expected {tokens} (sum of lengths)")
    if like is not None and rows.shape != like.shape:
        raise ValueError(f"layout: {what}: got {rows.shape}, expected {like.shape} (from k)")
    if like is not None and rows.dtype != like.dtype:
        raise TypeError(f"layout: {what}: got {rows.dtype}, expected {like.dtype} (from k)")


def _cache(what: str, cache: Array, shape: tuple[int | None, ...], dtype: np.dtype, *, written: bool = False) -> None:
    """Checks a cache's dtype and those sizes that are known, and that it can be written where it will be."""
    if not isinstance(cache, np.ndarray) or cache.ndim != len(shape):
        got = f"{cache.ndim} axes {cache.shape}" if isinstance(cache, np.ndarray) else type(cache).__name__
        raise ValueError(f"layout: {what}: got {got}, expected an array of {len(shape)} axes")
    for axis, (got, expected) in enumerate(zip(cache.shape, shape, strict=True)):
        if expected is not None and got != expected:
            raise ValueError(f"layout: {what}: axis {axis}: got {got}, expected {expected}")
    if cache.dtype != dtype:
        raise TypeError(f"layout: {what}: got {cache.dtype}, expected {dtype}")
    if written and not cache.flags.writeable:
        raise ValueError(f"layout: {what}: got a read-only array, expected a writable one")


def _poisoned(shape: tuple[int, ...], dtype: np.dtype, poison: int) -> Array:
    if not 0 <= poison <= 0xFF:
        raise ValueError(f"layout: poison: got {poison}, expected a byte")
    return np.full((*shape[:-1], shape[-1] * dtype.itemsize), poison, np.uint8).view(dtype)


def _agree(rows: Array, place: _Slots, page: int) -> None:
    """Sequences may share a page (a common prefix) if they put the same bits there; otherwise chance would choose the winner."""
    key = place.pages * page + place.slots
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    differs = (_bits(rows) != _bits(rows)[first[inverse]]).any(axis=(1, 2))
    if differs.any():
        at = int(np.argmax(differs))
        text = f"tokens {first[inverse[at]]} and {at} (of all sequences) both go to page {place.pages[at]}, slot {place.slots[at]}"
        raise ValueError(f"layout: block_table: {text}, expected the same bits or pages of their own")


def _pack(k: Array, v: Array, lengths: ArrayLike, block_table: ArrayLike, page: int, pages: int) -> _Slots:
    _rows("k", k, int(_integers("lengths", lengths, 1).sum()))
    _rows("v", v, None, k)
    place = _place(lengths, block_table, page, pages)
    _agree(k, place, page)
    _agree(v, place, page)
    return place


def _sizes(page: int | None, pages: int | None, caches: tuple[Array | None, Array | None], axes: int, page_axis: int) -> tuple[int, int]:
    """(page, pages), from the caches or from the arguments."""
    k_cache, v_cache = caches
    if (k_cache is None) != (v_cache is None):
        raise ValueError("layout: got one of k_cache and v_cache, expected both or neither")
    if k_cache is not None:
        _cache("k_cache", k_cache, (None,) * axes, k_cache.dtype if isinstance(k_cache, np.ndarray) else np.dtype(np.uint8))
        sizes = k_cache.shape[page_axis], k_cache.shape[0]
        for what, got, expected in (("page", page, sizes[0]), ("pages", pages, sizes[1])):
            if got not in (None, expected):
                raise ValueError(f"layout: {what}: got {got}, expected {expected} (from k_cache)")
        page, pages = sizes
    if page is None or pages is None:
        raise ValueError("layout: got no caches, expected page and pages to make them")
    if page < 1 or pages < 0:
        raise ValueError(f"layout: got page {page} and pages {pages}, expected at least 1 and 0")
    return page, pages


def pack_classic(
    k: Array,
    v: Array,
    lengths: ArrayLike,
    block_table: ArrayLike,
    *,
    k_cache: Array | None = None,
    v_cache: Array | None = None,
    page: int | None = None,
    pages: int | None = None,
    poison: int = 0xFF,
) -> tuple[Array, Array]:
    """Packs k, v [tokens, g, d] into K [pages, g, d/x, page, x] and V [pages, g, d, page], x = 16 / element size.

    ``lengths`` [n], ``block_table`` [n, blocks]: integers. Give ``k_cache`` and ``v_cache`` (any strides) to write into them, or ``page``
    and ``pages`` to get caches whose every other byte is ``poison`` (0xFF: NaN in every float type). Returns (k_cache, v_cache). Raises
    TypeError or ValueError, with nothing written: shapes and dtypes, d no multiple of x, a length beyond the table, a page id outside
    the cache, different bits for one slot.
    """
    page, pages = _sizes(page, pages, (k_cache, v_cache), 5, 3)
    place = _pack(k, v, lengths, block_table, page, pages)
    (tokens, g, d), x = k.shape, vector_elements(k.dtype)
    if d % x:
        raise ValueError(f"layout: k: axis d: got {d}, expected a multiple of {x} (16 bytes of {k.dtype})")
    shapes = (pages, g, d // x, page, x), (pages, g, d, page)
    if k_cache is None or v_cache is None:
        k_cache, v_cache = (_poisoned(shape, k.dtype, poison) for shape in shapes)
    for what, cache, shape in (("k_cache", k_cache, shapes[0]), ("v_cache", v_cache, shapes[1])):
        _cache(what, cache, shape, k.dtype, written=True)
    _bits(k_cache)[place.pages, :, :, place.slots] = _bits(k).reshape(tokens, g, d // x, x)
    _bits(v_cache)[place.pages, :, :, place.slots] = _bits(v)
    return k_cache, v_cache


def unpack_classic(k_cache: Array, v_cache: Array, lengths: ArrayLike, block_table: ArrayLike) -> tuple[Array, Array]:
    """The inverse of ``pack_classic``: (k, v), each [tokens, g, d], of the sequences that ``lengths`` and ``block_table`` name.

    Raises TypeError or ValueError: shapes and dtypes, a length beyond the table, a page id outside the cache.
    """
    page, pages = _sizes(None, None, (k_cache, v_cache), 5, 3)
    g, vectors, x = k_cache.shape[1], k_cache.shape[2], vector_elements(k_cache.dtype)
    _cache("k_cache", k_cache, (pages, g, vectors, page, x), k_cache.dtype)
    _cache("v_cache", v_cache, (pages, g, vectors * x, page), k_cache.dtype)
    place = _place(lengths, block_table, page, pages)
    k = k_cache[place.pages, :, :, place.slots].reshape(-1, g, vectors * x)
    return k, v_cache[place.pages, :, :, place.slots]


def pack_nhd(
    k: Array,
    v: Array,
    lengths: ArrayLike,
    block_table: ArrayLike,
    *,
    k_cache: Array | None = None,
    v_cache: Array | None = None,
    page: int | None = None,
    pages: int | None = None,
    poison: int = 0xFF,
) -> tuple[Array, Array]:
    """Packs k, v [tokens, g, d] into K and V [pages, page, g, d]; arguments, result and errors as of ``pack_classic``, any d."""
    page, pages = _sizes(page, pages, (k_cache, v_cache), 4, 1)
    place = _pack(k, v, lengths, block_table, page, pages)
    shape = (pages, page, *k.shape[1:])
    if k_cache is None or v_cache is None:
        k_cache, v_cache = (_poisoned(shape, k.dtype, poison) for _ in range(2))
    for what, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _cache(what, cache, shape, k.dtype, written=True)
    for cache, rows in ((k_cache, k), (v_cache, v)):
        _bits(cache)[place.pages, place.slots] = _bits(rows)
    return k_cache, v_cache


def unpack_nhd(k_cache: Array, v_cache: Array, lengths: ArrayLike, block_table: ArrayLike) -> tuple[Array, Array]:
    """The inverse of ``pack_nhd``: (k, v), each [tokens, g, d]; errors as of ``unpack_classic``."""
    page, pages = _sizes(None, None, (k_cache, v_cache), 4, 1)
    _cache("v_cache", v_cache, k_cache.shape, k_cache.dtype)
    place = _place(lengths, block_table, page, pages)
    return k_cache[place.pages, place.slots], v_cache[place.pages, place.slots]
