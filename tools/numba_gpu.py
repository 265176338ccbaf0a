"""The ports on a real GPU: ``emu/<stem>.launch(call)`` compiled by numba-cuda, in a process of its own.

A process has either numba's simulator or its GPU, so the leg ``numba-gpu`` keeps one worker (``python -m tools.numba_gpu``) and speaks with
it over its pipes. The worker copies every whole buffer to the device, guards and poison too, gives the port's kernels arrays over those
copies with the strides and offsets that the port made on the host, and sends the buffers back as they are after the run.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from emu import launching
from pyref.spec import DTYPES, Array, Call, Scalar, dtype_name
from tools import device
from tools.arena import Region
from tools.ports import ROOT

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class WorkerError(RuntimeError):
    """The worker could not run a port; its text is the cause."""


# -- a call as plain data ------------------------------------------------------------------------------------------------------------


def pack(call: Call, regions: Mapping[str, Region]) -> dict[str, Any]:
    """The arguments of a call: numbers, and (buffer, shape, dtype name, offset, strides) for every array."""
    packed: dict[str, Any] = {
        name: (region.buffer, region.view.shape, dtype_name(region.view), region.offset, region.view.strides)
        for name, region in regions.items()
    }
    given = {name: arg for name, arg in call.kernel.args.items() if isinstance(arg, Scalar) and not arg.computed}
    return packed | {name: call.scalars[name] for name in given}


def unpack(stem: str, packed: Mapping[str, Any]) -> tuple[Call, dict[str, Region]]:
    """The call again, over copies of the buffers that are aligned as the first ones were."""
    regions, numbers = {}, {}
    for name, value in packed.items():
        if isinstance(value, tuple):
            buffer, shape, dtype, offset, strides = value
            regions[name] = Region(buffer, np.ndarray(shape, DTYPES[dtype][0], buffer, offset, strides)).copy()
        else:
            numbers[name] = value
    kernel = importlib.import_module(f"pyref.{stem}").SPEC
    return kernel.bind({**{name: region.view for name, region in regions.items()}, **numbers}), regions


# -- the worker ----------------------------------------------------------------------------------------------------------------------


class Machine:
    """What the worker asks of the device. Tests give it another one."""

    memory: Callable[[], Any] = device.Memory

    def array(self, like: Array, address: int) -> Any:
        """What a kernel takes for an array like this one at a device address."""
        from numba import cuda

        interface = {"shape": like.shape, "strides": like.strides, "typestr": like.dtype.str, "data": (address, False), "version": 3}
        return cuda.from_cuda_array_interface(interface)

    def launch(self, launch: launching.Launch, args: tuple[Any, ...]) -> None:
        """Launches the port's kernel."""
        kernel = launch.kernel
        if launch.shared:  # with what the kernel declares it may be more than the 48 KiB that need no permission
            compiled = kernel.compile(tuple(map(kernel.typeof_pyval, args)))
            handle = ctypes.c_void_p(int(compiled._codelibrary.get_cufunc().handle))
            device._call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, launch.shared, handle, 0)
        kernel[launch.grid, launch.block, 0, launch.shared](*args)

    def synchronize(self, name: str) -> None:
        """Waits for the kernels of a port."""
        device.synchronize(name)


class Worker:
    """Runs ports on a machine. `handle` is what `launching.take_over` gets."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._moved: list[tuple[Region, int]] = []  # buffers and their device addresses

    def handle(self, launch: launching.Launch) -> None:
        """A launch by the port."""
        self._machine.launch(launch, tuple(map(self._argument, launch.args)))

    def _argument(self, value: Any) -> Any:
        """An array in a buffer becomes one in that buffer's copy; numba copies what else a port makes (empty arrays for absent ones)."""
        if not isinstance(value, np.ndarray) or value.size == 0:
            return value
        for region, address in self._moved:
            offset = value.ctypes.data - region.buffer.ctypes.data
            if 0 <= offset < region.buffer.size:
                return self._machine.array(value, address + offset)
        return value

    def run(self, stem: str, packed: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Runs the port over copies of the packed buffers; the buffers as they are afterwards."""
        call, regions = unpack(stem, packed)
        with self._machine.memory() as memory:
            self._moved = [(region, memory.upload(region.buffer)) for region in regions.values()]
            try:
                importlib.import_module(f"emu.{stem}").launch(call)
                self._machine.synchronize(stem)
                for region, address in self._moved:
                    memory.download(region.buffer, address)
            finally:
                self._moved = []
        return {name: region.buffer for name, region in regions.items()}


def unusable() -> str | None:
    """Why numba-cuda cannot run here, asked in the worker; None where it can."""
    try:
        from numba import cuda
        from numba.core import config

        if config.ENABLE_CUDASIM:
            return "NUMBA_ENABLE_CUDASIM is set"
        if not cuda.is_available():
            error = cuda.cuda_error()
            return f"numba-cuda finds no GPU{f': {error}' if error else ''}"
        cuda.jit(lambda x: None)[1, 1](np.zeros(1, np.int32))  # compiling is what a release of NumPy breaks
        cuda.synchronize()
    except Exception as error:  # whatever stops numba-cuda is a reason that the leg must show
        return f"numba-cuda cannot be used with NumPy {np.__version__}: {type(error).__name__}: {error}"
    return None


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """The worker's loop: first why it cannot run (or None), then (buffers, None) or (None, error) for every (stem, packed call)."""
    reason = device.missing() or unusable()
    _send(answers, reason)
    if reason:
        return
    worker = Worker(Machine())
    launching.take_over(worker.handle)
    while True:
        try:
            stem, packed = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = worker.run(stem, packed), None
        except Exception as error:  # the other process shows it beside the case
            while error.__context__:  # memory cannot be freed either after a fault: the first error is the cause
                error = error.__context__
            answer = None, f"{type(error).__name__}: {error}"
        _send(answers, answer)


def _send(pipe: BinaryIO, value: Any) -> None:
    pickle.dump(value, pipe, protocol=5)
    pipe.flush()


# -- the other side ------------------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of a process in which numba.cuda is not its simulator; small grids and host arrays are meant, no cause to warn."""
    quiet = {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}
    return {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"} | quiet


class Process:
    """A worker and the pipes to it. ``reason``: why it cannot run ports, or None."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "tools.numba_gpu")) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=ROOT)
        self.reason: str | None = self._receive()

    def _receive(self) -> Any:
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            raise WorkerError(f"the worker ended with exit code {self._process.wait()}") from None

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        """Computes a call in place. Raises WorkerError."""
        try:
            _send(self._process.stdin, (call.kernel.stem, pack(call, regions)))
            buffers, error = self._receive()
        except BrokenPipeError:
            raise WorkerError(f"the worker ended with exit code {self._process.wait()}") from None
        if error:
            raise WorkerError(error)
        for name, region in regions.items():
            region.buffer[:] = buffers[name]

    def close(self) -> None:
        """Ends the worker."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@functools.cache
def _process() -> Process:
    return Process()


@functools.cache
def missing() -> str | None:
    """Why the leg cannot run on this machine; None where it can."""
    if device.missing():
        return device.missing()
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed"
    try:
        return _process().reason
    except WorkerError as error:
        return str(error)


def run(call: Call, regions: Mapping[str, Region]) -> None:
    """Computes a call in place on the GPU. Raises WorkerError; a worker that failed is replaced, since a fault ends its context."""
    process = _process()
    try:
        process.run(call, regions)
    except WorkerError:
        process.close()
        _process.cache_clear()
        raise


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not meet the answers
    serve(sys.stdin.buffer, pipe)
