"""Tensors of torch, on a CPU or a GPU, as the arguments of a Call: NumPy arrays that describe their memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyref.spec import DTYPES, dtype_name

_NAMES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    "uint8": "u8", "int32": "i32", "int64": "i64",
}  # fmt: skip
_TORCH = {name: torch for torch, name in _NAMES.items()}


class _Described:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def describe(tensor: Any) -> np.ndarray:
    """A NumPy array with shape, strides, dtype and address of a tensor. One of a GPU must not be read: its elements are not in reach.

    Raises TypeError for a dtype that no kernel takes.
    """
    torch_name = str(tensor.dtype).removeprefix("torch.")
    if torch_name not in _NAMES:
        raise TypeError(f"dtype: got {torch_name}, expected {' or '.join(_NAMES)}")
    storage = DTYPES[_NAMES[torch_name]][0]
    interface = {
        "shape": tuple(tensor.shape),
        "strides": tuple(step * storage.itemsize for step in tensor.stride()),
        "typestr": f"|V{storage.itemsize}",
        "data": (tensor.data_ptr(), False),
        "version": 3,
    }
    return np.asarray(_Described(interface)).view(storage)


def torch_dtype(array: np.ndarray) -> Any:
    """The torch dtype of an array's elements."""
    import torch

    return getattr(torch, _TORCH[dtype_name(array)])
