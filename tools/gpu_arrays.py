"""Calls of kernels over CUDA tensors of torch that can be launched again and again with no work in Python: what the benchmark times."""

from __future__ import annotations

import ctypes
from typing import Any

from kernels_cu import build
from kernels_cu.torch_arrays import describe
from pyref.spec import MAX_SHARED_BYTES, Call, Kernel
from tools import device


def bind(kernel: Kernel, **arguments: Any) -> Call:
    """A Call over tensors of a GPU, or of the CPU for the emulator: every check of SPEC that needs no values. All outputs and workspaces
    must be given."""
    described = {name: describe(value) if hasattr(value, "data_ptr") else value for name, value in arguments.items()}
    on_gpu = any(getattr(value, "is_cuda", False) for value in arguments.values())
    return kernel.bind(described, shared_bytes=device.current().shared_bytes if on_gpu else MAX_SHARED_BYTES)


class Launch:
    """A bound call, ready to be launched on a stream again and again without further work in Python."""

    def __init__(self, call: Call, constants: dict[str, str] | None = None) -> None:
        library = build.load(build.gpu_library(call.kernel, {**call.constants(), **(constants or {})}, device.current().arch))
        self._function = getattr(library, call.kernel.stem)
        self._params = call.params(lambda array: array.ctypes.data)
        self._name = call.kernel.stem

    def __call__(self, stream: int) -> None:
        code = self._function(ctypes.byref(self._params), ctypes.c_void_p(stream))
        if code:
            raise device.DeviceError(f"{self._name}: CUDA error {code}")
