"""Case data from integers alone: the same numbers with any NumPy on any machine (NumPy's own streams are not promised to last)."""

from __future__ import annotations

import numpy as np

from pyref import contract

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_UNIT = float.fromhex("0x1.BB67AEp-16")  # sqrt(3) / 2^16: gives the sum of four 16-bit uniforms variance 1


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser (Steele, Lea, Flood 2014) on uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Stream:
    """A stream of numbers fixed by its seed and the order of calls."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0xD1342543DE82EF95 + 1) & _MASK

    def words(self, count: int) -> np.ndarray:
        """``count`` uniform uint64."""
        index = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(self._state)
        self._state = (self._state + count * _GOLDEN) & _MASK
        return _mix(index)

    def integers(self, low: int, high: int, count: int) -> np.ndarray:
        """``count`` int64 in [low, high); the bias of the remainder is below 2^-32 for the ranges used here."""
        return (self.words(count) % np.uint64(high - low)).astype(np.int64) + low

    def permutation(self, count: int) -> np.ndarray:
        """The numbers 0 .. count-1 in a random order."""
        return np.argsort(self.words(count), kind="stable")

    def normal(self, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> np.ndarray:
        """Near-normal numbers (a sum of four 16-bit uniforms: variance 1, at most 3.5) times ``scale``, in the storage of ``dtype``."""
        words = self.words(int(np.prod(shape, dtype=np.int64)))
        total = sum(((words >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
        unit = (total - 2 * 0xFFFF).astype(np.float64) * (_UNIT * scale)
        return contract.from_f32(unit.astype(np.float32), dtype).reshape(shape)
