"""One kernel launch: blocks in order, blocks that wait for each other, and errors that name kernel, block and thread."""

from __future__ import annotations

import contextvars
import gc
import random
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from greenlet import getcurrent

from emu.simt.block import Block, Thread, place
from emu.simt.errors import DataRace, Deadlock, DivergentBarrier, Report, SimtError
from emu.simt.state import Options, S, blockDim, gridDim
from emu.simt.watch import WATCH, Spinning

Dim = tuple[int, int, int]
PATIENCE = 500  # rounds in which every block only spins; then it is a deadlock

# CUDA's limits, the same from compute capability 7.5 to 12.0 except for the last one (sm_90)
MAX_BLOCK, MAX_GRID, MAX_THREADS, MAX_SHARED = (1024, 1024, 64), (2**31 - 1, 65535, 65535), 1024, 227 * 1024


def check_geometry(name: str, grid: Dim, block: Dim, shared: int) -> None:
    """Raises ValueError for a launch that hardware refuses."""
    for what, dims, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for axis, n, limit in zip("xyz", dims, limits, strict=True):
            if not 1 <= n <= limit:
                raise ValueError(f"launch of {name}: {what}.{axis} is {n}, expected 1 to {limit}")
    if block[0] * block[1] * block[2] > MAX_THREADS:
        raise ValueError(f"launch of {name}: block {block} has {block[0] * block[1] * block[2]} threads, at most {MAX_THREADS}")
    if not 0 <= shared <= MAX_SHARED:
        raise ValueError(f"launch of {name}: {shared} bytes of dynamic shared memory, at most {MAX_SHARED}")


class Launch:
    """A launch about to run. `order_of` is the happens-before order (checks only), `idle` counts rounds of mere spinning."""

    def __init__(
        self, fn: Callable[..., Any], name: str, grid: Dim, block: Dim, args: tuple[Any, ...], shared: int, options: Options, debug: bool
    ) -> None:
        self.fn, self.name, self.args, self.options, self.debug = fn, name, args, options, debug
        self.grid_dim, self.block_dim, self.dynamic_bytes = grid, block, shared
        self.flat = block[1] == block[2] == 1
        self.thread_points = [(x, y, z) for z in range(block[2]) for y in range(block[1]) for x in range(block[0])]
        self.order_of: Any = None
        self.idle = 0
        name, _, seed = options.order.partition(":")
        self._rng = random.Random(int(seed)) if name == "shuffle" else None
        self._reverse = name == "reverse"
        with np.errstate(all="ignore", divide="raise" if debug else "ignore"):
            self.context = contextvars.copy_context()

    def ordered(self, items: list[Any]) -> list[Any]:
        """The same threads or blocks in the order of the options."""
        if self._rng is not None:
            items = items.copy()
            self._rng.shuffle(items)
        elif self._reverse:
            items = items[::-1]
        return items

    def after_atomic(self, t: Thread) -> None:
        """In a shuffled order the others of the block may go on first: else one thread would take all the work that atomics hand out."""
        if self._rng is not None and self._rng.random() < 0.5:
            t.block.ready.append(t)
            S.park()

    def _points(self) -> Iterator[Dim]:
        gx, gy, gz = self.grid_dim
        numbers: Any = range(gx * gy * gz)
        numbers = self.ordered(list(numbers)) if self._rng is not None else self.ordered(numbers)
        return ((n % gx, n // gx % gy, n // (gx * gy)) for n in numbers)

    def run(self) -> None:
        """Runs all blocks; raises what a thread raised, after all others have ended."""
        for dim, xyz in ((blockDim, self.block_dim), (gridDim, self.grid_dim)):
            dim.x, dim.y, dim.z = xyz
        previous = S.launch, S.thread, S.park
        S.launch, S.park = self, getcurrent().switch
        WATCH.begin()
        unfinished: list[Block] = []
        block: Block | None = None
        done = 0
        try:
            waits: list[str] = []
            for xyz in self._points():
                block = Block(self, xyz)
                status = self._run(block)
                if status == "done":
                    done += 1
                else:
                    unfinished.append(block)
                    waits.append(status)
            while unfinished:
                self._let_go_on(unfinished, waits, done)
                still: list[Block] = []
                waits = []
                for block in unfinished:
                    status = self._run(block) if block.ready else "grid"
                    if status == "done":
                        done += 1
                    else:
                        still.append(block)
                        waits.append(status)
                unfinished = still
        except Spinning as stopped:
            frames = [frame for frame, _ in traceback.walk_tb(stopped.__traceback__)]
            frame = next((f for f in reversed(frames) if not f.f_globals.get("__name__", "").startswith("emu.simt.")), None)
            what = "looks at memory for ever without an atomic, a barrier or nanosleep: no other thread can run and change it"
            raise self.fault(Deadlock, what, S.thread, frame) from None
        except Exception as error:
            self._annotate(error)
            if block is not None and block.suspects and not isinstance(error, DataRace) and error is not block.suspects[0]:
                raise block.suspects[0] from error  # what was read may be the cause
            raise
        finally:
            for b in [*unfinished, *([block] if block else [])]:
                b.kill()
            S.launch, S.thread, S.park = previous
            WATCH.end()

    @staticmethod
    def _run(block: Block) -> str:
        """Runs a block as far as it goes. What checks remember is no garbage, so the collector waits until the block has run."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return block.run()
        finally:
            if collects:
                gc.enable()

    def _let_go_on(self, blocks: list[Block], waits: list[str], done: int) -> None:
        """All blocks have run as far as they go: opens the grid barrier, or lets spinning threads look again."""
        if "spin" in waits:
            self.idle += 1
            if self.idle > PATIENCE:
                raise blocks[waits.index("spin")].stuck()
            for b, wait in zip(blocks, waits, strict=True):
                if wait == "spin":
                    b.wake([t for t in b.threads if t.wait == "spin"])
            return
        gone = [b.xyz for b in blocks if b.threads[0].exited]  # the first thread of a block speaks for it; others may have left
        if done or gone:
            first = next(t for t in blocks[0].threads if not t.exited)
            what = f"{done} blocks left the kernel" if done else f"the first thread of block {gone[0]} left the kernel"
            raise self.fault(DivergentBarrier, f"grid sync, but {what}", first, first.frame)
        live = [[t for t in b.threads if not t.exited] for b in blocks]
        if self.order_of is not None:
            self.order_of.grid([t for threads in live for t in threads])
        for b, threads in zip(blocks, live, strict=True):
            b.wake(threads)

    def fault(self, kind: type[SimtError], what: str, t: Thread, frame: FrameType | None, other: str | None = None) -> SimtError:
        """An error of the simulator's own, with everything that names the place."""
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        message = f"{kind.kind} in {self.name}, block {t.block.xyz}, thread {t.xyz}, {place(frame)}: {what}"
        return kind(Report(kind.kind, self.name, t.block.xyz, t.xyz, file, line, other, message))

    def _annotate(self, error: Exception) -> None:
        """Puts thread and block in front of the text of an exception that the kernel itself raised."""
        t = S.thread
        if t is None or isinstance(error, SimtError):
            return
        where = f"tid={list(t.xyz)} ctaid={list(t.block.xyz)}"
        if not error.args:
            error.args = (where,)
        elif len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{where}: {error.args[0]}",)
        error.add_note(f"in kernel {self.name}, block {t.block.xyz}, thread {t.xyz}")
