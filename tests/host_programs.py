"""The host emulator in tests: programs of emulator_programs/, built once a session and run by ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np

from emu.host import build as host

PROGRAMS = Path(__file__).parent / "emulator_programs"
FORWARD, REVERSE, SHUFFLE = 0, 1, 2
INVALID_VALUE, INVALID_CONFIGURATION, ILLEGAL_ADDRESS, TIMEOUT, ASSERT, MISALIGNED, LAUNCH_FAILURE = 1, 9, 700, 702, 710, 716, 719


def compilers() -> list[str]:
    """One g++ and one clang++, of those that this machine has."""
    found: list[str] = []
    for family in ("g++", "clang++"):
        names = [family, *(f"{family}-{number}" for number in range(22, 10, -1))]
        found += [path for path in map(shutil.which, names) if path][:1]
    return found


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="samebits-host-")


@functools.cache
def load(program: str, compiler: str | None = None) -> ctypes.CDLL:
    """A program's library."""
    out = Path(_folder().name) / f"{program}-{Path(compiler or 'default').name}.so"
    host.build(PROGRAMS / f"{program}.cu", out=out, compiler=compiler)
    library = ctypes.CDLL(str(out))
    library.samebits_last_error.restype = ctypes.c_char_p
    return library


def set_order(library: ctypes.CDLL, order: int, seed: int = 0) -> None:
    """Order of threads, warps and blocks of the launches to come."""
    library.samebits_set_order(order, ctypes.c_uint64(seed))


def reset(library: ctypes.CDLL) -> None:
    """As it was when the library was loaded."""
    set_order(library, FORWARD)
    library.samebits_set_workers(0)
    library.samebits_set_poison(0xFF)
    library.samebits_set_patience(ctypes.c_double(10))
    library.samebits_set_arch(b"sm_90")
    library.samebits_clear_error()


def at(array: np.ndarray) -> ctypes.c_void_p:
    """Address of an array's first element."""
    return array.ctypes.data_as(ctypes.c_void_p)


def text(library: ctypes.CDLL) -> str:
    """What the emulator said of the last failure."""
    return library.samebits_last_error().decode()
