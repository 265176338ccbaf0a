"""One kernel as a function of torch tensors.

What depends on shapes, strides, dtypes and numbers alone is checked, computed and built once for each of their combinations (a call's
*signature*); a call whose signature was seen before compares addresses, sets them, and goes.
"""

from __future__ import annotations

import array
import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernels_cu import build
from kernels_cu.torch_arrays import describe
from pyref.spec import MAX_SHARED_BYTES, Call, Kernel

_SIGNATURES = 4096  # that an operator remembers
_ALIGN = 256  # bytes, of workspaces: as torch's allocator aligns
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class _Prepared:
    """What the calls of one signature share. Tensors are counted in the order in which the call gives them."""

    stem: str
    library: ctypes.CDLL
    entry: Callable[[int, int | None], int]  # the kernel's C function
    device: torch.device
    params: array.array  # the parameter struct in words of 8 bytes, without addresses
    words: Sequence[int]  # of each tensor's address
    spaces: Sequence[tuple[int, int]]  # of each workspace that the calls leave out: word, and offset in one allocation of all
    space: int  # bytes of that
    near: Sequence[tuple[int, int, int, int]]  # (i, j, low, high): i, which is written, touches j where low < address j - address i < high
    allowed: set[tuple[int, int, int]] = field(default_factory=set)  # (i, j, address j - address i) of tensors that touch and may

    def touching(self, addresses: Sequence[int]) -> list[tuple[int, int, int]]:
        """The pairs of tensors that touch and have not been found to be allowed to."""
        found = []
        for i, j, low, high in self.near:
            distance = addresses[j] - addresses[i]
            if low < distance < high and (i, j, distance) not in self.allowed:
                found.append((i, j, distance))
        return found

    def run(self, addresses: Sequence[int]) -> None:
        """Starts the kernel on the current stream of its device. Raises RuntimeError with the launch's error."""
        index = self.device.index
        if index is None:
            code = self._start(addresses, None)
        elif index == torch._C._cuda_getDevice():
            code = self._start(addresses, torch._C._cuda_getCurrentRawStream(index))
        else:
            with torch.cuda.device(index):
                code = self._start(addresses, torch._C._cuda_getCurrentRawStream(index))
        if code:
            self.library.samebits_last_error.restype = ctypes.c_char_p
            text = f"CUDA error {code}" if index is not None else self.library.samebits_last_error().decode()
            raise RuntimeError(f"{self.stem}: {text}")

    def filled(self, addresses: Sequence[int]) -> array.array:
        """The parameter struct of a call; workspaces that the call leaves out are null."""
        params = self.params[:]
        for word, address in zip(self.words, addresses, strict=True):
            params[word] = address
        return params

    def _start(self, addresses: Sequence[int], stream: int | None) -> int:
        params = self.filled(addresses)
        if self.space:  # held until the kernel is on the stream: what torch's allocator then gives away is used after it
            held = torch.empty(self.space, dtype=torch.uint8, device=self.device)
            begin = held.data_ptr()
            for word, offset in self.spaces:
                params[word] = begin + offset
        return self.entry(params.buffer_info()[0], stream)


