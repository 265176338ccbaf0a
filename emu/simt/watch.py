"""Ends threads that look at memory for ever. A thread that spins on a plain load waits for a write that cannot come: here it never yields.

One sleeping Python thread watches the running launch. Where a CUDA thread has used so much processor time without anything in its frames
changing, not one local variable, it raises `Spinning` inside it, which `Launch.run` turns into a report.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from types import FrameType
from typing import Any

from emu.simt.state import S

INTERVAL, PATIENCE = 0.1, 3.0  # seconds between looks; seconds of the process's time, so that a debugger's prompt does not count


class Spinning(BaseException):
    """Raised inside a CUDA thread that makes no progress."""


def _state(frame: FrameType | None) -> list[Any]:
    """The CUDA thread, and what the frames of the kernel and its device functions hold, the outermost first; without the simulator's."""
    found: list[Any] = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == "emu.simt.block":
            return [S.thread, *reversed(found)] if found else []
        if name == "emu.simt.shadow" and frame.f_code.co_name == "wake":  # the simulator works, not the thread
            return []
        if not name.startswith("emu.simt."):
            found.append((frame.f_code, [(key, id(value)) for key, value in frame.f_locals.items()]))
        frame = frame.f_back
    return []  # no thread runs


class Watch:
    """The watching thread. `begin` and `end` stand around a launch."""

    def __init__(self) -> None:
        self._running = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched = 0

    def begin(self) -> None:
        """The calling Python thread runs a launch from now on."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, name="emu.simt.watch", daemon=True)
            self._thread.start()
        self._watched = threading.get_ident()
        self._running.set()

    def end(self) -> None:
        """The launch is over."""
        self._running.clear()

    def _look(self) -> None:
        before: list[Any] = []
        since = 0.0
        while True:
            if not self._running.is_set():
                before = []
                self._running.wait()
            time.sleep(INTERVAL)
            now = _state(sys._current_frames().get(self._watched))
            common = min(len(now), len(before))  # a loop may or may not be inside the function that it calls
            if not common or now[:common] != before[:common]:
                before, since = now, time.process_time()
            elif time.process_time() - since > PATIENCE and self._running.is_set():
                before = []
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), ctypes.py_object(Spinning))


WATCH = Watch()
