"""What the benchmark times on a GPU: inputs of a cell, and calls of kernels over them that a CUDA graph can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyref import paged_attention_v2, paged_decode
from pyref.spec import DTYPES
from tools import cases, gpu_arrays

_TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
Call = Callable[[], None]


@dataclass(frozen=True)
class Cell:
    """Decode attention: h query heads, g kv heads, n sequences of t tokens each."""

    h: int
    g: int
    n: int
    t: int
    d: int = 128
    page: int = 16
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        return f"{self.h}/{self.g} {self.n} x {self.t:,}"

    @property
    def bytes(self) -> int:
        """KV bytes that must be read."""
        return 2 * self.n * self.g * self.t * self.d * DTYPES[self.dtype][0].itemsize


_BATCHES = [(1, 1024), (1, 8192), (1, 65536), (16, 4096), (64, 2048), (128, 4096), (256, 512)]
CELLS = [Cell(h, g, n, t) for h, g in ((32, 8), (32, 32), (64, 8)) for n, t in _BATCHES]


def bits(tensor: Any) -> np.ndarray:
    """The elements of a CUDA tensor as unsigned integers."""
    import torch

    kind = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(kind).cpu().numpy()


def launch(stem: str, arguments: dict[str, Any]) -> Call:
    """A kernel over CUDA tensors, on the stream that is current when it is called. The tensors stay alive with it."""
    import torch

    prepared = gpu_arrays.Launch(gpu_arrays.bind(cases.kernel(stem), **arguments))

    def call() -> None:
        prepared(torch.cuda.current_stream().cuda_stream)

    call.keep = arguments  # type: ignore[attr-defined]
    return call


class Inputs:
    """One set of inputs of a cell on the GPU, pages in random order."""

    def __init__(self, cell: Cell, seed: int) -> None:
        import torch

        torch.manual_seed(seed)
        self.cell = cell
        dtype = getattr(torch, _TORCH[cell.dtype])
        count = cell.t // cell.page
        pages, x = cell.n * count, 16 // DTYPES[cell.dtype][0].itemsize

        def normal(*shape: int) -> Any:
            return torch.randn(shape, dtype=dtype, device="cuda")

        self.q = normal(cell.n, cell.h, cell.d)
        self.k = normal(pages, cell.g, cell.d // x, cell.page, x)
        self.v = normal(pages, cell.g, cell.d, cell.page)
        self.tables = torch.randperm(pages, device="cuda").to(torch.int32).reshape(cell.n, count)
        self.lens = torch.full((cell.n,), cell.t, dtype=torch.int32, device="cuda")

    def arguments(self, stem: str) -> dict[str, Any]:
        """Arguments of an attention kernel, the output poisoned, workspaces allocated."""
        import torch

        cell = self.cell

        def work(*shape: int) -> Any:
            return torch.zeros(shape, device="cuda")

        given = {
            "out": torch.full_like(self.q, float("nan")), "q": self.q, "k_cache": self.k, "v_cache": self.v, "block_tables": self.tables,
            "seq_lens": self.lens, "scale": cell.d**-0.5, "max_seq_len": cell.t,
        }  # fmt: skip
        if stem == "paged_decode":
            states = paged_decode.tiles(cell.t)
            given |= {name: work(cell.n, cell.h, states) for name in ("part_l", "part_m")}
            given["part_a"] = work(cell.n, cell.h, states, cell.d)
        if stem == "paged_attention_v2":
            parts = -(-cell.t // 512)
            given |= {name: work(cell.n, cell.h, parts) for name in ("exp_sums", "max_logits")}
            given["tmp_out"] = work(cell.n, cell.h, parts, cell.d)
        return given

    def reference(self, stem: str, sequences: list[int]) -> np.ndarray:
        """The definition's bits for some of the sequences: a row's bytes do not depend on the batch around it."""
        import torch

        picked = torch.tensor(sequences, device="cuda")
        ids = self.tables[picked].to(torch.int64)

        def host(tensor: Any) -> np.ndarray:
            return bits(tensor).view(DTYPES[self.cell.dtype][0])

        module = {"paged_decode": paged_decode, "paged_attention_v1": paged_attention_v2, "paged_attention_v2": paged_attention_v2}[stem]
        out = module.run(
            checked=False, q=host(self.q[picked]), k_cache=host(self.k[ids.reshape(-1)]), v_cache=host(self.v[ids.reshape(-1)]),
            block_tables=np.arange(ids.numel(), dtype=np.int32).reshape(tuple(ids.shape)), seq_lens=self.lens[picked].cpu().numpy(),
            scale=self.cell.d**-0.5,
        )  # fmt: skip
        out = out[0] if isinstance(out, tuple) else out
        return out.view(f"i{out.dtype.itemsize}")


def sets(cell: Cell) -> list[Inputs]:
    """Enough input sets that L2 does not serve them: at least 512 MB of KV, at most 48 sets."""
    return [Inputs(cell, seed) for seed in range(min(48, max(2, -(-(1 << 29) // cell.bytes))))]


def checked_calls(stem: str, inputs: list[Inputs]) -> list[Call]:
    """Calls of a kernel over every input set, after the bytes of the first one's outputs were compared with the definition on two
    sequences. Raises ValueError where they differ: nothing wrong is timed."""
    calls = [launch(stem, one.arguments(stem)) for one in inputs]
    calls[0]()
    cell = inputs[0].cell
    some = sorted({0, cell.n - 1})
    got = bits(calls[0].keep["out"][some])  # type: ignore[attr-defined]
    wrong = np.count_nonzero(got != inputs[0].reference(stem, some))
    if wrong:
        raise ValueError(f"{stem} {cell.name}: {wrong} of {got.size} elements differ from the definition")
    return calls
