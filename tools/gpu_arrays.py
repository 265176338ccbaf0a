"""CUDA tensors of torch as the arguments of a Call: NumPy arrays that describe device memory and are never read."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels_cu import build
from pyref.spec import DTYPES, Call, Kernel
from tools import device

_TORCH_NAMES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    "uint8": "u8", "int32": "i32", "int64": "i64",
}  # fmt: skip


class _Described:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def describe(tensor: Any) -> np.ndarray:
    """A NumPy array with shape, strides, dtype and address of a CUDA tensor. Reading its elements would fault: it is a description."""
    storage = DTYPES[_TORCH_NAMES[str(tensor.dtype).removeprefix("torch.")]][0]
    interface = {
        "shape": tuple(tensor.shape),
        "strides": tuple(step * storage.itemsize for step in tensor.stride()),
        "typestr": f"|V{storage.itemsize}",
        "data": (tensor.data_ptr(), False),
        "version": 3,
    }
    return np.asarray(_Described(interface)).view(storage)


def bind(kernel: Kernel, **arguments: Any) -> Call:
    """A Call over CUDA tensors: every check of SPEC that needs no values. All outputs and workspaces must be given."""
    return kernel.bind({name: describe(value) if hasattr(value, "data_ptr") else value for name, value in arguments.items()})


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
