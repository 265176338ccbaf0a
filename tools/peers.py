"""Peers of decode attention that are importable here: torch's SDPA always, FlashInfer's decode and XQA where FlashInfer is installed."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.bench_inputs import Call, Inputs


def nhd(inputs: Inputs) -> tuple[Any, Any]:
    """The caches as [pages, slot, g, d], as peers want them."""
    import torch

    def moved(cache: Any, *order: int) -> Any:
        plain = cache.view(torch.uint8) if cache.element_size() == 1 else cache  # torch does not copy every layout of fp8
        return plain.permute(*order).reshape(-1, inputs.cell.page, inputs.cell.g, inputs.cell.d).contiguous().view(cache.dtype)

    return moved(inputs.k, 0, 3, 1, 2, 4), moved(inputs.v, 0, 3, 1, 2)


def _sdpa(inputs: Inputs, backend: str | None) -> Call:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    cell = inputs.cell
    if not cell.t:
        raise ValueError("sequences of unequal lengths are no contiguous K and V")
    if cell.cache:
        raise ValueError("it knows no fp8")
    q = inputs.q.reshape(cell.n, cell.h, 1, cell.d)
    k = torch.randn(cell.n, cell.g, cell.t, cell.d, dtype=q.dtype, device="cuda")
    v = torch.randn_like(k)

    def call() -> None:
        with sdpa_kernel(getattr(SDPBackend, backend)) if backend else contextlib.nullcontext():
            torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=cell.h != cell.g)

    return call


def sdpa(inputs: Inputs) -> Call:
    """torch's scaled_dot_product_attention over contiguous K and V, as torch chooses. Raises ValueError for a cell that it cannot take."""
    return _sdpa(inputs, None)


def sdpa_flash(inputs: Inputs) -> Call:
    """The same by its flash attention."""
    return _sdpa(inputs, "FLASH_ATTENTION")


def pages(inputs: Inputs) -> tuple[Any, Any, Any]:
    """The table as FlashInfer takes it: (where each sequence's pages begin, all their ids, tokens in the last page of each)."""
    import torch

    page, named = inputs.cell.page, inputs.tables >= 0
    begins = torch.nn.functional.pad(named.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    return begins, inputs.tables[named], (inputs.lens - 1) % page + 1


def _flashinfer(inputs: Inputs, tensor_cores: bool) -> Call:
    import flashinfer
    import torch

    cell = inputs.cell
    k, v = nhd(inputs)
    space = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "NHD", use_tensor_cores=tensor_cores)
    wrapper.plan(
        *pages(inputs), cell.h, cell.g, cell.d, cell.page,
        q_data_type=inputs.q.dtype, kv_data_type=k.dtype, sm_scale=cell.d**-0.5,
    )  # fmt: skip
    out = torch.empty_like(inputs.q)
    return lambda: wrapper.run(inputs.q, (k, v), out=out)


def flashinfer_cuda_cores(inputs: Inputs) -> Call:
    """FlashInfer's batch decode on CUDA cores."""
    return _flashinfer(inputs, False)


def flashinfer_tensor_cores(inputs: Inputs) -> Call:
    """FlashInfer's batch decode on tensor cores."""
    return _flashinfer(inputs, True)


def xqa(inputs: Inputs) -> Call:
    """TensorRT-LLM's decode kernel as FlashInfer carries it."""
    import torch
    from flashinfer.xqa import xqa as run

    cell = inputs.cell
    k, v = nhd(inputs)
    q = inputs.q.reshape(cell.n, 1, cell.h, cell.d)
    out = torch.empty_like(q)
    space = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
    semaphores = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda").view(torch.uint32)
    lens = inputs.lens.to(torch.uint32).reshape(cell.n, 1)
    tables = inputs.tables.clamp(min=0)
    return lambda: run(q, k, v, tables, lens, out, space, semaphores, cell.g, cell.page)


def available() -> dict[str, Callable[[Inputs], Call]]:
    """Name -> maker of a call, of every peer that can be imported."""
    found: dict[str, Callable[[Inputs], Call]] = {"SDPA": sdpa, "SDPA flash": sdpa_flash}
    if importlib.util.find_spec("flashinfer"):
        found |= {"FlashInfer cores": flashinfer_cuda_cores, "FlashInfer tensor": flashinfer_tensor_cores, "XQA": xqa}
    return found
