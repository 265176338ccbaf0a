"""One block: its CUDA threads on greenlets, and the places where they wait.

The scheduler (the greenlet that launched) resumes ready threads one after another; a thread runs until it waits or ends. A greenlet runs
one thread after another until one waits and keeps it: threads that never wait share one, since starting one costs ten short threads. When
no thread is ready, the block's barrier opens, `activemask` is answered, or the block waits for other blocks; otherwise it is stuck, which
is an error.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from emu.simt.errors import Deadlock, DivergentBarrier, MissingLane, SimtError, lanes_of, ranges, user_frame
from emu.simt.state import S, blockIdx, threadIdx
from emu.simt.warp import Group, Warp

if TYPE_CHECKING:
    from emu.simt.launch import Launch

Dim = tuple[int, int, int]


class Thread:
    """One CUDA thread. `wait` says what it waits for: None, "barrier", "grid", "spin", "activemask" or a Group of its warp."""

    __slots__ = (
        "block", "epoch", "exited", "fenced", "greenlet", "index", "known", "lane", "now", "polled", "polls", "seen", "site", "tick",
        "value", "vote", "wait", "warp", "x", "xyz",
    )  # fmt: skip

    def __init__(self, block: Block, xyz: Dim, index: int) -> None:
        self.block = block
        self.xyz = xyz
        self.x = xyz[0]
        self.index = index
        self.lane = index & 31
        self.warp: Warp = block.warps[index >> 5]
        self.greenlet: greenlet | None = None  # on which it runs, once it has begun
        self.wait: Any = None
        self.value: Any = None  # what the wait gave
        self.site: Any = None  # (code, instruction) of the call that waits
        self.vote = False
        self.exited = False
        self.polled: Any = None  # the last atomic that changed nothing, and how often in a row
        self.polls = 0

    @property
    def frame(self) -> FrameType | None:
        """The kernel's frame: where the thread waits, or where it runs."""
        return user_frame((self.greenlet and self.greenlet.gr_frame) or sys._getframe())


