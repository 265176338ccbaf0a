"""SPEC: one value declares a kernel, and everything that depends on its shape is derived from it.

Checks, allocation, the C parameter struct, the build's constants and the case generator all read it. An axis string such as
``"pages g | d/x page x"`` names the axes of an argument: symbols unify over all arguments of a call, ``d/x`` is a quotient of
symbols, a number is a fixed size. Axes before the bar are *free*: they may have any stride, and the kernel receives it (in elements).
Axes after the bar are *dense*: they lie in memory as one C-contiguous block. Without a bar all axes are dense.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

#: dtype name -> (NumPy storage, C++ type). Storage only: arithmetic on it is the contract's.
DTYPES: dict[str, tuple[np.dtype, str]] = {
    "f32": (np.dtype(np.float32), "float"),
    "f16": (np.dtype(np.float16), "sb::f16"),
    "bf16": (np.dtype(ml_dtypes.bfloat16), "sb::bf16"),
    "e4m3": (np.dtype(ml_dtypes.float8_e4m3fn), "sb::e4m3"),
    "e5m2": (np.dtype(ml_dtypes.float8_e5m2), "sb::e5m2"),
    "u8": (np.dtype(np.uint8), "uint8_t"),
    "i32": (np.dtype(np.int32), "int32_t"),
    "i64": (np.dtype(np.int64), "int64_t"),
}
_NAME_OF = {storage: name for name, (storage, _) in DTYPES.items()}
_CTYPES = {"f32": ctypes.c_float, "i64": ctypes.c_int64}
Array = np.ndarray
MAX_SHARED_BYTES = 232_448
"""Shared memory of one block: 227 KiB, the most that any of the supported devices has."""


def dtype_name(array: Array) -> str:
    """The project's name for an array's dtype; the NumPy name where the project has none."""
    return _NAME_OF.get(array.dtype, str(array.dtype))


def itemsize(name: str) -> int:
    """Bytes of one element of the dtype called ``name``."""
    return DTYPES[name][0].itemsize


@dataclass(frozen=True)
class Tensor:
    """One array argument.

    ``dtype`` is a dtype name or a symbol of ``Kernel.dtypes``. ``align``: bytes that the base address and every free stride must be
    a multiple of, because the kernel reads vectors of that size. ``role``: "in", "out" (allocated when absent), "inout", or "work"
    (allocated when absent; what it holds after a run is nobody's business and is not compared). ``where`` its memory is when a
    GPU runs the kernel: "device", "host" (the call itself reads or writes it, and does not wait for the device), or "any" of the two.
    """

    axes: str
    dtype: str
    what: str
    role: str = "in"
    optional: bool = False
    align: int = 1
    where: str = "device"

    @property
    def free(self) -> tuple[str, ...]:
        return tuple(self.axes.partition("|")[0].split()) if "|" in self.axes else ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.axes.replace("|", " ").split())


@dataclass(frozen=True)
class Scalar:
    """One number, passed by value. ``default`` (of the axes bound so far and the scalars given) makes it optional or, with
    ``computed``, a value that callers cannot give at all."""

    dtype: str
    what: str
    default: Callable[[Call], Any] | None = None
    computed: bool = False


@dataclass(frozen=True)
class Kernel:
    """The declaration of a kernel.

    ``derived`` axes are functions of what the arguments have bound; ``sizes`` gives the axes that no argument of a call has bound (those of
    a workspace that is to be allocated). ``constants`` maps a macro of the CUDA source to the axis or dtype symbol whose value it takes.
    ``checks`` look at shapes alone, ``values`` read arrays (``checked=True``). ``spills``: the reason why registers of some specialisation
    may spill; without one the compile check fails where they do.
    """

    stem: str
    does: str
    args: Mapping[str, Tensor | Scalar]
    dtypes: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, str]
    derived: Mapping[str, Callable[[Call], int]] = field(default_factory=dict)
    sizes: Mapping[str, Callable[[Call], int]] = field(default_factory=dict)
    checks: tuple[Callable[[Call], None], ...] = ()
    values: tuple[Callable[[Call], None], ...] = ()
    spills: str = ""
    work: Callable[[Call], int] = lambda call: 0  # arithmetic steps, by which slow legs choose their cases

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: arg for name, arg in self.args.items() if isinstance(arg, Tensor)}

    @property
    def outputs(self) -> list[str]:
        return [name for name, tensor in self.tensors.items() if tensor.role in ("out", "inout")]

    @property
    def workspaces(self) -> list[str]:
        """Arguments that callers may leave to whoever runs the kernel: "work", and outputs with an axis that ``sizes`` gives."""
        found = {name: tensor for name, tensor in self.tensors.items() if tensor.role in ("out", "work")}
        return [name for name, tensor in found.items() if tensor.role == "work" or set(tensor.names) & set(self.sizes)]

    @property
    def cpu(self) -> bool:
        """Whether this is a kernel of the CPU, whose source is C++ and which no GPU runs: all its memory is the host's."""
        return all(tensor.where == "host" for tensor in self.tensors.values())

    @property
    def struct_name(self) -> str:
        return "".join(part.capitalize() for part in self.stem.split("_")) + "Params"

    def runtime_axes(self) -> list[str]:
        """Axes that the kernel receives as numbers: every symbol, in order of first appearance, that is neither compiled in nor derived."""
        fixed = set(self.constants.values()) | set(self.derived)
        seen = (axis for tensor in self.tensors.values() for axis in tensor.names if axis.isidentifier())
        return [axis for axis in dict.fromkeys(seen) if axis not in fixed]

    def struct_fields(self) -> list[tuple[str, Any]]:
        """(name, ctypes type) of the C parameter struct: arguments in order, then the runtime axes (see ``layout_asserts``)."""
        fields: list[tuple[str, Any]] = []
        for name, arg in self.args.items():
            if isinstance(arg, Scalar):
                fields.append((name, _CTYPES[arg.dtype]))
                continue
            fields.append((name, ctypes.c_void_p))
            if arg.free:
                fields.append((f"{name}_stride", ctypes.c_int64 * len(arg.free)))
        return fields + [(axis, ctypes.c_int64) for axis in self.runtime_axes()]

    def struct(self) -> type[ctypes.Structure]:
        """The ctypes mirror of the C parameter struct."""
        return type(self.struct_name, (ctypes.Structure,), {"_fields_": self.struct_fields()})

    def layout_asserts(self) -> str:
        """C++ text that fails to compile where the source's parameter struct and this declaration disagree."""
        struct = self.struct()
        lines = [f'static_assert(sizeof({self.struct_name}) == {ctypes.sizeof(struct)}, "SPEC: size of the struct");']
        for name, kind in self.struct_fields():
            offset = getattr(struct, name).offset
            lines.append(f'static_assert(__builtin_offsetof({self.struct_name}, {name}) == {offset}, "SPEC: place of {name}");')
            lines.append(f'static_assert(sizeof({self.struct_name}::{name}) == {ctypes.sizeof(kind)}, "SPEC: size of {name}");')
        return "\n".join(lines) + "\n"

    def constants_of(self, dtypes: Mapping[str, str], axes: Mapping[str, int]) -> dict[str, str]:
        """Macro -> text: what specialises the CUDA source for these dtypes and axes (more of them may be given than it needs)."""
        return {
            macro: DTYPES[dtypes[symbol]][1] if symbol in self.dtypes else str(axes[symbol])
            for macro, symbol in self.constants.items()
        }

    def bind(self, args: Mapping[str, Any], *, checked: bool = False, shared_bytes: int = MAX_SHARED_BYTES) -> Call:
        """Checks ``args`` against this declaration and allocates the outputs that are absent.

        ``shared_bytes``: the shared memory that a block may have on the device that will run the call.
        Returns the Call that every leg runs. Raises TypeError (unknown or missing argument, dtype) or ValueError (shape, stride,
        alignment, limits; with ``checked`` also values) before anything is written; the text names kernel, argument, axis, got, expected.
        """
        return Call(self, args, checked, shared_bytes)


class Call:
    """A checked set of arguments of one kernel: ``arrays`` (None where an optional one is absent), ``scalars``, ``axes``, ``dtypes``."""

    def __init__(self, kernel: Kernel, args: Mapping[str, Any], checked: bool, shared_bytes: int) -> None:
        self.kernel = kernel
        self.shared_bytes = shared_bytes
        self.arrays: dict[str, Array | None] = {}
        self.scalars: dict[str, Any] = {}
        self.axes: dict[str, int] = {}
        self.dtypes: dict[str, str] = {}
        self._binder: dict[str, str] = {}
        unknown = [name for name in args if name not in kernel.args]
        if unknown:
            raise TypeError(f"{kernel.stem}: no argument {unknown[0]!r}; expected {', '.join(kernel.args)}")
        for name, tensor in kernel.tensors.items():
            self._bind_tensor(name, tensor, args.get(name))
        self._derive_axes()
        self._check_quotients()
        for name, arg in kernel.args.items():
            if isinstance(arg, Scalar):
                self.scalars[name] = self._scalar(name, arg, args)
        for axis, rule in kernel.sizes.items():
            self.axes.setdefault(axis, rule(self))
        for check in kernel.checks:
            check(self)
        if checked:
            for check in kernel.values:
                check(self)
        for name, tensor in kernel.tensors.items():
            if tensor.role in ("out", "work") and self.arrays[name] is None and not tensor.optional:
                shape = [self.size(axis) for axis in tensor.names]
                self.arrays[name] = np.empty(shape, DTYPES[self.dtype_of(tensor)][0])

    def error(self, kind: type[Exception], argument: str, text: str) -> Exception:
        return kind(f"{self.kernel.stem}: {argument}: {text}")

    def dtype_of(self, tensor: Tensor) -> str:
        return self.dtypes.get(tensor.dtype, tensor.dtype)

    def size(self, axis: str) -> int:
        """The size of an axis expression: a symbol, a quotient of two, or a number."""
        if axis.isdigit():
            return int(axis)
        over, _, under = axis.partition("/")
        return self.axes[over] // (self.axes[under] if under else 1)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name] if name in self.arrays else self.scalars[name]

    # -- binding -------------------------------------------------------------------------------------------------------------

    def _bind_tensor(self, name: str, tensor: Tensor, array: Any) -> None:
        self.arrays[name] = None
        if array is None:
            if tensor.role in ("out", "work") or tensor.optional:
                return
            raise self.error(TypeError, name, "missing")
        if not isinstance(array, np.ndarray):
            raise self.error(TypeError, name, f"got {type(array).__name__}, expected a NumPy array")
        self._unify_dtype(name, tensor, dtype_name(array))
        if array.ndim != len(tensor.names):
            raise self.error(ValueError, name, f"got {array.ndim} axes {array.shape}, expected {len(tensor.names)}: [{tensor.axes}]")
        for position, axis in enumerate(tensor.names):
            if axis.isdigit() and array.shape[position] != int(axis):
                raise self.error(ValueError, name, f"axis {position}: got {array.shape[position]}, expected {axis}")
            if axis.isidentifier():
                self._unify_axis(name, axis, array.shape[position])
        self._check_memory(name, tensor, array)
        self.arrays[name] = array

    def _unify_dtype(self, name: str, tensor: Tensor, got: str) -> None:
        allowed = self.kernel.dtypes.get(tensor.dtype, (tensor.dtype,))
        if got not in allowed:
            raise self.error(TypeError, name, f"dtype: got {got}, expected {' or '.join(allowed)}")
        if tensor.dtype in self.kernel.dtypes:
            bound = self.dtypes.setdefault(tensor.dtype, got)
            binder = self._binder.setdefault(f"dtype {tensor.dtype}", name)
            if bound != got:
                raise self.error(TypeError, name, f"dtype: got {got}, expected {bound} (from {binder})")

    def _unify_axis(self, name: str, axis: str, got: int) -> None:
        bound = self.axes.setdefault(axis, got)
        binder = self._binder.setdefault(axis, name)
        if bound != got:
            raise self.error(ValueError, name, f"axis {axis}: got {got}, expected {bound} (from {binder})")

    def _check_memory(self, name: str, tensor: Tensor, array: Array) -> None:
        free = len(tensor.free)
        expected = array.itemsize
        for position in range(array.ndim - 1, free - 1, -1):
            if array.size and array.shape[position] > 1 and array.strides[position] != expected:
                text = f"axis {tensor.names[position]}: got a stride of {array.strides[position]} bytes, expected {expected} (dense)"
                raise self.error(ValueError, name, text)
            expected *= array.shape[position]
        unit = max(tensor.align, array.itemsize)
        if array.ctypes.data % unit:
            text = f"got an address {array.ctypes.data % unit} bytes past a multiple of {unit}, expected a multiple of {unit} bytes"
            raise self.error(ValueError, name, text)
        for position, axis in enumerate(tensor.free):
            stride = array.strides[position]
            if array.shape[position] > 1 and stride % unit:
                text = f"axis {axis}: got a stride of {stride} bytes, expected a multiple of {unit}"
                raise self.error(ValueError, name, text)
        if tensor.role != "in":
            self._check_writable(name, tensor, array)

    def _check_writable(self, name: str, tensor: Tensor, array: Array) -> None:
        if not array.flags.writeable:
            raise self.error(ValueError, name, "got a read-only array, expected a writable one")
        reach = array.itemsize
        for stride, size, axis in sorted(zip(map(abs, array.strides), array.shape, tensor.names, strict=True)):
            if size > 1 and stride < reach and array.size:
                text = f"axis {axis}: got a stride of {stride} bytes, expected at least {reach}: elements of an output would share memory"
                raise self.error(ValueError, name, text)
            reach = max(reach, stride * size)

    def _derive_axes(self) -> None:
        for axis, rule in self.kernel.derived.items():
            value = rule(self)
            if self.axes.setdefault(axis, value) != value:
                binder = self._binder[axis]
                raise self.error(ValueError, binder, f"axis {axis}: got {self.axes[axis]}, expected {value}")

    def _check_quotients(self) -> None:
        for name, tensor in self.kernel.tensors.items():
            array = self.arrays[name]
            for position, axis in enumerate(tensor.names):
                if array is None or "/" not in axis:
                    continue
                over, under = re.split("/", axis)
                got = array.shape[position]
                if got * self.axes[under] != self.axes[over]:
                    text = f"axis {axis}: got {got}, expected {self.axes[over]}/{self.axes[under]} ({over} from {self._binder[over]})"
                    raise self.error(ValueError, name, text)

    def _scalar(self, name: str, scalar: Scalar, args: Mapping[str, Any]) -> Any:
        value = args.get(name)
        if scalar.computed and value is not None:
            raise self.error(TypeError, name, "is computed from the other arguments and cannot be given")
        if value is None:
            if scalar.default is None:
                raise self.error(TypeError, name, "missing")
            value = scalar.default(self)
        if scalar.dtype == "f32":
            if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
                raise self.error(TypeError, name, f"got {type(value).__name__}, expected a number")
            with np.errstate(over="ignore", under="ignore"):
                try:
                    single = np.float32(value)
                except OverflowError:
                    raise self.error(ValueError, name, "got a number beyond binary64, expected one of binary32") from None
            if value != 0 and single == 0:
                raise self.error(ValueError, name, f"got {value}, which is 0 in binary32: expected 0 or at least 2^-149")
            return single
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise self.error(TypeError, name, f"got {type(value).__name__}, expected an integer")
        if not -(2**63) <= value < 2**63:
            raise self.error(ValueError, name, f"got {value}, expected an integer of 64 bits")
        return int(value)

    # -- what legs read ------------------------------------------------------------------------------------------------------

    def constants(self) -> dict[str, str]:
        """Macro -> text: what specialises the CUDA source for this call."""
        return self.kernel.constants_of(self.dtypes, self.axes)

    def params(self, address: Callable[[Array], int]) -> ctypes.Structure:
        """The C parameter struct, with ``address(array)`` for every array's first element; absent arrays are null."""
        values = self.kernel.struct()()
        for name, tensor in self.kernel.tensors.items():
            array = self.arrays[name]
            if array is None:
                continue
            setattr(values, name, address(array))
            for position in range(len(tensor.free)):
                getattr(values, f"{name}_stride")[position] = array.strides[position] // array.itemsize
        for name, value in self.scalars.items():
            setattr(values, name, value)
        for axis in self.kernel.runtime_axes():
            setattr(values, axis, self.axes[axis])
        return values

    def results(self) -> Any:
        """The outputs: one array, or a tuple in SPEC order without those that were not asked for."""
        found = [self.arrays[name] for name in self.kernel.outputs if self.arrays[name] is not None]
        return found[0] if len(found) == 1 else tuple(found)


def reference(kernel: Kernel) -> Callable[[Callable[[Call], None]], Callable[..., Any]]:
    """Makes ``run(**arguments)`` of a body that computes a Call with NumPy: checks, allocates, computes, returns the outputs."""

    def wrap(body: Callable[[Call], None]) -> Callable[..., Any]:
        def run(*, checked: bool = True, **arguments: Any) -> Any:
            call = kernel.bind(arguments, checked=checked)
            body(call)
            return call.results()

        run.__doc__ = body.__doc__
        run.__qualname__ = f"{kernel.stem}.run"  # what Python's own errors name
        run.body = body  # type: ignore[attr-defined]
        return run

    return wrap
