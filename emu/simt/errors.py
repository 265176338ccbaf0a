"""What a check says when it fires: one `Report` (the JSON row) inside one exception that names kernel, block and thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Report:
    """One finding. `other` is the second access of a race or the rest of the lanes of a collective, else None."""

    kind: str
    kernel: str
    block: Dim
    thread: Dim
    file: str
    line: int
    other: str | None
    message: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the field names that `samebits run --json` uses."""
        return asdict(self)


class SimtError(RuntimeError):
    """A fault of the kernel that the simulator saw. `report` holds the details."""

    kind = "error"

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


class OutOfBounds(SimtError, IndexError):
    """An index outside the array, or a negative one."""

    kind = "out-of-bounds"


class UninitialisedRead(SimtError):
    """A read of shared or local memory that nobody wrote in this block."""

    kind = "uninitialised-read"


class DataRace(SimtError):
    """Two accesses of different threads, one of them a write, with nothing that orders them."""

    kind = "race"


class DivergentBarrier(SimtError):
    """A block barrier that not all threads of the block reach, or that they reach at different places."""

    kind = "divergent-barrier"


class MissingLane(SimtError):
    """A warp collective whose mask names a lane that does not take part, or lacks a lane that does."""

    kind = "missing-lane"


class Deadlock(SimtError):
    """Nothing can go on: every live thread waits for something that cannot happen."""

    kind = "deadlock"


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text: 0-15, 20, 22-23."""
    out: list[str] = []
    start = last = None
    for n in [*sorted(numbers), None]:
        if start is not None and (n is None or n != last + 1):
            out.append(f"{start}" if start == last else f"{start}-{last}")
            start = None
        if n is not None and start is None:
            start = n
        last = n
    return ", ".join(out) or "none"


def lanes_of(mask: int) -> str:
    """The lanes whose bits are set in a 32-bit mask, as text."""
    return ranges(i for i in range(32) if mask >> i & 1)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not the simulator's own code."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("emu.simt."):
        frame = frame.f_back
    return frame
