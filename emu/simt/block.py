"""The scheduler: one greenlet a CUDA thread, blocks in turn, barriers and warp collectives as places where greenlets wait.

The scheduler (the greenlet that launched) resumes ready threads one after another; a thread runs until it waits or ends. A block
whose threads all wait for other blocks (grid sync, spinning on an atomic) is put aside and another block goes on.
"""

from __future__ import annotations

import contextvars
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from emu.simt.errors import Deadlock, DivergentBarrier, MissingLane, Report, SimtError, lanes_of, ranges, user_frame
from emu.simt.shadow import Clock
from emu.simt.state import Options, S, blockDim, blockIdx, gridDim, threadIdx
from emu.simt.warp import Warp

Dim = tuple[int, int, int]
SPINS = 10_000  # rounds in which nothing but spinning happened, then it is a deadlock


class Thread(greenlet):
    """One CUDA thread. `wait` says what it waits for: None, "barrier", "grid", "spin", "activemask" or a warp group."""

    def __init__(self, block: Block, xyz: Dim, index: int, parent: greenlet) -> None:
        super().__init__(parent=parent)
        self.block = block
        self.xyz, self.x, self.y, self.z = xyz, *xyz
        self.index = index
        self.lane = index & 31
        self.warp: Warp = block.warps[index >> 5]
        self.wait: Any = None
        self.value: Any = None
        self.site: Any = None
        self.tick = 0  # counts warp synchronisations since the last barrier, for races
        self.seen: tuple[int, ...] = ()  # per lane of the warp: the tick up to which its accesses happened before
        self.clock: Clock | None = None
        self.exited = False

    def run(self) -> None:
        block = self.block
        block.launch.fn(*block.launch.args)
        block.leave(self)


