"""The GPU as the legs need it, through the driver's C API: what it is, and memory on it."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class DeviceError(RuntimeError):
    """A call to the driver failed."""


@dataclass(frozen=True)
class Device:
    """The GPU in use: ``name`` as the driver gives it, ``arch`` such as "sm_90", ``driver`` its version, ``cuda`` the newest it runs,
    ``shared_bytes`` of shared memory that a block may have."""

    name: str
    arch: str
    driver: str
    cuda: str
    shared_bytes: int


@functools.cache
def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _call(function: str, *arguments: object) -> None:
    library = _driver()
    if library is None:
        raise DeviceError("no NVIDIA driver (libcuda.so.1 not found)")
    code = getattr(library, function)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        raise DeviceError(f"{function}: error {code}: {(text.value or b'unknown').decode()}")


@functools.cache
def current() -> Device:
    """The first device, with its primary context (the one that kernels' libraries use) made current. Raises DeviceError."""
    _call("cuInit", 0)
    count, handle, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGetCount", ctypes.byref(count))
    if not count.value:
        raise DeviceError("the driver sees no GPU")
    _call("cuDeviceGet", ctypes.byref(handle), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    _call("cuCtxSetCurrent", context)
    name = ctypes.create_string_buffer(256)
    _call("cuDeviceGetName", name, len(name), handle)
    parts = []
    for attribute in (75, 76, 97):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        value = ctypes.c_int()
        _call("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
        parts.append(value.value)
    cuda = ctypes.c_int()
    _call("cuDriverGetVersion", ctypes.byref(cuda))
    version = Path("/proc/driver/nvidia/version")
    words = version.read_text().split() if version.exists() else []
    driver = next((word for word in words if word[0].isdigit() and "." in word), "unknown")
    major, minor, shared_bytes = parts
    return Device(name.value.decode(), f"sm_{major}{minor}", driver, f"{cuda.value // 1000}.{cuda.value % 1000 // 10}", shared_bytes)


@functools.cache
def missing() -> str | None:
    """Why no GPU can be used here; None where one can."""
    try:
        current()
    except DeviceError as error:
        return str(error)
    return None


def synchronize(kernel: str) -> None:
    """Waits for the device; an error of the kernel that ran is raised with its name."""
    try:
        _call("cuCtxSynchronize")
    except DeviceError as error:
        raise DeviceError(f"{kernel}: {error}") from error


class Memory:
    """Device allocations that are freed together."""

    def __init__(self) -> None:
        current()
        self._held: list[ctypes.c_uint64] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._held:
            _call("cuMemFree_v2", address)

    def upload(self, buffer: np.ndarray) -> int:
        """A copy of the bytes on the device; its address."""
        address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(buffer.nbytes, 1)))
        self._held.append(address)
        _call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(buffer.nbytes))
        return int(address.value)

    def download(self, buffer: np.ndarray, address: int) -> None:
        """Overwrites the bytes with those at the device address."""
        _call("cuMemcpyDtoH_v2", ctypes.c_void_p(buffer.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(buffer.nbytes))
