"""Cases: plain data that name a set of inputs of a kernel. They stand in ``tests/test_<stem>.py`` and are found by its name.

A test module offers ``CASES`` (a list of Case) and ``inputs(case)``, which returns the arguments of the kernel: Regions (placed arrays)
for tensors, numbers for scalars. An output or optional output that shall be written must be among them.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels_cu.build import stems as stems
from pyref.spec import Kernel
from tools.arena import Region

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Case:
    """One set of inputs: ``id`` (unique in its kernel), ``dtypes`` and ``shape`` (read by the module's ``inputs``), ``seed``, ``why``."""

    id: str
    why: str
    dtypes: Mapping[str, str] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


def kernel(stem: str) -> Kernel:
    """The SPEC of a kernel."""
    return importlib.import_module(f"pyref.{stem}").SPEC


def module(stem: str) -> ModuleType:
    """The test module that holds a kernel's cases."""
    return importlib.import_module(f"tests.test_{stem}")


def cases(stem: str) -> list[Case]:
    """The kernel's cases; ids are unique."""
    found: list[Case] = module(stem).CASES
    ids = [case.id for case in found]
    double = {name for name in ids if ids.count(name) > 1}
    if double:
        raise ValueError(f"{stem}: case ids stand twice: {sorted(double)}")
    return found


def inputs(stem: str, case: Case) -> dict[str, Any]:
    """Fresh arguments of a case."""
    return module(stem).inputs(case)


def views(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a kernel takes them: the views of the Regions, numbers as they are."""
    return {name: value.view if isinstance(value, Region) else value for name, value in arguments.items()}


def copies(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments over memory of their own."""
    return {name: value.copy() if isinstance(value, Region) else value for name, value in arguments.items()}


def digest(values: np.ndarray) -> str:
    """sha256 of an array's elements in C order, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def inputs_digest(arguments: Mapping[str, Any]) -> str:
    """sha256 over all arguments: names, shapes, strides, whole buffers (guards and poison too) and numbers."""
    total = hashlib.sha256()
    for name, value in sorted(arguments.items()):
        if isinstance(value, Region):
            total.update(f"{name} {value.view.shape} {value.view.dtype} {value.view.strides} {value.offset}".encode())
            total.update(value.buffer.data)
        else:
            total.update(f"{name} {value!r}".encode())
    return total.hexdigest()
