"""Runs a process within limits of wall time, memory and output; what goes beyond one of them ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIRST_LOOK = 0.2  # seconds until a process's memory is looked at, and between looks


@dataclass(frozen=True)
class Limits:
    """`seconds` of wall time, bytes of resident `memory` and of `output` on both streams; None: no limit."""

    seconds: float = 600
    memory: int | None = None
    output: int | None = None


@dataclass(frozen=True)
class Ended:
    """The exit code, the output if it was kept, and which limit ended the process ("" if none)."""

    code: int
    output: bytes
    limit: str


class _Watch:
    """One process, the threads that read it and look at it, and the limit that it has reached."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], limits: Limits, keep: bool) -> None:
        piped = keep or limits.output is not None
        self.limits, self.limit, self.written = limits, "", 0
        self.kept = bytearray()
        self.lock = threading.Lock()
        self.done = threading.Event()
        out, err = (subprocess.PIPE, subprocess.STDOUT if keep else subprocess.PIPE) if piped else (None, None)
        self.process = subprocess.Popen(command, env=dict(environment), stdout=out, stderr=err)
        streams = [(self.process.stdout, None if keep else sys.stdout.buffer), (self.process.stderr, sys.stderr.buffer)]
        self.readers = [threading.Thread(target=self.read, args=pair, daemon=True) for pair in streams if pair[0] is not None]

    def stop(self, limit: str) -> None:
        with self.lock:
            self.limit = self.limit or limit
        self.process.kill()

    def read(self, stream: IO[bytes], target: IO[bytes] | None) -> None:
        while chunk := os.read(stream.fileno(), 1 << 16):
            with self.lock:
                left = None if self.limits.output is None else max(0, self.limits.output - self.written)
                self.written += len(chunk)
                (self.kept.extend if target is None else target.write)(chunk[:left])
                if target is not None:
                    target.flush()
            if left is not None and len(chunk) > left:
                self.stop(f"output limit of {self.limits.output:,} bytes reached")
                return

    def look(self) -> None:
        while self.limits.memory is not None and not self.done.wait(_FIRST_LOOK):
            try:
                with open(f"/proc/{self.process.pid}/statm") as file:
                    resident = int(file.read().split()[1]) * _PAGE
            except (OSError, IndexError):
                return  # it has ended, or this system has no such file
            if resident > self.limits.memory:
                self.stop(f"memory limit of {self.limits.memory >> 20:,} MiB reached")
                return

    def run(self) -> Ended:
        looker = threading.Thread(target=self.look, daemon=True)
        try:
            for thread in (*self.readers, looker):
                thread.start()
            code = self.process.wait(self.limits.seconds)
        except subprocess.TimeoutExpired:
            self.stop(f"time limit of {self.limits.seconds:g} s reached")
            code = self.process.wait()
        except BaseException:  # an interrupt from the keyboard
            self.process.kill()
            raise
        self.done.set()
        for thread in (*self.readers, looker):
            thread.join()
        return Ended(code, bytes(self.kept), self.limit)


def run(command: Sequence[str], environment: Mapping[str, str], limits: Limits, keep: bool = False) -> Ended:
    """Runs a command; with `keep` both its streams are returned in the order written, else they go where this process's go."""
    return _Watch(command, environment, limits, keep).run()
