"""What is current: the running thread, its launch, and the index objects that kernels read. One launch at a time in a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.simt.block import Launch, Thread
    from emu.simt.errors import Report


class Dim3:
    """x, y, z as plain attributes. `threadIdx` and `blockIdx` are single objects, refilled whenever another thread goes on."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: int = 0, y: int = 0, z: int = 0) -> None:
        self.x, self.y, self.z = x, y, z

    def set(self, xyz: tuple[int, int, int]) -> None:
        """Takes over three numbers."""
        self.x, self.y, self.z = xyz

    def __iter__(self) -> Iterator[int]:
        return iter((self.x, self.y, self.z))

    def __repr__(self) -> str:
        return f"({self.x}, {self.y}, {self.z})"


@dataclass(frozen=True)
class Options:
    """How launches run.

    check: bounds, uninitialised reads, divergence, lanes. races: happens-before on shared and global arrays.
    order: "forward", "reverse" or "shuffle:SEED", of threads in a block and of blocks in the grid.
    operators: "numba", as its compiler computes (`emu.simt.operators`), or "python", as Python and NumPy do, which is faster.
    """

    check: bool = False
    races: bool = False
    order: str = "forward"
    operators: str = "numba"

    def __post_init__(self) -> None:
        if self.operators not in ("numba", "python"):
            raise ValueError(f"operators: got {self.operators!r}, expected 'numba' or 'python'")
        name, _, seed = self.order.partition(":")
        if (name == "shuffle" and not seed.isdigit()) or (name != "shuffle" and self.order not in ("forward", "reverse")):
            raise ValueError(f"order: got {self.order!r}, expected 'forward', 'reverse' or 'shuffle:SEED' with SEED >= 0")


class State:
    """The current thread and launch. `names` is the namespace of the numba.cuda module while installed, `found` what checks reported."""

    __slots__ = ("found", "launch", "names", "options", "park", "thread")

    def __init__(self) -> None:
        self.thread: Thread = None  # type: ignore[assignment]
        self.launch: Launch | None = None
        self.park: Any = None  # switches to the scheduler
        self.names: dict[str, Any] = {}
        self.options = Options()
        self.found: list[Report] = []


S = State()
threadIdx, blockIdx, blockDim, gridDim = Dim3(), Dim3(), Dim3(), Dim3()