class Operator:
    """A kernel as a function of tensors. Arguments in the order of ``required`` come by position, the others by name."""

    def __init__(self, kernel: Kernel, required: Sequence[str]) -> None:
        self._kernel = kernel
        self._required = tuple(required)
        self._seen: dict[tuple[Any, ...], _Prepared] = {}
        self._libraries: dict[tuple[Any, ...], ctypes.CDLL] = {}

    def __call__(self, *given: Any, checked: bool | None = None, **named: Any) -> None:
        """Runs the kernel. Raises TypeError or ValueError for wrong arguments before anything is written; BuildError; RuntimeError with
        the error of a launch. ``checked``: values are looked at too; None: on a CPU alone."""
        prepared, addresses = self.prepare(given, named)
        if checked or (checked is None and prepared.device.index is None):
            self._check_values(self._by_name(given, named))
        prepared.run(addresses)

    def prepare(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[_Prepared, list[int]]:
        """What the signature of a call shares, made where it is new, and the addresses of the call's tensors; all but values is checked."""
        key: list[Any] = [*named]
        addresses = []
        for value in (*given, *named.values()):
            kind = type(value)
            if kind is int:
                key.append(value)
            elif kind is float:
                key.append(value.hex())  # 0.0 == -0.0
            else:  # a tensor, says the schema
                address = value.data_ptr()
                addresses.append(address)
                key += value.shape, value.stride(), value.dtype, address & 15, value.get_device()
        signature = tuple(key)
        prepared = self._seen.get(signature)
        if prepared is None:
            prepared = self._make(self._by_name(given, named))
            if len(self._seen) >= _SIGNATURES:
                self._seen.clear()
            self._seen[signature] = prepared
        if touching := prepared.touching(addresses):
            self._bind(self._by_name(given, named))
            prepared.allowed.update(touching)
        return prepared, addresses

    def _by_name(self, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self._required, given, strict=True)), **named}

    def _bind(self, arguments: Mapping[str, Any], shared_bytes: int = MAX_SHARED_BYTES) -> Call:
        """A Call over the tensors' memory: every check of SPEC that needs no values."""
        described = dict(arguments)
        for name, tensor in _tensors(arguments).items():
            try:
                described[name] = describe(tensor)
            except TypeError as error:
                raise TypeError(f"{self._kernel.stem}: {name}: {error}") from None
        return self._kernel.bind(described, shared_bytes=shared_bytes)

    def _check_values(self, arguments: Mapping[str, Any]) -> None:
        """The checks of SPEC that read arrays, over copies of those that hold integers where these lie on a device."""
        call = self._bind(arguments)
        for name, tensor in _tensors(arguments).items():
            if tensor.dtype in (torch.int32, torch.int64):
                call.arrays[name] = tensor.cpu().numpy()
        for check in self._kernel.values:
            check(call)

    def _device(self, tensors: Mapping[str, torch.Tensor]) -> torch.device:
        """The device that runs a call: that of its first tensor on one, else the CPU. Raises ValueError where tensors lie elsewhere."""
        cpu = torch.device("cpu")
        device, source = next(((tensor.device, name) for name, tensor in tensors.items() if tensor.device != cpu), (cpu, ""))
        for name, tensor in tensors.items():
            places = {"device": [device], "host": [cpu], "any": [cpu, device]}[self._kernel.tensors[name].where]
            if tensor.device not in places:
                expected = f"{device} (from {source})" if places == [device] else "cpu"
                raise ValueError(f"{self._kernel.stem}: {name}: got a tensor on {tensor.device}, expected one on {expected}")
        return device

    def _library(self, call: Call, device: torch.device) -> ctypes.CDLL:
        """The build of the kernel for a call: nvcc's for the device, or the host's."""
        constants = call.constants()
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device)) if device.type == "cuda" else ""
        key = (arch, *constants.items())
        if key not in self._libraries:
            made = build.gpu_library(self._kernel, constants, arch) if arch else build.host_library(self._kernel, constants)
            self._libraries[key] = build.load(made)
        return self._libraries[key]

    def _make(self, arguments: Mapping[str, Any]) -> _Prepared:
        tensors = _tensors(arguments)
        device = self._device(tensors)
        call = self._bind(arguments, _shared_bytes(device))
        library = self._library(call, device)
        names = list(tensors)
        struct = self._kernel.struct()
        word = {name: getattr(struct, name).offset // 8 for name in self._kernel.tensors}
        spaces, space = [], 0
        for name in self._kernel.workspaces:
            made = call.arrays[name]
            if name not in tensors and made is not None:
                spaces.append((word[name], space))
                space += -(-made.nbytes // _ALIGN) * _ALIGN
        return _Prepared(
            self._kernel.stem,
            library,
            _ENTRY((self._kernel.stem, library)),
            device,
            array.array("Q", bytes(call.params(lambda _: 0))),
            [word[name] for name in names],
            spaces,
            space,
            list(self._near(call, names)),
        )

    def _near(self, call: Call, names: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
        """Pairs of tensors of which the first is written, as ``_Prepared.near`` has them."""
        reach = [_reach(call.arrays[name]) for name in names]
        written = [self._kernel.tensors[name].role != "in" for name in names]
        for i, j in itertools.product(range(len(names)), repeat=2):
            if written[i] and i != j and (not written[j] or i < j):
                yield i, j, -reach[j], reach[i]


def _tensors(arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}


def _shared_bytes(device: torch.device) -> int:
    """Shared memory that a block may have; the emulator, which runs calls on a CPU, has the most that there is."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin if device.type == "cuda" else MAX_SHARED_BYTES


def _reach(view: np.ndarray) -> int:
    """Bytes from a view's first element to its end."""
    return np.lib.array_utils.byte_bounds(view)[1] - view.ctypes.data if view.size else 0