class Block:
    """One block: its threads, its shared memory, its barrier."""

    def __init__(self, launch: Launch, xyz: Dim) -> None:
        self.launch = launch
        self.xyz = xyz
        self.shared: dict[Any, Any] = {}  # declaration -> array
        self.dynamic: np.ndarray | None = None
        self.shared_bytes = 0
        self.epoch = 0  # barriers passed
        self.at_barrier = 0
        self.pass_on: list[Any] = []  # values of syncthreads_count, _and, _or
        n = launch.block_dim[0] * launch.block_dim[1] * launch.block_dim[2]
        self.warps = [Warp(i, min(32, n - 32 * i), launch.options.check) for i in range((n + 31) // 32)]
        hub = getcurrent()
        self.threads = [Thread(self, xyz, i, hub) for i, xyz in enumerate(launch.thread_points)]
        for t in self.threads:
            t.gr_context = launch.context
            t.warp.threads.append(t)
        self.live = n
        self.ready: list[Thread] = launch.ordered(self.threads)
        self.asking: list[Thread] = []  # wait for activemask
        self.dry = 0  # rounds of nothing but spinning

    # --- running ---

    def run(self) -> bool:
        """Runs until the block is done (True) or can only wait for other blocks (False)."""
        blockIdx.set(self.xyz)
        while self.live:
            batch = self.ready
            self.ready = []
            if batch:
                self._resume(batch)
            elif self.asking:
                self._answer_activemask()
            elif self.at_barrier and self.at_barrier == self.live:
                self._release()
            else:
                spinning = [t for t in self.threads if t.wait == "spin"]
                self.ready = self.launch.ordered(spinning)
                if spinning and self.dry < SPINS and self.launch.alone:
                    self.dry += 1
                    continue
                return False
        return True

    def _resume(self, batch: list[Thread]) -> None:
        names, state, tid = S.names, S, threadIdx
        flat = self.launch.block_dim[1] == self.launch.block_dim[2] == 1
        tid.y = tid.z = 0
        for t in batch:
            state.thread = t
            tid.x = t.x
            if not flat:
                tid.y, tid.z = t.y, t.z
            names["laneid"] = t.lane
            t.switch()

    def leave(self, t: Thread) -> None:
        """A thread has returned from the kernel."""
        t.exited = True
        self.live -= 1
        t.warp.exited |= 1 << t.lane
        if t.warp.pending:
            t.warp.recheck()
        if self.launch.options.check and self.at_barrier:
            self._divergent()

    # --- the block barrier ---

    def barrier(self, t: Thread, site: Any = None) -> None:
        """Waits for the other threads of the block."""
        if site is not None:
            t.site = site
            if self.live != len(self.threads):
                self.at_barrier += 1
                t.wait = "barrier"
                self._divergent()
        t.wait = "barrier"
        self.at_barrier += 1
        S.park()

    def _release(self) -> None:
        live = [t for t in self.threads if not t.exited]
        if self.launch.options.check and len({t.site for t in live}) > 1:
            self._divergent()
        self.at_barrier = 0
        self.dry = 0
        self.epoch += 1
        for t in live:
            t.wait = None
        if self.launch.options.races:
            Clock.barrier(self, live)
        self.ready = self.launch.ordered(live)

    def _divergent(self) -> None:
        waiting = [t for t in self.threads if t.wait == "barrier" and not t.exited]
        gone = [t for t in self.threads if t.exited]
        first = waiting[0]
        if gone:
            other = f"threads {ranges(t.index for t in gone)} left the kernel"
        else:
            elsewhere = [t for t in waiting if t.site != first.site]
            other = f"threads {ranges(t.index for t in elsewhere)} wait at another barrier, {place(frame_of(elsewhere[0]))}"
            waiting = [t for t in waiting if t.site == first.site]
        what = f"syncthreads reached by threads {ranges(t.index for t in waiting)} at {place(frame_of(first))}; {other}"
        raise self.launch.fault(DivergentBarrier, what, first, frame_of(first), other)

    # --- what cannot go on ---

    def _answer_activemask(self) -> None:
        """All lanes that ask at the same place are active together: the converged answer."""
        asking, self.asking = self.asking, []
        masks: dict[Any, int] = {}
        for t in asking:
            masks[t.warp, t.site] = masks.get((t.warp, t.site), 0) | 1 << t.lane
        for t in asking:
            t.value, t.wait = masks[t.warp, t.site], None
        self.ready = self.launch.ordered(asking)

    def stuck(self) -> SimtError:
        """The error for a block in which nothing can go on."""
        groups: dict[tuple[str, str], list[Thread]] = {}
        for t in self.threads:
            if not t.exited:
                groups.setdefault((describe(t.wait), place(frame_of(t))), []).append(t)
        parts = [f"threads {ranges(t.index for t in ts)} wait at {what}, {where}" for (what, where), ts in groups.items()]
        gone = [t for t in self.threads if t.exited]
        if gone:
            parts.append(f"threads {ranges(t.index for t in gone)} left the kernel")
        t = next(t for t in self.threads if not t.exited)
        kind: type[SimtError] = Deadlock
        collective = next((t for t in self.threads if not t.exited and isinstance(t.wait, object) and hasattr(t.wait, "mask")), None)
        if collective is not None:
            t, kind = collective, MissingLane
            arrived = sum(1 << i for i in t.wait.arrived)
            missing = t.wait.mask & ~arrived & t.warp.exists
            parts.insert(0, f"{describe(t.wait)} of warp {t.warp.index} lacks lanes {lanes_of(missing)}")
        elif any(t.wait == "barrier" for t in self.threads if not t.exited):
            kind = DivergentBarrier
        return self.launch.fault(kind, "; ".join(parts), t, frame_of(t), "; ".join(parts[1:]) or None)

    def kill(self) -> None:
        """Ends all threads, running their finally clauses."""
        for t in self.threads:
            if t and not t.dead:
                try:
                    t.throw(GreenletExit)
                except BaseException:  # noqa: BLE001  a thread that raises while it is ended cannot change the outcome
                    continue


class Launch:
    """One kernel launch: grid, order, options, and the errors that name it."""

    def __init__(
        self, fn: Callable[..., Any], name: str, grid: Dim, block: Dim, args: tuple[Any, ...], shared: int, options: Options, debug: bool
    ) -> None:
        self.fn, self.name, self.args, self.options = fn, name, args, options
        self.grid_dim, self.block_dim, self.dynamic_bytes = grid, block, shared
        self.thread_points = [(x, y, z) for z in range(block[2]) for y in range(block[1]) for x in range(block[0])]
        self.regions: Any = None
        self.grid_epoch = 0
        self.alone = False  # no other block could unblock a spinning one
        order, _, seed = options.order.partition(":")
        self._rng = random.Random(int(seed)) if order == "shuffle" else None
        self._reverse = order == "reverse"
        with np.errstate(all="ignore", divide="raise" if debug else "ignore"):
            self.context = contextvars.copy_context()

    def ordered(self, threads: list[Any]) -> list[Any]:
        """The same threads (or blocks) in the order of the options."""
        if self._rng is not None:
            threads = threads.copy()
            self._rng.shuffle(threads)
        elif self._reverse:
            threads = threads[::-1]
        return threads

    def _points(self) -> Iterator[Dim]:
        gx, gy, gz = self.grid_dim
        total = gx * gy * gz
        numbers: Any = range(total)
        if self._rng is not None:
            numbers = self.ordered(list(numbers))
        elif self._reverse:
            numbers = reversed(numbers)
        return ((n % gx, n // gx % gy, n // (gx * gy)) for n in numbers)

    def run(self) -> None:
        """Runs all blocks. Raises what a thread raised, after all other threads have ended."""
        blockDim.set(self.block_dim)
        gridDim.set(self.grid_dim)
        points = self._points()
        parked: deque[Block] = deque()
        block: Block | None = None
        previous = S.launch, S.thread, S.park
        S.launch, S.park = self, getcurrent().switch
        rounds = 0
        try:
            for xyz in points:
                block = Block(self, xyz)
                if not block.run():
                    parked.append(block)
                    block = None
            while parked:  # every block has started; those left wait for each other
                self.alone = len(parked) == 1
                if not self._release_grid(parked):
                    rounds += 1
                done_before = len(parked)
                for _ in range(done_before):
                    block = parked.popleft()
                    waiting = not block.ready
                    if waiting or not block.run():
                        parked.append(block)
                    block = None
                if len(parked) < done_before:
                    rounds = 0
                if parked and not any(b.ready or all_at_grid(b) for b in parked) or rounds > SPINS:
                    raise parked[0].stuck()
                if parked and any(all_at_grid(b) for b in parked) and not all(all_at_grid(b) or b.ready for b in parked):
                    raise parked[0].stuck()
        except BaseException as error:
            self._annotate(error, block)
            raise
        finally:
            for b in itertools.chain(parked, [block] if block else []):
                b.kill()
            S.launch, S.thread, S.park = previous

    def _release_grid(self, parked: deque[Block]) -> bool:
        if not parked or not all(all_at_grid(b) for b in parked):
            return False
        self.grid_epoch += 1
        for b in parked:
            b.epoch += 1
            live = [t for t in b.threads if not t.exited]
            for t in live:
                t.wait = None
            if self.options.races:
                Clock.barrier(b, live)
            b.ready = self.ordered(live)
        return True

    # --- errors ---

    def fault(self, kind: type[SimtError], what: str, t: Thread, frame: FrameType | None, other: str | None = None) -> SimtError:
        """An error of the simulator's own, with everything that names the place."""
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        message = f"{kind.kind} in {self.name}, block {t.block.xyz}, thread {t.xyz}: {what}"
        return kind(Report(kind.kind, self.name, t.block.xyz, t.xyz, file, line, other, message))

    def _annotate(self, error: BaseException, block: Block | None) -> None:
        """Puts thread and block in front of the text of an exception that the kernel itself raised."""
        t = S.thread
        if block is None or t is None or isinstance(error, SimtError) or not isinstance(error, Exception):
            return
        where = f"tid={list(t.xyz)} ctaid={list(t.block.xyz)}"
        if not error.args:
            error.args = (where,)
        elif len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{where}: {error.args[0]}",)
        error.add_note(f"in kernel {self.name}, block {t.block.xyz}, thread {t.xyz}")


def all_at_grid(block: Block) -> bool:
    """Whether every live thread of the block waits at the grid barrier."""
    return all(t.wait == "grid" or t.exited for t in block.threads)


def frame_of(t: Thread) -> FrameType | None:
    """The kernel's frame of a thread: the running one or where it waits."""
    return user_frame(t.gr_frame)


def place(frame: FrameType | None) -> str:
    """file:line of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown place"


def describe(wait: Any) -> str:
    """What a thread waits for, in words."""
    words = {"barrier": "syncthreads", "grid": "grid sync", "spin": "an atomic (spinning)", "activemask": "activemask", None: "nothing"}
    return words[wait] if wait is None or isinstance(wait, str) else f"{wait.op}(mask {wait.mask:#010x})"
