"""``torch.ops.samebits.<kernel>`` for every kernel: import this module once. Everything is derived from the kernels' SPECs.

    import kernels_cu.torch_ops
    torch.ops.samebits.paged_decode(out, q, k_cache, v_cache, block_tables, seq_lens, scale, window=4096)

Arguments have the names, order, shapes and dtypes of SPEC: required ones by position or name, optional ones by name. Outputs are given by
the caller and written in place, as the schema says; nothing is returned. Workspaces may be left out: they are then allocated by torch
(inside a CUDA graph from the graph's own memory). On CUDA the kernel is built by nvcc at its first use for the device of the arguments and
runs on that device's current stream; the call reads no device memory and waits for nothing, so it can be captured. On a CPU it is the
source on the emulator, for looking at a model without a GPU. Wrong arguments raise the ValueError or TypeError of SPEC before anything
is written; ``checked=True`` also looks at lengths, tables and slots (the default on a CPU; on CUDA it waits for the device).
"""

from __future__ import annotations

import importlib
import string

import torch

from kernels_cu import build, torch_call
from pyref.spec import Kernel, Scalar, Tensor

NAMESPACE = "samebits"


def schema(kernel: Kernel) -> str:
    """The operator's schema: required arguments in the order of SPEC, then the optional ones; what the kernel writes is marked."""
    letters = iter(string.ascii_lowercase)
    given: dict[str, str] = {}
    for name, arg in kernel.args.items():
        optional = is_optional(kernel, name)
        if isinstance(arg, Tensor):
            kind = "Tensor" if arg.role == "in" else f"Tensor({next(letters)}!)"
        elif arg.computed:
            continue
        else:
            kind = {"f32": "float", "i64": "SymInt"}[arg.dtype]
        given[name] = f"{kind}? {name}=None" if optional else f"{kind} {name}"
    required = [text for name, text in given.items() if not is_optional(kernel, name)]
    others = [text for name, text in given.items() if is_optional(kernel, name)]
    return f"{kernel.stem}({', '.join([*required, '*', *others, 'bool? checked=None'])}) -> ()"


def is_optional(kernel: Kernel, name: str) -> bool:
    """Whether a call may leave an argument out: what SPEC says, and workspaces."""
    arg = kernel.args[name]
    return arg.default is not None if isinstance(arg, Scalar) else arg.optional or name in kernel.workspaces


def cache_views(layout: str, k_cache: torch.Tensor, v_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """k_cache and v_cache of paged_decode as views of caches [pages, page, g, d] (``layout`` "NHD") or [pages, g, page, d] ("HND"),
    d dense; nothing is copied. Raises ValueError for another layout."""
    if layout not in ("NHD", "HND"):
        raise ValueError(f"paged_decode: layout: got {layout!r}, expected 'NHD' or 'HND'")
    k, v = (cache.transpose(1, 2) if layout == "NHD" else cache for cache in (k_cache, v_cache))  # [pages, g, page, d]
    return k.unflatten(3, (-1, 16 // k.element_size())).transpose(2, 3), v.transpose(2, 3)


def _register(operators: torch.library.Library, prepare: torch.library.Library) -> None:
    """Defines the operator of every kernel, and the one that makes the plans of its calls."""
    for stem in build.stems():
        kernel: Kernel = importlib.import_module(f"pyref.{stem}").SPEC
        operators.define(schema(kernel))
        operator = torch_call.Operator(kernel, [name for name in kernel.args if not is_optional(kernel, name)])
        torch.library.register_fake(f"{NAMESPACE}::{stem}", operator.fake, lib=operators)
        prepare.define(schema(kernel).replace("-> ()", "-> int[]"))
        for key in ("CPU", "CUDA"):
            prepare.impl(stem, operator, key)
        torch_call.register(stem)


_LIBRARIES = [torch.library.Library(name, "DEF") for name in (NAMESPACE, f"{NAMESPACE}_prepare")]
_register(*_LIBRARIES)
