"""Compiles ports to PTX without a GPU, through numba-cuda, for the check of C2 (`tools.ptx.audit` reads the text).

Runs in a process without NUMBA_ENABLE_CUDASIM. numba-cuda asks the current device for its compute capability when one device function calls
another; here the architecture that is compiled for answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

Capability = tuple[int, int]


@contextmanager
def _compiling_for(cc: Capability) -> Iterator[None]:
    from numba.cuda import dispatcher

    from emu.simt import declared

    if declared.capability != cc:  # compiled device functions are cached by argument types alone
        for function in declared.functions:
            function.overloads.clear()
        declared.capability = cc
    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=cc)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


def compile_ptx(function: Any, signature: tuple[Any, ...], cc: Capability = (9, 0), device: bool = False) -> str:
    """PTX of a `@cuda.jit` kernel, or of a device function, for the argument types `signature` (numba types).

    Raises RuntimeError under the simulator, and numba's own errors for code that numba cannot compile.
    """
    from emu.simt import simulated

    if simulated():
        raise RuntimeError("compile_ptx needs a process without NUMBA_ENABLE_CUDASIM")
    from numba import cuda

    with _compiling_for(cc):
        return cuda.compile_ptx(getattr(function, "py_func", function), signature, device=device, cc=cc)[0]
