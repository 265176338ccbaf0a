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
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=227 * 1024, MAX_REGISTERS_PER_BLOCK=65536, TOTAL_CONSTANT_MEMORY=65536, COOPERATIVE_LAUNCH=1,
    reset=lambda: None, synchronize=lambda: None,
)  # fmt: skip


def get_current_device() -> SimpleNamespace:
    """The simulated device, with the attributes of an sm_90."""
    return _DEVICE


def attribute(device: Any, name: str) -> Any:
    """An attribute that the simulator's device or its context lacks."""
    return getattr(_DEVICE, name)


def is_supported_version() -> bool:
    """Whether the toolkit is one that numba knows: none is used."""
    return True


def is_cuda_array(x: Any) -> bool:
    """Whether x is a device array."""
    return hasattr(x, "_ary") or hasattr(x, "__cuda_array_interface__")


def managed_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", **options: Any) -> np.ndarray:
    """An array that host and device share."""
    return poison(np.ndarray(shape, dtype, strides=strides, order=order))


def profile_start() -> None:
    """Profilers see nothing of a simulation."""


profile_stop = profile_start


class Stream:
    """A stream: everything is done when its call returns."""

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Synchronises at the end of the block."""
        yield self

    def add_callback(self, callback: Callable[..., Any], arg: Any = None) -> None:
        """Calls callback(stream, status, arg)."""
        callback(self, 0, arg)

    def async_done(self, future: Any = None) -> Any:
        """An awaitable that is done."""
        import asyncio

        future = future or asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def __int__(self) -> int:
        return 0


class Event:
    """An event: time does not pass between two."""

    def __init__(self, timing: bool = True) -> None:
        pass

    def record(self, stream: Any = 0) -> None:
        """Marks the work before it, which is done."""

    def wait(self, stream: Any = 0) -> None:
        """Nothing is left to wait for."""

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def query(self) -> bool:
        """Whether the work before it is done."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until another event."""
        return 0.0


@contextmanager
def pinned(*arrays: Any) -> Iterator[None]:
    """Host arrays whose pages stay in memory."""
    yield


@contextmanager
def mapped(*arrays: Any, **options: Any) -> Iterator[Any]:
    """Host arrays as a kernel sees them: one, or a list of several."""
    yield arrays[0] if len(arrays) == 1 else list(arrays)


def mapped_array_like(array: Any, **options: Any) -> np.ndarray:
    """An array of the same kind that host and device share."""
    return poison(np.empty_like(array))


pinned_array_like = mapped_array_like


def as_cuda_array(x: Any, sync: bool = True) -> Any:
    """A device array over the memory of an object with the CUDA array interface: here x itself."""
    return x


def event_elapsed_time(start: Any, end: Any) -> float:
    """Milliseconds between two events: time does not pass."""
    return 0.0


@contextmanager
def profiling() -> Iterator[None]:
    """See `profile_start`."""
    yield


def device_array_over(shape: Any, strides: Any, dtype: Any, gpu_data: Any) -> Any:
    """A device array over another one's memory: generalised ufuncs repeat an input along an axis by a stride of 0."""
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    shape = (shape,) if isinstance(shape, int) else shape
    return FakeCUDAArray(np.lib.stride_tricks.as_strided(gpu_data, shape, strides))


def _poisoned(create: Callable[..., Any]) -> Callable[..., Any]:
    def created(*args: Any, **kwargs: Any) -> Any:
        array = create(*args, **kwargs)
        poison(array._ary)
        return array

    return created


_ABSENT = (as_cuda_array, event_elapsed_time, get_current_device, is_cuda_array, is_supported_version, managed_array,
           mapped_array_like, pinned_array_like, profile_start, profiling)  # fmt: skip


def names(cuda: Any) -> dict[str, Any]:
    """What to add to the module `cuda`."""
    absent = {f.__name__: f for f in _ABSENT} | {"profile_stop": profile_stop}
    absent |= dict.fromkeys(("default_stream", "legacy_default_stream", "per_thread_default_stream"), Stream)
    found = {name: value for name, value in absent.items() if not hasattr(cuda, name)}
    found |= {"stream": Stream, "event": Event, "pinned": pinned, "mapped": mapped}
    return found | {name: _poisoned(getattr(cuda, name)) for name in ("device_array", "device_array_like")}
