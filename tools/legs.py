"""The legs: the ways in which a kernel's texts can be run. Each takes a checked Call over placed memory and computes in place.

A leg that cannot run on this machine says why (``missing``), and one that cannot run a certain call says that too (``declines``):
both are counted, nothing is skipped in silence.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from kernels_cu import build
from pyref.spec import Call
from tools import device, numba_gpu, ports
from tools.arena import Region

_WILD = (700, 716)  # cudaErrorIllegalAddress, cudaErrorMisalignedAddress
_ORDERS = ("forward", "reverse", "shuffle")  # of the emulator; "shuffle:SEED"


def _known(order: str) -> str:
    """The order. Raises ValueError where there is none of that name."""
    if not re.fullmatch(r"forward|reverse|shuffle(:\d+)?", order):
        raise ValueError(f"no order {order!r} of threads; there are forward, reverse, shuffle:SEED")
    return order


class LegError(RuntimeError):
    """A leg failed to run a kernel: the text names leg, kernel and cause."""


class Leg(Protocol):
    """One way to run a kernel."""

    name: str

    def missing(self) -> str | None:
        """Why this leg cannot run on this machine; None where it can."""

    def declines(self, call: Call) -> str | None:
        """Why this leg does not run this call; None where it does."""

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        """Computes the call in place. ``regions``: the buffers under the call's arrays."""


class Ref:
    """``pyref/<stem>.py``: the definition."""

    name = "ref"

    def missing(self) -> str | None:
        return None

    def declines(self, call: Call) -> str | None:
        return None

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        importlib.import_module(f"pyref.{call.kernel.stem}").run.body(call)


class Sim:
    """``emu/<stem>.py`` under numba's simulator with the scheduler of ``emu.simt``: under checks, but for slow cases."""

    name = "sim"
    #: Arithmetic steps that the simulator does in about five seconds.
    LIMIT = 2_000_000
    #: What it does in about 0.1 s under checks. Cases with more steps run only where nothing is known of them from the same sources
    #: (`tools.golden`), and without checks.
    QUICK = 30_000

    def __init__(self, order: str = "forward") -> None:
        self.order = _known(order)

    def missing(self) -> str | None:
        absent = [name for name in ("numba", "greenlet") if importlib.util.find_spec(name) is None]
        if absent:
            return f"{' and '.join(absent)} not installed"
        if os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1") != "1":
            return "NUMBA_ENABLE_CUDASIM is set to something other than 1"
        return None

    def declines(self, call: Call) -> str | None:
        work = call.kernel.work(call)
        return f"too large for the simulator ({work:,} steps, limit {self.LIMIT:,})" if work > self.LIMIT else None

    def slow(self, call: Call) -> bool:
        """Whether a run takes so long that it is made once, without checks."""
        return self.order == "forward" and self.QUICK < call.kernel.work(call) <= self.LIMIT

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        from emu import simt

        try:
            with simt.running(check=not self.slow(call), order=self.order, operators="python"):
                importlib.import_module(f"emu.{call.kernel.stem}").launch(call)
        except simt.SimtError as error:
            raise LegError(f"{self.name}: {call.kernel.stem}: {error}") from error


class Host:
    """The kernel's source built by g++ or clang++, run by the emulator of ``emu/host``, threads in one of its orders."""

    plain = "host"

    def __init__(self, order: str = "forward") -> None:
        self.order = _known(order)
        self.name = self.plain if order == "forward" else f"{self.plain} {order}"

    def missing(self) -> str | None:
        from emu.host import build as host

        return None if host.find_compiler() else "no C++ compiler (g++ or clang++)"

    def declines(self, call: Call) -> str | None:
        return None

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        self.launch(build.load(build.host_library(call.kernel, call.constants())), call)

    def launch(self, library: ctypes.CDLL, call: Call) -> None:
        """Calls the kernel's C function over the call's arrays. Raises LegError with the emulator's text where it fails."""
        mode, _, seed = self.order.partition(":")
        library.samebits_set_order(_ORDERS.index(mode), ctypes.c_uint64(int(seed or 0)))
        params = call.params(lambda array: array.ctypes.data)
        code = getattr(library, call.kernel.stem)(ctypes.byref(params), None)
        if code:
            library.samebits_last_error.restype = ctypes.c_char_p
            hint = "; the leg host-check names the line" if code in _WILD and self.plain == "host" else ""
            raise LegError(f"{self.name}: {call.kernel.stem}: error {code}: {library.samebits_last_error().decode()}{hint}")


