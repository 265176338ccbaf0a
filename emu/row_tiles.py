"""What the numba ports of the row kernels share: rows as unsigned integers of up to 8 bytes, and pieces of them that one access moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emu.access import alignment_of, widest_access
from pyref.row_tiles import RowTiles


@dataclass(frozen=True)
class Pieces:
    """Accesses of ``size`` bytes to arrays whose last axis is dense. numba knows no integer of 16 bytes: such a piece is two ``words``."""

    size: int

    @classmethod
    def of(cls, *arrays: np.ndarray | None) -> Pieces:
        """The widest pieces that the arrays (those that are not None) allow."""
        bits = 0
        for array in arrays:
            if array is not None:
                bits |= alignment_of(array) | array.shape[-1] * array.itemsize
        return cls(widest_access(bits))

    @property
    def unit(self) -> str:
        """The integer type of a word."""
        return f"u{min(self.size, 8)}"

    @property
    def words(self) -> int:
        """Words of a piece."""
        return -(-self.size // 8)

    def view(self, array: np.ndarray) -> np.ndarray:
        """The array as words."""
        return array.view(self.unit)

    def tiles(self, rows: int, row_bytes: int) -> RowTiles:
        """How blocks share ``rows`` of ``row_bytes``."""
        return RowTiles(rows, row_bytes // self.size)
