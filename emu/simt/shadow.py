"""What the checks remember of memory: who wrote and who read each cell, and which accesses happen before which.

Order between threads comes from block barriers, syncwarp (vector clocks within a warp), grid sync, and fences followed by atomics: a
fence takes a snapshot of what its thread knows, an atomic on the same address hands it over. Shuffles, votes and matches order nothing.
The records are last writer and last readers of a cell. (Flanagan and Freund, FastTrack, 2009; PTX memory consistency model for fences
and barriers)
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from emu.simt.errors import DataRace, UninitialisedRead
from emu.simt.state import S

if TYPE_CHECKING:
    from emu.simt.block import Block, Thread
    from emu.simt.checked import Checked
    from emu.simt.warp import Warp

# (thread, epoch, tick), one object while nothing orders the thread with others. Epochs count block barriers, ticks a warp's syncwarps.
Moment = tuple[Any, int, int]
Access = tuple[Moment, CodeType, int, bool]  # when, where (code and instruction), whether by an atomic
Known = dict[Any, tuple[int, int]]  # thread or block -> its accesses before (epoch, tick) are known
NEVER = (-1, 0)
LONGEST_LOG = 5 << 20  # of a million reads; beyond, what is remembered grows with memory instead
GRID = 32  # a grid barrier adds 2^32 to every epoch, so that epochs of different blocks compare in their upper bits


class Order:
    """Happens-before of one launch. Threads carry `epoch`, `tick`, `now` (their Moment), `seen` (per lane), `known` and `fenced`."""

    def __init__(self) -> None:
        self.handed: dict[int, Known] = {}  # address of an atomic -> what the threads that used it had fenced
        self.grids = 0
        self.regions: list[Region] = []  # of the launch's arguments

    def begin(self, block: Block) -> None:
        """A block starts."""
        self._shorten()
        for w in block.warps:
            w.tick = 1
        for t in block.threads:
            t.epoch, t.tick, t.seen = 0, 1, (0,) * 32
            t.now = (t, 0, 1)
            t.known, t.fenced = {}, {}

    def _shorten(self) -> None:
        """Ends logs that have become too long."""
        for region in self.regions:
            if region.log is not None and len(region.log) > LONGEST_LOG:
                region.wake()

    def barrier(self, threads: list[Thread]) -> None:
        """The block barrier: every access before it happens before every access after it."""
        self._shorten()
        known, fenced = _union([t.known for t in threads]), _union([t.fenced for t in threads])
        epoch = threads[0].epoch + 1
        for t in threads:
            t.epoch = epoch
            t.now = (t, epoch, t.tick)
            t.known, t.fenced = known, fenced

    def grid(self, threads: list[Thread]) -> None:
        """The grid barrier."""
        self.grids += 1
        for t in threads:
            t.epoch = self.grids << GRID
            t.now = (t, t.epoch, t.tick)

    def warp(self, warp: Warp, threads: list[Thread]) -> None:
        """syncwarp of some lanes."""
        clocks = {t.seen for t in threads}
        seen = list(map(max, zip(*clocks, strict=True))) if len(clocks) > 1 else list(threads[0].seen)
        for t in threads:
            seen[t.lane] = t.tick
        warp.tick += 1
        joined, known, fenced = tuple(seen), _union([t.known for t in threads]), _union([t.fenced for t in threads])
        for t in threads:
            t.seen, t.tick, t.known, t.fenced = joined, warp.tick, known, fenced
            t.now = (t, t.epoch, warp.tick)

    def fence(self, t: Thread) -> None:
        """threadfence: what the thread knows now is handed over by its later atomics."""
        fenced = dict(t.known)
        fenced[t.block] = (t.epoch, 0)  # earlier epochs of the whole block
        for mate in t.warp.threads:
            fenced[mate] = (t.epoch, t.seen[mate.lane] + 1)
        t.warp.tick += 1
        t.tick = t.warp.tick  # later accesses are not part of it
        t.now = (t, t.epoch, t.tick)
        fenced[t] = (t.epoch, t.tick)
        t.fenced = _union((t.fenced, fenced))

    def atomic(self, t: Thread, address: int) -> None:
        """An atomic takes over what was handed over at its address, and hands over what its thread has fenced."""
        before = self.handed.get(address)
        if before:
            t.known = _union((t.known, before))
        if t.fenced:
            self.handed[address] = _union((before or {}, t.fenced))


def precedes(moment: Moment, t: Thread) -> bool:
    """Whether an access of that moment happens before what `t` does now."""
    other, epoch, tick = moment
    if other is t:
        return True
    if other.block is t.block:
        if epoch < t.epoch or (other.warp is t.warp and t.seen[other.lane] >= tick):
            return True
    elif epoch >> GRID < t.epoch >> GRID:
        return True
    known = t.known
    return bool(known) and (known.get(other, NEVER) > (epoch, tick) or known.get(other.block, NEVER) > (epoch, tick))


def _union(parts: Iterable[Known]) -> Known:
    parts = list(filter(None, parts))
    if not parts:
        return {}
    different = {id(p): p for p in parts}
    if len(different) == 1:
        return next(iter(different.values()))
    out: Known = {}
    for part in different.values():
        for key, when in part.items():
            if when > out.get(key, NEVER):
                out[key] = when
    return out


class Cell:
    """What is remembered of one cell: the last write (True where races are not looked for), the last read, and those of `others` since
    the last write that nothing ordered with it."""

    __slots__ = ("others", "read", "write")

    def __init__(self, write: Any = None, read: Access | None = None, others: dict[Thread, Access] | None = None) -> None:
        self.write, self.read, self.others = write, read, others


class Region:
    """One stretch of memory: an allocation in shared or local memory, or arrays of the host that overlap. A cell is `unit` bytes."""

    def __init__(self, base: int, unit: int, races: bool, fresh: bool) -> None:
        self.base, self.unit, self.races = base, unit, races
        self.fresh = fresh  # nobody has written it: a read without a write is an error
        # Reads of arrays that nobody has written yet, five entries each: moment, array, index, code, instruction. Most are only read.
        self.log: list[Any] | None = [] if races and not fresh else None
        self.cells: dict[int, Cell] = {}
        self.found: list[dict[Any, Cell]] = []  # what arrays over the region remember of it by their indices

    def at(self, number: int) -> Cell:
        """A cell by its number."""
        cell = self.cells.get(number)
        if cell is None:
            cell = self.cells[number] = Cell()
        return cell

    def wake(self) -> None:
        """The first write is about to happen: from now on every cell remembers its readers."""
        log, self.log = self.log, None
        reads = iter(log or ())
        for now, array, index, code, instruction in zip(reads, reads, reads, reads, reads, strict=True):
            for cell in array._find(index):
                last = cell.read
                if last is not None and last[0][0] is not now[0]:
                    cell.others = cell.others or {}
                    cell.others[last[0][0]] = last
                cell.read = (now, code, instruction, False)

    def refine(self, unit: int) -> None:
        """Smaller cells, for a view with smaller elements."""
        k = self.unit // unit
        old, self.cells, self.unit = self.cells, {}, unit
        for number, cell in old.items():
            for i in range(k):
                self.cells[number * k + i] = Cell(cell.write, cell.read, dict(cell.others) if cell.others else None)
        for found in self.found:
            found.clear()

    def read(self, cell: Cell, array: Checked, index: Any, frame: FrameType, atomic: bool = False) -> None:
        """Checks and records a read."""
        t = S.thread
        write = cell.write
        if write is None:
            if self.fresh:
                what = f"read of {array.label()}[{array.text(index)}], which nobody has written, shape {array.shape}"
                error = S.launch.fault(UninitialisedRead, what, t, frame)
                if not self.races:
                    raise error
                t.block.suspects.append(error)
        elif self.races and write[0][0] is not t and not (atomic and write[3]) and not precedes(write[0], t):
            self._race("atomic" if atomic else "read", "write", write, array, index, frame)
        if self.races:
            last = cell.read
            if last is None or last[0][0] is t:
                pass
            elif self.fresh and last[0][1] < t.epoch:
                cell.others = None  # shared memory: the block's barrier has ordered all reads before it
            elif not precedes(last[0], t):
                if cell.others is None:
                    cell.others = {}
                cell.others[last[0][0]] = last
                count = len(cell.others)
                if count >= 64 and count & (count - 1) == 0:
                    cell.others = {k: r for k, r in cell.others.items() if not precedes(r[0], t)}
            cell.read = (t.now, frame.f_code, frame.f_lasti, atomic)

    def write(self, cell: Cell, array: Checked, index: Any, frame: FrameType, value: Any, atomic: bool = False) -> None:
        """Checks and records a write. Two threads that write the same bits are no race."""
        if not self.races:
            cell.write = True
            return
        t = S.thread
        last = cell.write
        if (
            last is not None
            and last[0][0] is not t
            and not (atomic and last[3])
            and not precedes(last[0], t)
            and not (not atomic and array.same(index, value))
        ):
            self._race("atomic" if atomic else "write", "write", last, array, index, frame)
        if cell.read is not None:
            for r in (cell.read, *cell.others.values()) if cell.others else (cell.read,):
                if r[0][0] is not t and not (atomic and r[3]) and not precedes(r[0], t):
                    self._race("atomic" if atomic else "write", "read", r, array, index, frame)
            cell.read = cell.others = None
        if not (atomic and last is not None and last[0] is t.now and not last[3]):  # a plain store before one's own atomic still counts
            cell.write = (t.now, frame.f_code, frame.f_lasti, atomic)

    def _race(self, mine: str, theirs: str, access: Access, array: Checked, index: Any, frame: FrameType) -> None:
        t, ((other, _, _), code, instruction, atomic) = S.thread, access
        line = next((n for a, b, n in code.co_lines() if a <= instruction < b), 0)
        theirs = "an atomic" if atomic else f"a {theirs}"
        who = f"block {other.block.xyz}, thread {other.xyz}, {code.co_filename}:{line}"
        what = f"{mine} of {array.label()}[{array.text(index)}], shape {array.shape}, and {theirs} by {who}: nothing orders them"
        raise S.launch.fault(DataRace, what, t, frame, f"{theirs} by {who}")