class HostCheck(Host):
    """The host leg while the emulator watches every access: whatever it reports is an error. It takes part where it is asked for."""

    plain = "host-check"

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        from emu.host import checks

        library = build.load(build.host_library(call.kernel, call.constants(), check=True))
        memory = {}
        for name, array in call.arrays.items():
            if array is not None:
                low, high = np.lib.array_utils.byte_bounds(array)
                memory[name] = checks.Memory(low, high - low)
        failed = []
        with checks.watching(library, memory) as found:
            try:
                self.launch(library, call)
            except LegError as error:
                failed = [str(error)]
        if found or failed:
            raise LegError("\n".join([f"{self.name}: {call.kernel.stem}:", *map(checks.describe, found), *failed]))


def on_host(call: Call, name: str, region: Region) -> bool:
    """Whether an argument stays in host memory when a GPU runs the call."""
    where = call.kernel.tensors[name].where
    return where == "host" or (where == "any" and region.host)


class Gpu:
    """``kernels_cu/<stem>.cu`` built by nvcc, run on the machine's GPU."""

    name = "gpu"

    def missing(self) -> str | None:
        return device.missing() or (None if build.find_nvcc() else "no nvcc")

    def declines(self, call: Call) -> str | None:
        return "a kernel of the CPU" if call.kernel.cpu else None

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        library = build.load(build.gpu_library(call.kernel, call.constants(), device.current().arch))
        with device.Memory() as memory:
            moved = {name: memory.upload(region.buffer) for name, region in regions.items() if not on_host(call, name, region)}
            place = {name: moved.get(name, region.buffer.ctypes.data) + region.offset for name, region in regions.items()}
            by_address = {region.view.ctypes.data: place[name] for name, region in regions.items()}
            params = call.params(lambda array: by_address[array.ctypes.data])
            code = getattr(library, call.kernel.stem)(ctypes.byref(params), None)
            if code:
                raise LegError(f"gpu: {call.kernel.stem}: CUDA error {code}")
            device.synchronize(call.kernel.stem)
            for name, address in moved.items():
                memory.download(regions[name].buffer, address)


class NumbaGpu:
    """``emu/<stem>.py`` compiled by numba-cuda, run on the machine's GPU by a process of its own."""

    name = "numba-gpu"

    def missing(self) -> str | None:
        return numba_gpu.missing()

    def declines(self, call: Call) -> str | None:
        return None if ports.has_kernel(call.kernel.stem) else "the port has no kernel"

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        try:
            numba_gpu.run(call, regions)
        except numba_gpu.WorkerError as error:
            raise LegError(f"numba-gpu: {call.kernel.stem}: {error}") from error


def complete(call: Call, regions: Mapping[str, Region]) -> dict[str, Region]:
    """Regions of every array of the call: outputs that the call allocated itself get buffers without guards."""
    found = dict(regions)
    for name, array in call.arrays.items():
        if array is not None and name not in found:
            low, high = np.lib.array_utils.byte_bounds(array)
            found[name] = Region(np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low)), array)
    return found


@functools.cache
def all_legs() -> tuple[Leg, ...]:
    """The legs that cases run on where they can, the definition first."""
    return (Ref(), Sim(), Host(), Gpu(), NumbaGpu())


def leg(name: str) -> Leg:
    """The leg of that name; "host ORDER", "host-check ORDER" and "sim ORDER" run threads in another order. Raises ValueError where there is
    none."""
    plain, _, order = name.partition(" ")
    named = {found.name: found for found in (*all_legs(), HostCheck())}
    if plain not in named or (order and not hasattr(named[plain], "order")):
        raise ValueError(f"no leg {name!r}; there are {', '.join(named)}")
    return type(named[plain])(order) if order else named[plain]  # type: ignore[call-arg]
