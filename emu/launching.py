"""Ports under another roof: what a port launches goes to a function of this process's choice instead of straight to a GPU.

A port's ``launch(call)`` works on host arrays and ends in ``kernel[grid, block, stream, shared](*args)``. `take_over` lets a process
decide what that means: place the arrays in device memory first (``tools.numba_gpu``), or only compile (``tools.compile_ports``). It must
run before a port is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch by a port: ``kernel`` is numba's dispatcher; ``grid`` and ``block`` as the port wrote them, ``shared`` in bytes."""

    kernel: Any
    grid: Any
    block: Any
    shared: int
    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The kernel's name in its source."""
        return self.kernel.py_func.__name__

    def signature(self) -> tuple[Any, ...]:
        """numba's types of the arguments."""
        return tuple(map(self.kernel.typeof_pyval, self.args))


class _Kernel:
    """Stands for a dispatcher where the port launches it; everything else is the dispatcher's."""

    def __init__(self, kernel: Any, handle: Callable[[Launch], None]) -> None:
        self._kernel, self._handle = kernel, handle

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        grid, block, _, shared = (*configuration, 0, 0)[:4] if len(configuration) < 4 else configuration
        return lambda *args: self._handle(Launch(self._kernel, grid, block, shared, args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def take_over(handle: Callable[[Launch], None]) -> None:
    """From now on kernels that `cuda.jit` makes in this process give their launches to ``handle``. Device functions stay numba's."""
    from numba import cuda

    original = cuda.jit

    def jit(function: Any = None, **options: Any) -> Any:
        made = original(function, **options)
        if options.get("device"):
            return made
        return _Kernel(made, handle) if inspect.isfunction(function) else lambda body: _Kernel(made(body), handle)

    cuda.jit = jit
