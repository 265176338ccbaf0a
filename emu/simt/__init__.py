"""A scheduler for numba.cuda's simulator: kernels run on greenlets, with every warp operation, and under checks.

    import emu.simt
    with emu.simt.running(check=True, order="shuffle:1"):
        kernel[grid, block, stream, shared_bytes](*arrays)

`install()` does it for the whole process; `python -m emu.simt SCRIPT.py` for a script. NUMBA_ENABLE_CUDASIM=1 must be set before numba is
imported; importing nothing of numba before `install()` is enough. This module itself imports neither numba nor greenlet.

Operators, casts, `math` and stores of a kernel give what numba's compiler would make of them (`emu.simt.operators`, `functions`, `typed`),
unless `operators="python"` is asked for. What remains different from a GPU: a * b + c is rounded twice, where numba's compiler fuses it
(`cuda.fma` is fused on both); the last bits of exp, sin and their like; a variable has the type of the value it holds at the moment, where
numba gives it one for all; the masks of ballot_sync and match_*_sync are never negative (numba's are int32), and popc, clz and ffs take an
int of up to 32 bits (an int8 too) for an int32, since threadIdx.x is one; brev of an int64 keeps its upper half, which numba cuts off; a
kernel without source (made by exec) computes as Python and NumPy do.

Processes that a script starts run numba's own scheduler, unless they are forks. A poll of plain memory that counts its rounds, or that
contains a barrier, is never found to be endless: an interrupt (Ctrl-C) says where it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.simt.errors import (
        DataRace,
        Deadlock,
        DivergentBarrier,
        MissingLane,
        OutOfBounds,
        Report,
        SimtError,
        UninitialisedRead,
    )
    from emu.simt.kernel import install, installed, running, uninstall
    from emu.simt.state import Options

_ERRORS = ("DataRace", "Deadlock", "DivergentBarrier", "MissingLane", "OutOfBounds", "Report", "SimtError", "UninitialisedRead")
_KERNEL = ("install", "installed", "running", "uninstall")
__all__ = [
    "DataRace", "Deadlock", "DivergentBarrier", "MissingLane", "Options", "OutOfBounds", "Report", "SimtError", "UninitialisedRead",
    "device", "install", "installed", "running", "simulated", "uninstall", "written",
]  # fmt: skip

written: dict[str, Callable[..., Any]] = {}
"""Device functions declared by `device`, as they stand in the source."""

declared = SimpleNamespace(functions=[], capability=None)  # numba's dispatchers of device functions, and what they were compiled for


def __getattr__(name: str) -> Any:
    if name in _ERRORS:
        from emu.simt import errors as module
    elif name in _KERNEL:
        from emu.simt import kernel as module
    elif name == "Options":
        from emu.simt import state as module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def simulated() -> bool:
    """Whether numba.cuda is (or will be) its simulator in this process."""
    if "numba" not in sys.modules:
        return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
    from numba.core import config

    return bool(config.ENABLE_CUDASIM)


def device(fn: Callable[..., Any] | None = None, *, sim: Callable[..., Any] | None = None) -> Any:
    """Declares a device function. On a GPU numba compiles `fn`; the simulator calls `sim`, a faster equal, or `fn` itself.

    `written["module.name"]` is the function as written, for tests of the one against the other.
    """

    def declare(f: Callable[..., Any]) -> Any:
        written[f"{f.__module__}.{f.__name__}"] = f
        if simulated():
            return sim or f
        from numba import cuda

        function = cuda.jit(device=True)(f)
        declared.functions.append(function)
        return function

    return declare if fn is None else declare(fn)
