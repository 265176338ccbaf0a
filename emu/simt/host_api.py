"""Host-side names of numba.cuda that its simulator lacks, and device arrays that start as poison. Names the simulator has stay its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.simt.memory import poison

_DEVICE = SimpleNamespace(
    id=0, name=b"SIMULATOR", compute_capability=(9, 0), WARP_SIZE=32, MULTIPROCESSOR_COUNT=132, MAX_THREADS_PER_BLOCK=1024,
    MAX_BLOCK_DIM_X=1024, MAX_BLOCK_DIM_Y=1024, MAX_BLOCK_DIM_Z=64, MAX_GRID_DIM_X=2**31 - 1, MAX_GRID_DIM_Y=65535, MAX_GRID_DIM_Z=65535,
    MAX_SHARED_MEMORY_PER_BLOCK=48 * 1024, MAX_THREADS_PER_MULTI_PROCESSOR=2048, CLOCK_RATE=1_980_000,
)  # fmt: skip


def get_current_device() -> SimpleNamespace:
    """The simulated device, with the attributes of an sm_90."""
    return _DEVICE


def is_cuda_array(x: Any) -> bool:
    """Whether x is a device array."""
    return hasattr(x, "_ary") or hasattr(x, "__cuda_array_interface__")


def managed_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> np.ndarray:
    """An array that host and device share."""
    return poison(np.ndarray(shape, dtype, strides=strides, order=order))


def profile_start() -> None:
    """Profilers see nothing of a simulation."""


profile_stop = profile_start


def event_elapsed_time(start: Any, end: Any) -> float:
    """Milliseconds between two events: time does not pass."""
    return 0.0


@contextmanager
def profiling() -> Iterator[None]:
    """See `profile_start`."""
    yield


def _poisoned(create: Callable[..., Any]) -> Callable[..., Any]:
    def created(*args: Any, **kwargs: Any) -> Any:
        array = create(*args, **kwargs)
        poison(array._ary)
        return array

    return created


def names(cuda: Any) -> dict[str, Any]:
    """What to add to the module `cuda`."""
    added = {f.__name__: f for f in (event_elapsed_time, get_current_device, is_cuda_array, managed_array, profile_start, profiling)}
    make_event = cuda.event
    added["profile_stop"] = profile_stop
    for stream in ("default_stream", "legacy_default_stream", "per_thread_default_stream"):
        added[stream] = cuda.stream
    found = {name: value for name, value in added.items() if not hasattr(cuda, name)}
    found["event"] = lambda timing=True: make_event()  # the simulator's takes no arguments
    return found | {name: _poisoned(getattr(cuda, name)) for name in ("device_array", "device_array_like")}
