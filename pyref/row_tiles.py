"""How the blocks of the row kernels share rows that are moved piece by piece: the geometry of ``kernels_cu/row_tiles.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

from pyref import checks
from pyref.spec import Call

THREADS = 256  # of a block, at most
IN_FLIGHT = 4  # pieces that a thread loads before it stores any


@dataclass(frozen=True)
class RowTiles:
    """``rows`` of ``pieces`` accesses, at least one: a block takes ``width`` pieces of ``height`` rows, ``abreast`` at once and ``depth`` a
    thread; 2^``shift`` blocks a row."""

    rows: int
    pieces: int
    depth: int = IN_FLIGHT

    @property
    def shift(self) -> int:
        return (-(-self.pieces // THREADS) - 1).bit_length()

    @property
    def width(self) -> int:
        return -(-self.pieces // 2**self.shift)

    @property
    def abreast(self) -> int:
        return THREADS // self.width

    @property
    def height(self) -> int:
        return self.abreast * self.depth

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.height) * 2**self.shift

    @property
    def threads(self) -> tuple[int, int]:
        return self.width, self.abreast


def fits(call: Call, argument: str, axis: str, tiles: RowTiles) -> None:
    """Refuses a call whose grid would be too large in the narrowest accesses. Raises ValueError."""
    if tiles.blocks > checks.GRID_X:
        most = checks.GRID_X // 2**tiles.shift * tiles.height
        raise call.error(ValueError, argument, f"axis {axis}: got {tiles.rows}, expected at most {most} (grid)")


def steps(tiles: RowTiles, piece: int) -> int:
    """Steps of the simulator for one side of a launch: what a thread costs, and the ``piece`` elements of an access."""
    return tiles.blocks * tiles.width * tiles.abreast * 12 + tiles.rows * tiles.pieces * piece * 3