class Block:
    """One block of a launch: threads, warps, shared memory, barrier."""

    def __init__(self, launch: Launch, xyz: Dim) -> None:
        self.launch = launch
        self.xyz = xyz
        self.shared: dict[Any, Any] = {}  # declaration -> array
        self.dynamic: np.ndarray | None = None
        self.shared_bytes = 0
        self.at_barrier = 0
        self.votes: list[bool] = []  # of syncthreads_count and its like, at the last barrier
        n = len(launch.thread_points)
        self.warps = [Warp(i, min(32, n - 32 * i)) for i in range((n + 31) // 32)]
        self.threads = [Thread(self, point, i) for i, point in enumerate(launch.thread_points)]
        for t in self.threads:
            t.warp.threads.append(t)
        if launch.order_of is not None:
            launch.order_of.begin(self)
        self.live = n
        self.fresh = iter(launch.ordered(self.threads))  # not begun
        self.ready: list[Thread] = []
        self.asking: list[Thread] = []  # wait for activemask
        self.suspects: list[SimtError] = []  # uninitialised reads, unless the missing write comes before a barrier: then they are races

    def run(self) -> str:
        """Runs as far as it goes: "done", or what it waits for: "grid", "spin" (other blocks may change memory)."""
        blockIdx.x, blockIdx.y, blockIdx.z = self.xyz
        for t in self.fresh:
            runner = greenlet(self._begin)
            runner.gr_context = self.launch.context  # NumPy's error state lives there
            runner.switch(t)
        while self.live:
            batch = self.ready
            if batch:
                self.ready = []
                self._resume(batch)
            elif self.asking:
                self._answer_activemask()
            elif self.at_barrier == self.live:
                self._open()
            elif any(t.wait == "spin" for t in self.threads):
                return "spin"
            elif all(t.wait == "grid" or t.exited for t in self.threads):
                return "grid"
            else:
                raise self.stuck()
        if self.suspects:
            raise self.suspects[0]
        return "done"

    def _begin(self, t: Thread | None) -> None:
        """Runs on a greenlet of its own: a thread that has not begun, and others after it, until one waits; that one to its end."""
        fn, args, runner = self.launch.fn, self.launch.args, getcurrent()
        while t is not None:
            t.greenlet = runner
            S.thread = t
            threadIdx.x, threadIdx.y, threadIdx.z = t.xyz
            S.names["laneid"] = t.lane
            fn(*args)
            self.leave(t)
            t = next(self.fresh, None)

    def _resume(self, batch: list[Thread]) -> None:
        state, tid, names = S, threadIdx, S.names
        tid.y = tid.z = 0
        if self.launch.flat:
            for t in batch:
                state.thread = t
                tid.x = t.x
                names["laneid"] = t.lane
                t.greenlet.switch()
        else:
            for t in batch:
                state.thread = t
                tid.x, tid.y, tid.z = t.xyz
                names["laneid"] = t.lane
                t.greenlet.switch()

    def leave(self, t: Thread) -> None:
        """The thread has returned from the kernel."""
        t.exited = True
        self.live -= 1
        self.launch.idle = 0
        warp = t.warp
        warp.exited |= 1 << t.lane
        if warp.pending:
            warp.lane_left(t)

    def wake(self, threads: list[Thread]) -> None:
        """Makes waiting threads ready, in the launch's order."""
        for t in threads:
            t.wait = None
        self.ready.extend(self.launch.ordered(threads))

    # --- the block barrier ---

    def barrier(self, t: Thread, site: Any = None) -> None:
        """Waits for the other threads of the block. `site` (checks only): where the thread calls."""
        t.wait = "barrier"
        t.site = site
        self.at_barrier += 1
        S.park()

    def _open(self) -> None:
        live = [t for t in self.threads if not t.exited]
        if self.launch.options.check and (len(live) < len(self.threads) or len({t.site for t in live}) > 1):
            raise self.divergent()
        if self.suspects:
            raise self.suspects[0]
        self.at_barrier = 0
        self.launch.idle = 0
        self.votes = [t.vote for t in live]
        if self.launch.order_of is not None:
            self.launch.order_of.barrier(live)
        self.wake(live)

    def divergent(self) -> SimtError:
        """The error for a barrier that some threads do not reach, or reach elsewhere."""
        waiting = [t for t in self.threads if t.wait == "barrier" and not t.exited]
        gone = [t for t in self.threads if t.exited]
        first = waiting[0]
        if gone:
            other = f"threads {ranges(t.index for t in gone)} left the kernel"
        else:
            away = [t for t in waiting if t.site != first.site]
            waiting = [t for t in waiting if t.site == first.site]
            other = f"threads {ranges(t.index for t in away)} wait at another one, {place(away[0].frame)}"
        what = f"syncthreads at {place(first.frame)} reached by threads {ranges(t.index for t in waiting)}; {other}"
        return self.launch.fault(DivergentBarrier, what, first, first.frame, other)

    # --- when nothing is ready ---

    def _answer_activemask(self) -> None:
        """Lanes that ask at the same place are active together: the converged answer."""
        asking, self.asking = self.asking, []
        masks: dict[Any, int] = {}
        for t in asking:
            masks[t.warp, t.site] = masks.get((t.warp, t.site), 0) | 1 << t.lane
        for t in asking:
            t.value = masks[t.warp, t.site]
        self.wake(asking)

    def stuck(self) -> SimtError:
        """The error for a block in which nothing can go on: who waits where, and who has left."""
        live = [t for t in self.threads if not t.exited]
        places: dict[tuple[str, str], list[Thread]] = {}
        for t in live:
            places.setdefault((describe(t.wait), place(t.frame)), []).append(t)
        parts = [f"threads {ranges(t.index for t in ts)} wait at {what}, {where}" for (what, where), ts in places.items()]
        gone = [t.index for t in self.threads if t.exited]
        if gone:
            parts.append(f"threads {ranges(gone)} left the kernel")
        other = "; ".join(parts)
        for t in live:
            if isinstance(t.wait, Group):
                missing = t.wait.need & ~t.wait.arrived
                what = f"{describe(t.wait)} in warp {t.warp.index} lacks lanes {lanes_of(missing)}: {other}"
                return self.launch.fault(MissingLane, what, t, t.frame, other)
        kind = DivergentBarrier if self.at_barrier else Deadlock
        return self.launch.fault(kind, other, live[0], live[0].frame, other)

    def kill(self) -> None:
        """Ends all threads, running their finally clauses; what they raise meanwhile changes nothing."""
        for t in self.threads:
            if t.greenlet and not t.exited:
                try:
                    t.greenlet.throw(GreenletExit)
                except Exception:
                    continue


def place(frame: FrameType | None) -> str:
    """file:line of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown place"


def describe(wait: Any) -> str:
    """What a thread waits for, in words."""
    words = {"barrier": "syncthreads", "grid": "grid sync", "spin": "nanosleep, or an atomic that changes nothing", None: "nothing"}
    return str(wait) if isinstance(wait, Group) else words.get(wait, str(wait))
