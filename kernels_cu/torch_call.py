"""One kernel as an operator of torch: what a call whose signature is new needs from Python. ``torch_call.cc`` does the rest.

What depends on shapes, strides, dtypes and numbers alone is checked, computed and built once for each of their combinations (a call's
*signature*); a call whose signature was seen before never comes here.
"""

from __future__ import annotations

import array
import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from emu.host import compiler as host
from kernels_cu import build
from kernels_cu.torch_arrays import describe
from pyref.spec import MAX_SHARED_BYTES, Call, Kernel

_ALIGN = 256  # bytes, of workspaces: as torch's allocator aligns
_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class Plan:
    """What the calls of one signature share. Tensors are counted in the order in which the call gives them."""

    entry: int  # address of the kernel's C function
    error: int  # of the function that gives its last error as text; 0: there is none
    device: int  # index of the GPU; -1: the CPU
    space: int  # bytes of one allocation that holds every workspace which the calls leave out
    params: Sequence[int]  # the parameter struct in words of 8 bytes, without addresses
    tensors: Sequence[int]  # word of each tensor's address
    spaces: Sequence[int]  # word and offset in the allocation, of each such workspace

    def words(self) -> list[int]:
        """The plan as the constructor of torch_call.cc's Plan reads it."""
        lists = [word for part in (self.params, self.tensors, self.spaces) for word in (len(part), *part)]
        return [self.entry, self.error, self.device, self.space, *lists]


class Operator:
    """A kernel as a function of tensors. Arguments in the order of ``required`` come by position, the others by name."""

    def __init__(self, kernel: Kernel, required: Sequence[str]) -> None:
        self._kernel = kernel
        self._required = tuple(required)
        self._libraries: dict[tuple[Any, ...], ctypes.CDLL] = {}

    def __call__(self, *given: Any, checked: bool | None = None, **named: Any) -> list[int]:
        """The plan of a call, as words. Raises TypeError or ValueError for wrong arguments, BuildError. ``checked``: values are looked at
        too; None: on a CPU alone."""
        arguments, tensors = self._by_name(given, named)
        device = self._device(tensors)
        call = self._bind(arguments, tensors, _shared_bytes(device))
        if checked or (checked is None and device.type == "cpu"):
            self._check_values(call, tensors)
        return self._plan(call, list(tensors), device).words()

    def fake(self, *given: Any, checked: bool | None = None, **named: Any) -> None:
        """A call over tensors without memory: where they would lie is looked at. Raises ValueError."""
        self._device(self._by_name(given, named)[1])

    def _by_name(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """All arguments, and the tensors among them."""
        arguments = {**dict(zip(self._required, given, strict=True)), **named}
        return arguments, {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}

    def _bind(self, arguments: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], shared_bytes: int) -> Call:
        """A Call over the tensors' memory: every check of SPEC that needs no values."""
        described = {}
        for name, tensor in tensors.items():
            try:
                described[name] = describe(tensor)
            except TypeError:
                symbol = self._kernel.tensors[name].dtype
                expected = " or ".join(self._kernel.dtypes.get(symbol, (symbol,)))
                got = str(tensor.dtype).removeprefix("torch.")
                raise TypeError(f"{self._kernel.stem}: {name}: dtype: got {got}, expected {expected}") from None
        return self._kernel.bind({**arguments, **described}, shared_bytes=shared_bytes)

    def _check_values(self, call: Call, tensors: Mapping[str, torch.Tensor]) -> None:
        """The checks of SPEC that read arrays, over copies of those that hold integers where these lie on a device."""
        bound = dict(call.arrays)
        call.arrays |= {name: tensor.cpu().numpy() for name, tensor in tensors.items() if tensor.dtype in (torch.int32, torch.int64)}
        for check in self._kernel.values:
            check(call)
        call.arrays = bound

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

    def _plan(self, call: Call, names: Sequence[str], device: torch.device) -> Plan:
        """The plan of a bound call that gives the tensors ``names``."""
        library = self._library(call, device)
        struct = self._kernel.struct()
        word = {name: getattr(struct, name).offset // 8 for name in self._kernel.tensors}
        spaces, space = [], 0
        for name in self._kernel.workspaces:
            made = call.arrays[name]
            if name not in names and made is not None:
                spaces += [word[name], space]
                space += -(-made.nbytes // _ALIGN) * _ALIGN
        cuda = device.type == "cuda"
        return Plan(
            entry=_address(library, self._kernel.stem),
            error=0 if cuda else _address(library, "samebits_last_error"),
            device=device.index if cuda else -1,
            space=space,
            params=array.array("q", bytes(call.params(lambda _: 0))),
            tensors=[word[name] for name in names],
            spaces=spaces,
        )


def _shared_bytes(device: torch.device) -> int:
    """Shared memory that a block may have; the emulator, which runs calls on a CPU, has the most that there is."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin if device.type == "cuda" else MAX_SHARED_BYTES


def _address(library: ctypes.CDLL, name: str) -> int:
    """The address of a function of a library."""
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def build_cpp(source: Path, name: str, *, program: bool = False) -> Path:
    """A library, or a program, of C++ that uses torch's: built against the torch that is imported. Raises BuildError."""
    compiler = host.find_compiler()
    if compiler is None:
        raise build.BuildError("no C++ compiler: neither $CXX nor g++ nor clang++ was found")
    flags = ["-std=c++20", "-O2", "-fPIC", f"-I{build.SOURCES}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    flags += [] if program else ["-shared"]
    places = ["-isystem", str(_TORCH / "include"), f"-L{_TORCH / 'lib'}", f"-Wl,-rpath,{_TORCH / 'lib'}", "-ltorch_cpu", "-lc10"]

    def make(out: Path) -> None:
        try:
            host.run([compiler, *flags, str(source), "-o", str(out), *places])
        except host.BuildError as error:
            raise build.BuildError(str(error)) from error

    texts = build.texts(source).values()
    return build.cached([host.version(compiler), torch.__version__, *flags, *places, *texts], name, make)


@functools.cache
def _calls() -> ctypes.CDLL:
    return ctypes.CDLL(str(build_cpp(Path(__file__).with_suffix(".cc"), "torch_call.so")))


def register(stem: str) -> None:
    """Makes the operators ``samebits::stem`` and ``samebits_prepare::stem``, which are defined, one on the CPU and one on CUDA."""
    stream = None
    if torch.version.cuda:
        stream = ctypes.CDLL(str(_TORCH / "lib" / "libtorch_cuda.so")).aoti_torch_get_current_cuda_stream
    for cpu in (True, False):
        _calls().samebits_register(stem.encode(), ctypes.c_bool(cpu), stream)
