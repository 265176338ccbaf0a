"""Warps and their collectives: lanes meet under a mask, exchange values, and go on. (CUDA C++ guide, warp functions; PTX shfl.sync)"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.simt.errors import MissingLane, lanes_of
from emu.simt.state import S

if TYPE_CHECKING:
    from emu.simt.block import Thread

FULL = 0xFFFFFFFF


class Group:
    """Lanes of one warp that meet for one collective. `values` has one entry a lane; absent lanes stay None."""

    __slots__ = ("arrived", "mask", "need", "op", "threads", "values")

    def __init__(self, op: str, mask: int, need: int) -> None:
        self.op, self.mask, self.need = op, mask, need
        self.arrived = 0
        self.threads: list[Thread] = []
        self.values: list[Any] = [None] * 32

    def __str__(self) -> str:
        return f"{self.op}(mask {self.mask:#010x})"


class Warp:
    """32 consecutive threads of a block (the last warp may have fewer) and the collectives that some of them wait for."""

    __slots__ = ("exists", "exited", "index", "pending", "threads", "tick")

    def __init__(self, index: int, lanes: int) -> None:
        self.index = index
        self.exists = (1 << lanes) - 1
        self.exited = 0
        self.threads: list[Thread] = []
        self.pending: dict[int, Group] = {}
        self.tick = 0

    def lane_left(self, t: Thread) -> None:
        """A lane left the kernel while others of the warp wait. Hardware no longer waits for it; under checks the collective stays open."""
        if S.launch.options.check:
            return
        bit = 1 << t.lane
        for group in list(self.pending.values()):
            if group.need & bit:
                group.need &= ~bit
                if group.arrived == group.need:
                    _complete(self, group, None)


def _fault(t: Thread, what: str) -> MissingLane:
    return S.launch.fault(MissingLane, what, t, t.frame)


def _complete(warp: Warp, group: Group, last: Thread | None) -> None:
    del warp.pending[group.mask]
    launch = S.launch
    launch.idle = 0
    if launch.order_of is not None and group.op == "syncwarp":  # shuffles and votes exchange values, but order no memory
        launch.order_of.warp(warp, group.threads)
    waiting = [t for t in group.threads if t is not last]
    if waiting:
        waiting[0].block.wake(waiting)


def meet(op: str, mask: int, value: Any) -> Group:
    """Waits until every lane of the mask has called the same collective with the same mask."""
    t = S.thread
    warp = t.warp
    mask = int(mask) & FULL
    bit = 1 << t.lane
    if not mask & bit:
        raise _fault(t, f"{op}: lane {t.lane} calls with mask {mask:#010x}, which does not name it")
    group = warp.pending.get(mask)
    if group is None:
        need = mask & warp.exists
        if S.launch.options.check:
            if mask != FULL and mask & ~warp.exists:
                raise _fault(
                    t, f"{op}: mask {mask:#010x} names lanes {lanes_of(mask & ~warp.exists)}, which warp {warp.index} does not have"
                )
        else:
            need &= ~warp.exited
        group = warp.pending[mask] = Group(op, mask, need)
    elif group.op != op:
        arrived = lanes_of(group.arrived)
        raise _fault(t, f"lane {t.lane} calls {op} while lanes {arrived} of warp {warp.index} wait at {group} with the same mask")
    group.values[t.lane] = value
    group.threads.append(t)
    group.arrived |= bit
    if group.arrived == group.need:
        _complete(warp, group, t)
    else:
        t.wait = group
        S.park()
    return group


# --- shuffles ---


def _width(width: int) -> int:
    if width not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"shfl: width is {width}, expected a power of two up to 32")
    return width


def _pick(group: Group, source: int, value: Any) -> Any:
    if group.arrived >> source & 1:
        return group.values[source]
    if S.launch.options.check:
        raise _fault(S.thread, f"{group}: lane {S.thread.lane} reads from lane {source}, which does not take part")
    return value  # undefined on hardware


def _shuffled(value: Any) -> Any:
    if isinstance(value, (np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64, int, float)):
        return value
    raise TypeError(f"shfl: value is a {type(value).__name__}, expected a 32- or 64-bit number")


def shfl_sync(mask: int, value: Any, src_lane: int, width: int = 32) -> Any:
    """The value of lane `src_lane` modulo width within the caller's segment of `width` lanes."""
    width = _width(width)
    group = meet("shfl_sync", mask, _shuffled(value))
    return _pick(group, (S.thread.lane & -width) | (int(src_lane) & (width - 1)), value)


