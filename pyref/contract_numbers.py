"""Rounded operations, maxima and sums of the contract (C1-C3, C5-C8), on NumPy arrays.

Everything here takes and gives binary32 arrays (or scalars) that broadcast, unless said otherwise. Results are new arrays. A NaN inside
may carry any payload; it becomes the one pattern of C9 where ``from_f32`` or ``canonical_nan`` lets it out. Warnings about overflow,
division by 0 and invalid operands are silenced in the contract's functions: infinities and NaN are results like any other.

Import these names from ``pyref.contract``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]


def quiet() -> np.errstate:
    """A fresh NumPy error state that lets infinities and NaN pass; as a decorator or in a ``with``."""
    return np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")


def as_f32(x: ArrayLike) -> F32:
    """``x`` as it is if it is binary32, an error otherwise: a silent float64 or float16 operand would round at other places (C1)."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        raise TypeError(f"the contract computes in float32; got {array.dtype} of shape {array.shape}")
    return array


# --- C1, C2, C5: one rounding each ---


@quiet()
def mul(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a * b)."""
    return np.multiply(as_f32(a), as_f32(b))


@quiet()
def add(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a + b)."""
    return np.add(as_f32(a), as_f32(b))


@quiet()
def sub(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a - b)."""
    return np.subtract(as_f32(a), as_f32(b))


@quiet()
def div(a: ArrayLike, b: ArrayLike) -> F32:
    """RN(a / b), C5."""
    return np.divide(as_f32(a), as_f32(b))


@quiet()
def sqrt(x: ArrayLike) -> F32:
    """RN(sqrt(x)), C5; NaN below -0."""
    return np.sqrt(as_f32(x))


# --- C3: fma ---

_MIDPOINT_MASK: Final = np.uint64(0x1FFFFFFF)  # the 29 bits of a binary64 fraction that a normal binary32 does not have
_MIDPOINT: Final = np.uint64(0x10000000)
_LEAST_NORMAL: Final = 2.0**-126


def _round_to_odd_sum(product: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """product + c in binary64, rounded to odd: an inexact sum never looks like a midpoint of binary32."""
    total = np.add(product, c)
    # TwoSum: total + error == product + c exactly, wherever total is finite
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    move = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)  # an inexact sum is never 0
    step = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))  # away from 0 or towards it
    return np.where(move, bits + step, bits).view(np.float64)


@quiet()
def fma_exact(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """RN(a * b + c) with one rounding, C3 as it is written; the plain twin of ``fma``."""
    a, b, c = np.broadcast_arrays(as_f32(a), as_f32(b), as_f32(c))
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 48 bits, exponents within binary64
    return _round_to_odd_sum(product, c.astype(np.float64)).astype(np.float32)[()]


_BLOCK: Final = 1 << 14
"""Elements that are computed together where arrays are large: their binary64 scratch stays in a core's cache."""


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Leading slices that cut an array of this shape into parts of up to ``_BLOCK`` elements, in order."""
    size = math.prod(shape)
    if size <= _BLOCK:
        yield ()
        return
    row = size // shape[0]
    if row > _BLOCK:
        for i in range(shape[0]):
            for rest in _blocks(shape[1:]):
                yield (slice(i, i + 1), *rest)
    else:
        for i in range(0, shape[0], _BLOCK // row):
            yield (slice(i, i + _BLOCK // row),)


def _part(x: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
    """The block of an array that has the rank of the result and broadcasts to it."""
    return x[tuple(cut if size > 1 else slice(None) for cut, size in zip(block, x.shape, strict=False))]


def _short(x: F32) -> bool:
    """Whether every value has at most 12 significant bits, as f16, bf16 and fp8 have, and lies in [2^-62, 2^64) or is 0, infinite or NaN.

    The product of two such values is exact in binary32: 24 bits, the last not below 2^-146, and less than 2^128.
    """
    bits = x.view(np.uint32)
    if (bits & np.uint32(0xFFF)).any():
        return False
    magnitude = bits & np.uint32(0x7FFFFFFF)
    inside = magnitude - np.uint32(65 << 23) < np.uint32((191 - 65) << 23)  # exponent fields 65 to 190
    return bool(inside.all()) or bool((inside | (magnitude == 0) | (magnitude >= 0x7F800000)).all())


def _fma_short(a: F32, b: F32, c: F32, out: F32) -> None:
    """out = RN(a * b + c) for a block of operands that are ``_short``: their product is exact, so that the sum is the only rounding."""
    np.add(np.multiply(a, b), c, out=out)


def _fma_any(a: F32, b: F32, c: F32, out: F32) -> None:
    """out = RN(a * b + c) for a block.

    A binary64 sum rounded again to binary32 differs from one rounding only where it sits on a midpoint of binary32; below 2^-126 midpoints
    lie elsewhere. Those elements alone are computed again, as C3 is written.
    """
    total = np.multiply(a, b, dtype=np.float64)  # exact
    total = np.add(total, c, out=total if total.shape == out.shape else None)
    doubtful = (total.view(np.uint64) & _MIDPOINT_MASK) == _MIDPOINT
    doubtful |= np.abs(total) < _LEAST_NORMAL
    if doubtful.any():
        doubtful &= total != 0  # a zero sum of binary64 is exact
        operands = (np.broadcast_to(x, out.shape)[doubtful] for x in (a, b, c))
        again = fma_exact(*operands)
        np.copyto(out, total, casting="same_kind")
        out[doubtful] = again
    else:
        np.copyto(out, total, casting="same_kind")


@quiet()
def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """RN(a * b + c) with one rounding (C3), byte for byte ``fma_exact`` except for NaN payloads."""
    operands = [as_f32(x) for x in (a, b, c)]
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    rank = max(1, len(shape))
    a, b, c = (x.reshape((1,) * (rank - x.ndim) + x.shape) for x in operands)
    out = np.empty(shape or (1,), np.float32)
    for block in _blocks(out.shape):
        x, y = _part(a, block), _part(b, block)
        (_fma_short if _short(x) and _short(y) else _fma_any)(x, y, _part(c, block), out[block])
    return out if shape else out[0]


# --- C6, C7, C8: maxima and sums ---


def running_max(m: ArrayLike, x: ArrayLike) -> F32:
    """x if x > m compares true, else m (C6): a NaN in x never wins. Start from -inf, so that m is never NaN."""
    m, x = as_f32(m), as_f32(x)
    with quiet():
        return np.where(x > m, x, m)[()]


@quiet()
def tree_sum(x: ArrayLike, axis: int = -1) -> F32:
    """Sum of up to 128 values along ``axis``, missing ones +0, by the tree of C7."""
    values = np.moveaxis(as_f32(x), axis, -1)
    count = values.shape[-1]
    if count > 128:
        raise ValueError(f"tree_sum: axis {axis} has {count} values, C7 adds at most 128")
    rows = np.zeros((*values.shape[:-1], 128), np.float32)
    rows[..., :count] = values
    rows = rows.reshape(*values.shape[:-1], 4, 32)  # [..., row, lane]
    for width in (16, 8, 4, 2, 1):
        rows = rows[..., :width] + rows[..., width : 2 * width]
    rows = rows[..., 0]
    return ((rows[..., 0] + rows[..., 2]) + (rows[..., 1] + rows[..., 3]))[()]


_CHAIN_SCRATCH: Final = 1 << 17


def _steps(x: np.ndarray, first: int, last: int, buffer: np.ndarray) -> np.ndarray:
    """Elements first to last of the last axis, that axis moved to the front: each step of a chain then reads contiguous memory."""
    x = x[..., first:last] if x.shape[-1] > 1 else np.broadcast_to(x, (*x.shape[:-1], last - first))
    moved = buffer[: x.size].reshape(x.shape[-1], *x.shape[:-1])
    moved[...] = np.moveaxis(x, -1, 0)
    return moved


@quiet()
def chain(a: ArrayLike, b: ArrayLike, axis: int = -1) -> F32:
    """``acc = +0``, then ``acc = fma(a_i, b_i, acc)`` in ascending i along ``axis`` (C8); a and b broadcast.

    Every element of the axis takes part: leave out those that do not, zeros are not the same. An axis of length 0 gives +0.
    """
    a, b = as_f32(a), as_f32(b)
    rank = max(a.ndim, b.ndim, 1)
    a, b = (x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    (count,) = np.broadcast_shapes((a.shape[axis],), (b.shape[axis],))
    a, b = np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1)
    acc = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), np.float32)
    if acc.ndim == 0:
        a, b, acc = a[None], b[None], acc[None]
    scratch = [np.empty(_CHAIN_SCRATCH, np.float32) for _ in range(2)]
    for block in _blocks(acc.shape):
        part = acc[block]
        left, right = _part(a, block), _part(b, block)
        steps = max(1, _CHAIN_SCRATCH // max(1, part.size))
        for i in range(0, count, steps):
            x, y = (_steps(x, i, min(i + steps, count), buffer) for x, buffer in zip((left, right), scratch, strict=True))
            step = _fma_short if _short(x) and _short(y) else _fma_any
            for x_i, y_i in zip(x, y, strict=True):
                step(x_i, y_i, part, part)
    return acc if rank > 1 else acc[0]
