"""The rest of what kernels call on `cuda`: indices, barriers, fences, bits, half precision, cooperative groups."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from emu.simt import arith
from emu.simt.checked import Checked
from emu.simt.functions import stored
from emu.simt.state import S, blockDim, blockIdx, gridDim, threadIdx

f16 = np.float16


def grid(ndim: int) -> Any:
    """Position of the thread in the grid: an int for 1, a tuple for 2 or 3."""
    x = blockIdx.x * blockDim.x + threadIdx.x
    if ndim == 1:
        return x
    y = blockIdx.y * blockDim.y + threadIdx.y
    if ndim == 2:
        return x, y
    if ndim == 3:
        return x, y, blockIdx.z * blockDim.z + threadIdx.z
    raise ValueError(f"grid: ndim is {ndim}, expected 1, 2 or 3")


def gridsize(ndim: int) -> Any:
    """Size of the grid in threads: an int for 1, a tuple for 2 or 3."""
    if ndim not in (1, 2, 3):
        raise ValueError(f"gridsize: ndim is {ndim}, expected 1, 2 or 3")
    sizes = tuple(b * g for b, g in zip(blockDim, gridDim, strict=True))
    return sizes[0] if ndim == 1 else sizes[:ndim]


# --- barriers and fences ---


def syncthreads() -> None:
    """Waits for all threads of the block."""
    t = S.thread
    if t.block.launch.options.check:
        frame = sys._getframe(1)
        t.block.barrier(t, (id(frame.f_code), frame.f_lasti))
    else:
        t.wait = "barrier"
        t.block.at_barrier += 1
        S.park()


def _vote(predicate: Any, site: Any) -> list[bool]:
    t = S.thread
    t.vote = bool(predicate)
    t.block.barrier(t, site if t.block.launch.options.check else None)
    return t.block.votes


def _site() -> Any:
    frame = sys._getframe(2)
    return (id(frame.f_code), frame.f_lasti)


def syncthreads_count(predicate: Any) -> int:
    """Barrier; the number of threads whose predicate holds."""
    return sum(_vote(predicate, _site()))


def syncthreads_and(predicate: Any) -> int:
    """Barrier; 1 if the predicate holds in all threads, else 0."""
    return int(all(_vote(predicate, _site())))


def syncthreads_or(predicate: Any) -> int:
    """Barrier; 1 if the predicate holds in some thread, else 0."""
    return int(any(_vote(predicate, _site())))


def threadfence() -> None:
    """Orders the thread's accesses before its later atomics (all memory is coherent here; the race check uses it)."""
    if S.launch.order_of is not None:
        S.launch.order_of.fence(S.thread)


threadfence_block = threadfence_system = threadfence


def nanosleep(ns: int) -> None:
    """Lets other threads go on; time does not pass."""
    spin(S.thread)


def spin(t: Any) -> None:
    """The thread sees no change in memory: others go first."""
    t.wait = "spin"
    S.park()


class GridGroup:
    """The cooperative group of the whole grid."""

    def sync(self) -> None:
        """Waits for all threads of all blocks."""
        S.thread.wait = "grid"
        S.park()


class Cg:
    """cuda.cg."""

    def this_grid(self) -> GridGroup:
        """The group of all threads of the launch."""
        return GridGroup()


# --- loads and stores with hints for caches, which are not modelled ---


def load(array: Any, i: Any) -> Any:
    """ldca, ldcg, ldcs, ldlu and ldcv: array[i]."""
    if isinstance(array, Checked):
        array.access(i, sys._getframe(1), write=False)
        array = array.array
    return array[i]


def store(array: Any, i: Any, value: Any) -> None:
    """stcg, stcs, stwb and stwt: array[i] = value."""
    value = stored(array, value)
    if isinstance(array, Checked):
        array.access(i, sys._getframe(1), value)
        array = array.array
    array[i] = value


# --- integers ---


def _width(x: Any) -> int:
    """32 or 64: Python integers count as 64 bits when they do not fit 32."""
    if isinstance(x, np.generic):
        return max(32, 8 * x.dtype.itemsize)
    return 32 if -(2**31) <= x < 2**32 else 64


def popc(x: Any) -> int:
    """Number of set bits."""
    return (int(x) & ((1 << _width(x)) - 1)).bit_count()


def brev(x: Any) -> Any:
    """Bits in reverse order, in the argument's width."""
    n = _width(x)
    r = int(f"{int(x) & ((1 << n) - 1):0{n}b}"[::-1], 2)
    return np.array(r, f"u{n // 8}").astype(x.dtype if x.dtype.itemsize * 8 == n else f"u{n // 8}")[()] if isinstance(x, np.generic) else r


def clz(x: Any) -> int:
    """Zero bits above the highest set bit, in the argument's width."""
    n = _width(x)
    return n - (int(x) & ((1 << n) - 1)).bit_length()


def ffs(x: Any) -> int:
    """1 + the position of the lowest set bit, 0 if none is set."""
    v = int(x) & ((1 << _width(x)) - 1)
    return (v & -v).bit_length()


def selp(condition: Any, a: Any, b: Any) -> Any:
    """a if the condition holds, else b."""
    return a if condition else b


def cbrt(x: Any) -> Any:
    """Cube root, in the type of x."""
    return np.cbrt(x)


class Fp16:
    """cuda.fp16: binary16 operations, each rounded once."""

    hfma = staticmethod(arith.fma16)
    hadd = staticmethod(lambda a, b: f16(f16(a) + f16(b)))
    hsub = staticmethod(lambda a, b: f16(f16(a) - f16(b)))
    hmul = staticmethod(lambda a, b: f16(f16(a) * f16(b)))
    hdiv = staticmethod(lambda a, b: f16(f16(a) / f16(b)))
    hneg = staticmethod(lambda a: -f16(a))
    habs = staticmethod(lambda a: abs(f16(a)))
    hmax = staticmethod(lambda a, b: np.fmax(f16(a), f16(b)))
    hmin = staticmethod(lambda a, b: np.fmin(f16(a), f16(b)))
    heq = staticmethod(lambda a, b: a == b)
    hne = staticmethod(lambda a, b: a != b)
    hge = staticmethod(lambda a, b: a >= b)
    hgt = staticmethod(lambda a, b: a > b)
    hle = staticmethod(lambda a, b: a <= b)
    hlt = staticmethod(lambda a, b: a < b)
    hfloor = staticmethod(lambda a: np.floor(f16(a)))
    hceil = staticmethod(lambda a: np.ceil(f16(a)))
    htrunc = staticmethod(lambda a: np.trunc(f16(a)))
    hrint = staticmethod(lambda a: np.rint(f16(a)))
    hsqrt = staticmethod(lambda a: f16(np.sqrt(np.float64(a))))
    hrsqrt = staticmethod(lambda a: f16(1.0 / np.sqrt(np.float64(a))))
    hrcp = staticmethod(lambda a: f16(1.0 / np.float64(a)))
    hsin = staticmethod(lambda a: f16(np.sin(np.float64(a))))
    hcos = staticmethod(lambda a: f16(np.cos(np.float64(a))))
    hlog = staticmethod(lambda a: f16(np.log(np.float64(a))))
    hlog2 = staticmethod(lambda a: f16(np.log2(np.float64(a))))
    hlog10 = staticmethod(lambda a: f16(np.log10(np.float64(a))))
    hexp = staticmethod(lambda a: f16(np.exp(np.float64(a))))
    hexp2 = staticmethod(lambda a: f16(np.exp2(np.float64(a))))
    hexp10 = staticmethod(lambda a: f16(np.power(10.0, np.float64(a))))