def shfl_up_sync(mask: int, value: Any, delta: int, width: int = 32) -> Any:
    """The value of the lane `delta` below in the same segment; one's own where there is none."""
    width = _width(width)
    group = meet("shfl_up_sync", mask, _shuffled(value))
    lane = S.thread.lane
    source = lane - (int(delta) & FULL)
    return value if source < lane & -width else _pick(group, source, value)


def shfl_down_sync(mask: int, value: Any, delta: int, width: int = 32) -> Any:
    """The value of the lane `delta` above in the same segment; one's own where there is none."""
    width = _width(width)
    group = meet("shfl_down_sync", mask, _shuffled(value))
    lane = S.thread.lane
    source = lane + (int(delta) & FULL)
    return value if source > lane | (width - 1) else _pick(group, source, value)


def shfl_xor_sync(mask: int, value: Any, lane_mask: int, width: int = 32) -> Any:
    """The value of lane `lane ^ lane_mask`; one's own where that lies in a later segment."""
    width = _width(width)
    group = meet("shfl_xor_sync", mask, _shuffled(value))
    lane = S.thread.lane
    source = lane ^ (int(lane_mask) & 31)
    return value if source > lane | (width - 1) else _pick(group, source, value)


def shfl_sync_intrinsic(mask: int, mode: int, value: Any, mode_offset: int, clamp: int) -> tuple[Any, bool]:
    """PTX shfl.sync: mode 0 idx, 1 up, 2 down, 3 bfly; `clamp` packs the segment mask and the bound. Returns (value, in range)."""
    group = meet(("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")[mode], mask, _shuffled(value))
    lane, b = S.thread.lane, int(mode_offset) & 31
    segment, bound = clamp >> 8 & 31, clamp & 31
    low = lane & segment
    high = low | (bound & ~segment)
    source = (low | (b & ~segment & 31), lane - b, lane + b, lane ^ b)[mode]
    valid = source >= high if mode == 1 else source <= high
    return (_pick(group, source, value), True) if valid else (value, False)


# --- votes and matches ---


def all_sync(mask: int, predicate: Any) -> bool:
    """Whether the predicate holds in every lane of the mask."""
    group = meet("all_sync", mask, bool(predicate))
    return all(v for v in group.values if v is not None)


def any_sync(mask: int, predicate: Any) -> bool:
    """Whether the predicate holds in some lane of the mask."""
    return True in meet("any_sync", mask, bool(predicate)).values


def eq_sync(mask: int, predicate: Any) -> bool:
    """Whether the predicate is the same in every lane of the mask."""
    values = meet("eq_sync", mask, bool(predicate)).values
    return not (True in values and False in values)


def ballot_sync(mask: int, predicate: Any) -> int:
    """The lanes of the mask whose predicate holds, as bits."""
    values = meet("ballot_sync", mask, bool(predicate)).values
    return sum(1 << i for i, v in enumerate(values) if v)


def vote_sync_intrinsic(mask: int, mode: int, predicate: Any) -> tuple[int, bool]:
    """NVVM's vote: mode 0 all, 1 any, 2 eq, 3 ballot. Returns (ballot, vote)."""
    if mode == 3:
        return ballot_sync(mask, predicate), False
    return 0, (all_sync, any_sync, eq_sync)[mode](mask, predicate)


def _bits(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.generic) else value


def match_any_sync(mask: int, value: Any) -> int:
    """The lanes of the mask whose value has the same bits as the caller's."""
    mine = _bits(value)
    values = meet("match_any_sync", mask, mine).values
    return sum(1 << i for i, v in enumerate(values) if v is not None and v == mine)


def match_all_sync(mask: int, value: Any) -> tuple[int, bool]:
    """(the lanes that take part, True) if all their values have the same bits, else (0, False)."""
    mine = _bits(value)
    group = meet("match_all_sync", mask, mine)
    same = all(v == mine for v in group.values if v is not None)
    return (group.arrived, True) if same else (0, False)


def syncwarp(mask: int = FULL) -> None:
    """Waits for the lanes of the mask and orders their memory accesses."""
    meet("syncwarp", mask, 0)


def activemask() -> int:
    """The lanes of the warp that are here together, as bits: the converged answer, whatever the order of threads."""
    t = S.thread
    frame = sys._getframe(1)
    t.site = (id(frame.f_code), frame.f_lasti)
    t.wait = "activemask"
    t.block.asking.append(t)
    S.park()
    return t.value


def lanemask_lt() -> int:
    """The lanes below the caller's, as bits."""
    return (1 << S.thread.lane) - 1
