"""What the checks remember of memory: who wrote and who read each cell, and which accesses happen before which.

Order between threads comes from block barriers, warp collectives (vector clocks within a warp), grid sync, and fences followed by
atomics: a fence takes a snapshot of what its thread knows, an atomic on the same address hands it over. The records are last writer and
last readers of a cell. (Flanagan and Freund, FastTrack, 2009; PTX memory consistency model for fences and barriers)
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

# (thread, epoch, tick, code, instruction, atomic). Epochs count block barriers, ticks the collectives of a warp.
Access = tuple[Any, int, int, CodeType, int, bool]
Known = dict[Any, tuple[int, int]]  # thread or block -> its accesses before (epoch, tick) are known
NEVER = (-1, 0)
GRID = 32  # a grid barrier adds 2^32 to every epoch, so that epochs of different blocks compare in their upper bits


class Order:
    """Happens-before of one launch. Threads carry `epoch`, `tick`, `seen` (per lane), `known` and `fenced`."""

    def __init__(self) -> None:
        self.handed: dict[int, Known] = {}  # address of an atomic -> what the threads that used it had fenced
        self.grids = 0

    def begin(self, block: Block) -> None:
        """A block starts."""
        for w in block.warps:
            w.tick = 1
        for t in block.threads:
            t.epoch, t.tick, t.seen = 0, 1, (0,) * 32
            t.known, t.fenced = {}, {}

    def barrier(self, threads: list[Thread]) -> None:
        """The block barrier: every access before it happens before every access after it."""
        known, fenced = _union([t.known for t in threads]), _union([t.fenced for t in threads])
        epoch = threads[0].epoch + 1
        for t in threads:
            t.epoch = epoch
            t.known, t.fenced = known, fenced

    def grid(self, threads: list[Thread]) -> None:
        """The grid barrier."""
        self.grids += 1
        for t in threads:
            t.epoch = self.grids << GRID

    def warp(self, warp: Warp, threads: list[Thread]) -> None:
        """A collective of some lanes."""
        clocks = {t.seen for t in threads}
        seen = list(map(max, zip(*clocks, strict=True))) if len(clocks) > 1 else list(threads[0].seen)
        for t in threads:
            seen[t.lane] = t.tick
        warp.tick += 1
        joined, known, fenced = tuple(seen), _union([t.known for t in threads]), _union([t.fenced for t in threads])
        for t in threads:
            t.seen, t.tick, t.known, t.fenced = joined, warp.tick, known, fenced

    def fence(self, t: Thread) -> None:
        """threadfence: what the thread knows now is handed over by its later atomics."""
        fenced = dict(t.known)
        fenced[t.block] = (t.epoch, 0)  # earlier epochs of the whole block
        for mate in t.warp.threads:
            fenced[mate] = (t.epoch, t.seen[mate.lane] + 1)
        t.warp.tick += 1
        t.tick = t.warp.tick  # later accesses are not part of it
        fenced[t] = (t.epoch, t.tick)
        t.fenced = _union((t.fenced, fenced))

    def atomic(self, t: Thread, address: int) -> None:
        """An atomic takes over what was handed over at its address, and hands over what its thread has fenced."""
        before = self.handed.get(address)
        if before:
            t.known = _union((t.known, before))
        if t.fenced:
            self.handed[address] = _union((before or {}, t.fenced))


def precedes(access: Access, t: Thread) -> bool:
    """Whether the access happens before what `t` does now."""
    other, epoch, tick = access[0], access[1], access[2]
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


class Region:
    """One stretch of memory: an allocation in shared or local memory, or arrays of the host that overlap. A cell is `unit` bytes."""

    def __init__(self, base: int, unit: int, races: bool, fresh: bool) -> None:
        self.base, self.unit, self.races = base, unit, races
        self.fresh = fresh  # nobody has written it: a read without a write is an error
        self.written: dict[int, Any] = {}  # cell -> Access of the last write
        self.readers: dict[int, Any] = {}  # cell -> Access, or those of several threads

    def refine(self, unit: int) -> None:
        """Smaller cells, for a view with smaller elements."""
        k = self.unit // unit
        self.written = {c * k + i: v for c, v in self.written.items() for i in range(k)}
        self.readers = {c * k + i: v for c, v in self.readers.items() for i in range(k)}
        self.unit = unit

    def read(self, cell: int, span: int, array: Checked, index: Any, frame: FrameType, atomic: bool = False) -> None:
        """Checks and records a read of `span` cells."""
        t = S.thread
        for c in range(cell, cell + span) if span > 1 else (cell,):
            last = self.written.get(c)
            if last is None:
                if self.fresh:
                    what = f"read of {array.label()}[{array.text(index)}], which nobody has written, shape {array.shape}"
                    error = S.launch.fault(UninitialisedRead, what, t, frame)
                    if not self.races:
                        raise error
                    t.block.suspects.append(error)
            elif self.races and last[0] is not t and not (atomic and last[5]) and not precedes(last, t):
                self._race("read", "write", last, array, index, frame)
            if self.races:
                now = (t, t.epoch, t.tick, frame.f_code, frame.f_lasti, atomic)
                before = self.readers.get(c)
                if before is None or (before.__class__ is tuple and (before[0] is t or precedes(before, t))):
                    self.readers[c] = now
                elif before.__class__ is tuple:
                    self.readers[c] = {before[0]: before, t: now}
                else:
                    before[t] = now
                    if len(before) & (len(before) - 1) == 0 and len(before) >= 64:
                        self.readers[c] = {k: r for k, r in before.items() if k is t or not precedes(r, t)}

    def write(self, cell: int, span: int, array: Checked, index: Any, frame: FrameType, value: Any, atomic: bool = False) -> None:
        """Checks and records a write of `span` cells. Two threads that write the same bits are no race."""
        t = S.thread
        if not self.races:
            for c in range(cell, cell + span):
                self.written[c] = True
            return
        now = (t, t.epoch, t.tick, frame.f_code, frame.f_lasti, atomic)
        for c in range(cell, cell + span) if span > 1 else (cell,):
            last = self.written.get(c)
            if (
                last is not None
                and last[0] is not t
                and not (atomic and last[5])
                and not precedes(last, t)
                and not (not atomic and array.same(index, value))
            ):
                self._race("atomic" if atomic else "write", "write", last, array, index, frame)
            before = self.readers.pop(c, None)
            if before is not None:
                for r in (before,) if before.__class__ is tuple else before.values():
                    if r[0] is not t and not (atomic and r[5]) and not precedes(r, t):
                        self._race("atomic" if atomic else "write", "read", r, array, index, frame)
            self.written[c] = now

    def _race(self, mine: str, theirs: str, access: Access, array: Checked, index: Any, frame: FrameType) -> None:
        t, (other, _, _, code, instruction, atomic) = S.thread, access
        line = next((n for a, b, n in code.co_lines() if a <= instruction < b), 0)
        if atomic:
            theirs = "atomic"
        who = f"block {other.block.xyz}, thread {other.xyz}, {code.co_filename}:{line}"
        what = f"{mine} of {array.label()}[{array.text(index)}], shape {array.shape}, and a {theirs} by {who}: nothing orders them"
        raise S.launch.fault(DataRace, what, t, frame, f"{theirs} by {who}")
