"""Cases as torch tensors, and the operators as a leg: ``verify.run_case`` then compares them like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kernels_cu import torch_ops  # noqa: E402
from kernels_cu.torch_arrays import torch_dtype  # noqa: E402
from pyref.spec import Call  # noqa: E402
from tools import cases, legs  # noqa: E402
from tools.arena import Region  # noqa: E402


def tensor(region: Region, device: str = "cpu") -> tuple[Any, Any]:
    """(the region's buffer, its view) as tensors: over the very memory on a CPU, else over a copy of the whole buffer."""
    buffer = torch.from_numpy(region.buffer).to(device)
    view, size = region.view, region.view.itemsize
    elements = buffer[: buffer.numel() // size * size].view(torch_dtype(view))
    return buffer, elements.as_strided(view.shape, [stride // size for stride in view.strides], region.offset // size)


def tensors(arguments: Mapping[str, Any], device: str = "cpu") -> dict[str, Any]:
    """Arguments of a case for an operator."""
    return {name: tensor(value, device)[1] if isinstance(value, Region) else value for name, value in arguments.items()}


def operator(stem: str) -> Any:
    """The operator of a kernel."""
    return getattr(getattr(torch.ops, torch_ops.NAMESPACE), stem)


def call_of(stem: str, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name as an operator's schema orders them: (those by position, those by name)."""
    names = [argument.name for argument in operator(stem).default._schema.arguments if not argument.kwarg_only]
    return tuple(given[name] for name in names), {name: value for name, value in given.items() if name not in names}


class Operators(legs.Ref):
    """The operators on a device."""

    def __init__(self, device: str = "cpu") -> None:
        self.name = f"torch on {device}"
        self.device = device

    def run(self, call: Call, regions: Mapping[str, Region]) -> None:
        held = {name: tensor(region, "cpu" if legs.on_host(call, name, region) else self.device) for name, region in regions.items()}
        numbers = {name: value for name, value in call.scalars.items() if not call.kernel.args[name].computed}  # type: ignore[union-attr]
        operator(call.kernel.stem)(**{name: view for name, (_, view) in held.items()}, **numbers)
        for name, region in regions.items():
            region.buffer[:] = held[name][0].cpu().numpy()


def some(stem: str, count: int) -> list[cases.Case]:
    """That many cases of a kernel, spread over its list."""
    every = cases.cases(stem)
    return every[:: -(-len(every) // count)]


# --- a layer of a model: rows of a fused qkv are stored, then attended to --------------------------------------------------------------

H, G, D, PAGE = 4, 2, 32, 16


def layer(qkv: Any, k_cache: Any, v_cache: Any, slots: Any, tables: Any, lens: Any) -> Any:
    """Attention of a decode step over caches [pages, page, g, d]; the query and the new K and V are views of qkv."""
    q, k, v = qkv[:, :H], qkv[:, H : H + G], qkv[:, H + G :]
    torch.ops.samebits.reshape_and_cache_flash(k, v, k_cache, v_cache, slots)
    out = torch.empty_like(q)
    torch.ops.samebits.paged_decode(out, q, *torch_ops.cache_views("NHD", k_cache, v_cache), tables, lens, D**-0.5)
    return out


def step(device: str = "cpu") -> dict[str, Any]:
    """Arguments of ``layer``: three sequences, the last of which has its first token. K and V of a page lie side by side."""
    torch.manual_seed(1)
    kv = torch.randn(6, 2, PAGE, G, D).half().to(device)
    return {
        "qkv": torch.randn(3, H + 2 * G, D).half().to(device), "k_cache": kv[:, 0], "v_cache": kv[:, 1],
        "slots": torch.tensor([PAGE + 4, 2 * PAGE + 1, 5 * PAGE], device=device),
        "tables": torch.tensor([[1, -1], [2, -1], [5, -1]], dtype=torch.int32, device=device),
        "lens": torch.tensor([5, 2, 1], dtype=torch.int32, device=device),
    }  # fmt: skip
