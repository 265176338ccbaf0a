"""Runs a function of a library that was built with ``check=True`` while every access of its kernels is watched."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

OFF, ON, STRICT = 0, 1, 2


@dataclass(frozen=True)
class Memory:
    """Bytes that kernels may touch: address, length, and whether they may be read before they are written."""

    address: int
    nbytes: int
    initialised: bool = True


@contextlib.contextmanager
def watching(library: ctypes.CDLL, memory: Mapping[str, Memory]) -> Iterator[list[dict[str, object]]]:
    """While the context lasts, kernels of `library` may touch `memory` alone; its names stand in reports.

    Yields a list that is filled when the context ends: a dict {kind, kernel, block, thread, file, line, other, message} for each fault,
    `other` being the second access of a race or None. A launch runs its blocks one after the other on one core.
    """
    library.samebits_reports.restype = ctypes.c_char_p
    library.samebits_set_check(STRICT)
    library.samebits_clear_reports()
    found: list[dict[str, object]] = []
    try:
        for name, part in _apart(memory).items():
            library.samebits_register(
                ctypes.c_void_p(part.address), ctypes.c_ulonglong(part.nbytes), name.encode(), ctypes.c_int(part.initialised)
            )
        yield found
        found.extend(json.loads(library.samebits_reports()))
    finally:
        for part in _apart(memory).values():
            library.samebits_unregister(ctypes.c_void_p(part.address))
        library.samebits_set_check(OFF)


def _apart(memory: Mapping[str, Memory]) -> dict[str, Memory]:
    """The same bytes as parts that do not overlap: arrays whose rows lie between each other's become one."""
    found: list[tuple[str, Memory]] = []
    for name, part in sorted(memory.items(), key=lambda item: item[1].address):
        if found and part.address < (end := found[-1][1].address + found[-1][1].nbytes):
            other, before = found.pop()
            nbytes = max(end, part.address + part.nbytes) - before.address
            found.append((f"{other}, {name}", Memory(before.address, nbytes, before.initialised or part.initialised)))
        elif part.nbytes:
            found.append((name, part))
    return dict(found)


def describe(report: Mapping[str, object]) -> str:
    """A report in one line, or in two where another access belongs to it."""

    def where(place: Mapping[str, object]) -> str:
        block, thread = place.get("block"), place.get("thread")
        return "" if block is None else f" [block {tuple(block)}, thread {tuple(thread)}]"  # type: ignore[arg-type]

    kernel = f" in {report['kernel']}" if report["kernel"] else ""
    at = f"{report['file']}:{report['line']}: " if report["line"] else ""
    text = f"{at}{report['kind']}{kernel}{where(report)}: {report['message']}"
    other = report["other"]
    return text + (f"\n    {other['file']}:{other['line']}: the other access{where(other)}" if isinstance(other, dict) else "")
