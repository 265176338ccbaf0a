"""Puts the scheduler behind numba's simulator: the same `cuda` names, the same kernels, launched by `launch.Launch`.

`install` replaces methods of the simulator's kernel class and names in the numba.cuda module; `uninstall` puts everything back. Both
packages, numba's built-in target and numba-cuda, have the same two places.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from types import ModuleType
from typing import Any

import numpy as np

from emu.simt import arith, atomics, host_api, intrinsics, libdevice, memory, simulated, warp
from emu.simt.checked import Checked
from emu.simt.errors import SimtError
from emu.simt.launch import Launch, check_geometry
from emu.simt.shadow import Order, Region
from emu.simt.state import Options, S, blockDim, blockIdx, gridDim, threadIdx
from emu.simt.typed import Declared, casts, typed

NAMES: dict[str, Any] = {
    "threadIdx": threadIdx, "blockIdx": blockIdx, "blockDim": blockDim, "gridDim": gridDim, "laneid": 0, "warpsize": 32,
    "shared": memory.Shared(), "local": memory.Local(), "const": memory.Const(), "atomic": atomics.Atomic(), "fp16": intrinsics.Fp16(),
    "cg": intrinsics.Cg(), "fma": arith.fma,
}  # fmt: skip
for _f in (
    intrinsics.grid, intrinsics.gridsize, intrinsics.syncthreads, intrinsics.syncthreads_count, intrinsics.syncthreads_and,
    intrinsics.syncthreads_or, intrinsics.threadfence, intrinsics.nanosleep, intrinsics.popc, intrinsics.brev, intrinsics.clz,
    intrinsics.ffs, intrinsics.selp, intrinsics.cbrt, warp.shfl_sync, warp.shfl_up_sync, warp.shfl_down_sync, warp.shfl_xor_sync,
    warp.shfl_sync_intrinsic, warp.vote_sync_intrinsic, warp.all_sync, warp.any_sync, warp.eq_sync, warp.ballot_sync,
    warp.match_any_sync, warp.match_all_sync, warp.syncwarp, warp.activemask, warp.lanemask_lt,
):  # fmt: skip
    NAMES[_f.__name__] = _f
NAMES["threadfence_block"] = NAMES["threadfence_system"] = intrinsics.threadfence
NAMES |= dict.fromkeys(("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), intrinsics.load)
NAMES |= dict.fromkeys(("stcg", "stcs", "stwb", "stwt"), intrinsics.store)

_lock = threading.RLock()  # one launch at a time
_saved: list[tuple[Any, str, Any]] = []
_MISSING = object()


def simulator() -> ModuleType:
    """numba.cuda with its simulator. Raises RuntimeError where numba was imported without NUMBA_ENABLE_CUDASIM=1."""
    if "numba" not in sys.modules:
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from numba import cuda

    if not simulated():
        raise RuntimeError("numba was imported without NUMBA_ENABLE_CUDASIM=1: set it before numba is imported")
    return cuda


def _replace(owner: Any, name: str, value: Any) -> None:
    _saved.append((owner, name, owner.__dict__.get(name, _MISSING)))
    setattr(owner, name, value)


def installed() -> bool:
    """Whether kernels run on this scheduler now."""
    return bool(_saved)


def install(options: Options | None = None) -> None:
    """From now on every `@cuda.jit` kernel of the simulator runs on this scheduler. Call again to change the options."""
    S.options = options or S.options
    if _saved:
        return
    cuda = simulator()
    from numba.cuda import libdevice as stubs
    from numba.cuda.simulator.cudadrv import devicearray, devices
    from numba.cuda.simulator.kernel import FakeCUDAKernel

    for name, value in {**NAMES, **host_api.names(cuda)}.items():
        _replace(cuda, name, value)
    for name, value in list(vars(stubs).items()):
        if callable(value) and not name.startswith("_"):
            _replace(stubs, name, libdevice.FUNCTIONS.get(name) or libdevice.unknown(name))
    for device in (devices.FakeCUDADevice, devices.FakeCUDAContext):
        _replace(device, "__getattr__", host_api.attribute)
        _replace(device, "compute_capability", host_api.get_current_device().compute_capability)
    _replace(devicearray, "DeviceNDArray", host_api.device_array_over)
    _replace(devicearray.FakeCUDAArray, "gpu_data", property(lambda array: array._ary))
    _replace(FakeCUDAKernel, "__call__", _call)
    _replace(FakeCUDAKernel, "__getitem__", _configure)
    _replace(FakeCUDAKernel, "forall", _forall)
    _replace(cuda, "jit", _jit(cuda.jit))
    S.names = cuda.__dict__


def uninstall() -> None:
    """Gives numba its own simulator back."""
    while _saved:
        owner, name, value = _saved.pop()
        if value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


@contextmanager
def running(check: bool = False, order: str = "forward", races: bool | None = None, operators: str = "numba") -> Iterator[None]:
    """Kernels launched inside run on this scheduler. `races` follows `check` unless given; the others are those of `Options`."""
    was, before = installed(), S.options
    install(Options(check, check if races is None else races, order, operators))
    try:
        yield
    finally:
        S.options = before
        if not was:
            uninstall()


# --- what replaces the simulator's own ---


def _jit(original: Callable[..., Any]) -> Callable[..., Any]:
    """cuda.jit that leaves device functions what they are, so that calling one costs a plain call. Of what the compiler is told, one
    signature counts: arguments are cast to its types. (Several choose among themselves by what they are given.)"""
    known = set(inspect.signature(original).parameters)

    def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
        direct = inspect.isfunction(func_or_sig)
        signature = None if direct else _signature(func_or_sig)

        def declare(fn: Any) -> Any:
            if not device:
                kernel = original(device=False, **{k: v for k, v in options.items() if k in known})(fn)
                kernel.casts = casts(signature.args) if signature else []
                return kernel
            if signature:
                return Declared(fn, signature)
            fn.py_func = fn
            return fn

        return declare(func_or_sig) if direct else declare

    return jit


def _signature(given: Any) -> Any:
    """The signature that cuda.jit was given, or None where it got none or several."""
    from numba.core import sigutils, typing

    if isinstance(given, list):
        given = given[0] if len(given) == 1 else None
    if given is None:
        return None
    args, result = sigutils.normalize_signature(given)
    return typing.signature(result, *args)


class Configured:
    """A kernel with its launch configuration: `kernel[grid, block, stream, shared bytes]`."""

    def __init__(self, kernel: Any, grid: Any, block: Any, shared: int) -> None:
        self.kernel, self.grid, self.block, self.shared = kernel, grid, block, shared

    def __call__(self, *args: Any) -> None:
        _launch(self.kernel, self.grid, self.block, self.shared, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)


def _configure(kernel: Any, configuration: Any) -> Configured:
    from numba.cuda.errors import normalize_kernel_dimensions

    if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
        raise ValueError(f"kernel[...] takes grid, block, stream and dynamic shared bytes, got {configuration!r}")
    grid, block = normalize_kernel_dimensions(*configuration[:2])
    return Configured(kernel, grid, block, configuration[3] if len(configuration) == 4 else 0)


def _forall(kernel: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
    if ntasks < 0:
        raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
    threads = tpb or 128
    if ntasks == 0:
        return lambda *args: None
    return Configured(kernel, ((ntasks + threads - 1) // threads, 1, 1), (threads, 1, 1), sharedmem)


def _call(kernel: Any, *args: Any) -> Any:
    if kernel._device or S.launch is not None:
        return kernel.fn(*args)
    from numba.cuda.errors import normalize_kernel_dimensions

    grid, block = normalize_kernel_dimensions(kernel.grid_dim, kernel.block_dim)
    return _launch(kernel, grid, block, kernel.dynshared_size, args)


def _launch(kernel: Any, grid: Any, block: Any, shared: int, args: tuple[Any, ...]) -> None:
    name = getattr(kernel.fn, "__name__", "kernel")
    with _lock:
        if S.launch is not None:
            raise RuntimeError(f"{name} is launched from inside {S.launch.name}: launches by the device are not modelled")
        grid, block = tuple(map(int, grid)), tuple(map(int, block))
        check_geometry(name, grid, block, shared)
        write_back: list[Callable[[], Any]] = []
        options = S.options
        if options.operators == "numba":
            args = tuple(cast(a) if cast else a for cast, a in zip(chain(getattr(kernel, "casts", []), repeat(None)), args, strict=False))
        arrays = [_argument(kernel, a, write_back) for a in args]
        if options.check:
            arrays, regions = _under_checks(kernel.fn, arrays, options)
        fn = typed(kernel.fn) if options.operators == "numba" else kernel.fn
        launch = Launch(fn, name, grid, block, tuple(arrays), int(shared), options, kernel._debug)
        if options.races:
            launch.order_of = Order()
            launch.order_of.regions = regions
        try:
            launch.run()
        except SimtError as error:
            S.found.append(error.report)
            raise
        for copy in write_back:
            copy()


def _argument(kernel: Any, value: Any, write_back: list[Callable[[], Any]]) -> Any:
    """What a kernel sees of an argument. Arrays are used in place, strided ones too; In and Out are honoured by copies."""
    if isinstance(value, tuple):
        parts = [_argument(kernel, v, write_back) for v in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    for extension in kernel.extensions:
        _, value = extension.prepare_args(None, value, stream=0, retr=write_back)
    hint = type(value).__name__ if hasattr(value, "to_device") and hasattr(value, "value") else None
    if hint is not None:
        value = value.value
    array = getattr(value, "_ary", value)
    if isinstance(array, np.ndarray):
        if hint == "In":
            array = array.copy()
        elif hint == "Out":
            result, array = array, memory.poison(np.empty(array.shape, array.dtype))
            write_back.append(lambda: np.copyto(result, array))
        if array.dtype.names:
            array = array.view(np.recarray)
        elif type(array) is not np.ndarray:
            array = array.view(np.ndarray)
    elif isinstance(array, np.void):
        array = np.asarray(array).view(np.recarray)[()]
    return array


def _under_checks(fn: Any, args: list[Any], options: Options) -> tuple[list[Any], list[Region]]:
    """Wraps the arrays; those that overlap in memory share what is recorded of it, a Region."""
    names = list(inspect.signature(fn).parameters)
    found: list[np.ndarray] = []

    def collect(value: Any) -> None:
        if isinstance(value, tuple):
            for v in value:
                collect(v)
        elif isinstance(value, np.ndarray) and value.size:
            found.append(value)

    for a in args:
        collect(a)
    regions: dict[int, Region] = {}
    end, region = -1, None
    for (low, high), array in sorted(((np.lib.array_utils.byte_bounds(a), a) for a in found), key=lambda pair: pair[0]):
        if region is None or low >= end:
            region, end = Region(low, array.itemsize, True, False), low
        end = max(end, high)
        regions[id(array)] = region

    def wrap(value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            parts = [wrap(v, f"{name}[{i}]") for i, v in enumerate(value)]
            return value._make(parts) if hasattr(value, "_make") else tuple(parts)
        if isinstance(value, np.ndarray) and value.ndim:
            return Checked(value, name, regions.get(id(value)) if options.races else None)
        return value

    wrapped = [wrap(a, names[i] if i < len(names) else f"argument {i}") for i, a in enumerate(args)]
    return wrapped, list({id(region): region for region in regions.values()}.values())
