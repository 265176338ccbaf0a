"""What the benchmark times on a GPU: inputs of a cell, and calls of kernels over them that a CUDA graph can hold."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyref import paged_attention_v2, paged_decode
from pyref.spec import DTYPES
from tools import cases, gpu_arrays

_TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn"}
Call = Callable[[], None]


@functools.cache
def trace() -> tuple[int, ...]:
    """Lengths of the sequences in the batches of a real service."""
    batches = json.loads((cases.ROOT / "tests" / "data" / "trace_lengths.json").read_text())["batches"]
    return tuple(request["context"] + request["produced"] for batch in batches for request in batch)


@dataclass(frozen=True)
class Cell:
    """Decode attention: h query heads, g kv heads, n sequences of t tokens each, or (t = 0) of the trace's lengths in turn; ``cache``: the
    dtype of K and V where it is not that of q."""

    h: int
    g: int
    n: int
    t: int
    d: int = 128
    page: int = 16
    dtype: str = "bf16"
    cache: str = ""

    @property
    def name(self) -> str:
        special = [f"d {self.d}" if self.d != 128 else "", self.dtype if self.dtype != "bf16" else "", self.cache]
        length = f"x {self.t:,}" if self.t else "of the trace"
        return " ".join([f"{self.h}/{self.g} {self.n} {length}", *filter(None, special)])

    @property
    def stored(self) -> str:
        """The dtype of the caches."""
        return self.cache or self.dtype

    @property
    def lens(self) -> np.ndarray:
        """Tokens of every sequence."""
        return np.resize(np.array(trace() if self.t == 0 else [self.t], np.int32), self.n)

    @property
    def longest(self) -> int:
        """Tokens of the longest."""
        return int(self.lens.max())

    @property
    def bytes(self) -> int:
        """KV bytes that must be read."""
        return 2 * int(self.lens.sum()) * self.g * self.d * DTYPES[self.stored][0].itemsize

    @property
    def least(self) -> Cell:
        """A cell of one short sequence whose kernels are the same builds."""
        return dataclasses.replace(self, n=1, t=self.page)


_BATCHES = [(1, 1024), (1, 8192), (1, 65536), (16, 4096), (64, 2048), (128, 4096), (256, 512)]
TABLE = [Cell(h, g, n, t) for h, g in ((32, 8), (32, 32), (64, 8)) for n, t in _BATCHES]
OTHERS = [
    *(Cell(32, 8, n, 0) for n in (64, 256)),
    Cell(32, 8, 64, 2048, dtype="f16"),
    Cell(32, 8, 128, 4096, d=64),
    Cell(32, 8, 64, 2048, d=256),
    *(Cell(32, 8, n, t, cache="e4m3") for n, t in ((1, 8192), (128, 4096))),
]
CELLS = [*TABLE, *OTHERS]


def bits(tensor: Any) -> np.ndarray:
    """The elements of a tensor as integers."""
    import torch

    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(kind).cpu().numpy()


def _rows(tensor: Any, ids: Any) -> Any:
    """The pages ``ids`` of a cache, fp8 too (torch does not index it on a GPU)."""
    import torch

    return tensor.view(torch.uint8)[ids].view(tensor.dtype) if tensor.element_size() == 1 else tensor[ids]


def launch(stem: str, arguments: dict[str, Any]) -> Call:
    """A kernel over CUDA tensors, on the stream that is current when it is called. The tensors stay alive with it."""
    import torch

    prepared = gpu_arrays.Launch(gpu_arrays.bind(cases.kernel(stem), **arguments))

    def call() -> None:
        prepared(torch.cuda.current_stream().cuda_stream)

    call.keep = arguments  # type: ignore[attr-defined]
    return call


class Inputs:
    """One set of inputs of a cell on a device of torch, pages in random order."""

    def __init__(self, cell: Cell, seed: int, device: str = "cuda") -> None:
        import torch

        torch.manual_seed(seed)
        self.cell = cell
        counts = -(-cell.lens // cell.page)
        pages, x = int(counts.sum()), 16 // DTYPES[cell.stored][0].itemsize
        dtype, stored = (getattr(torch, _TORCH[name]) for name in (cell.dtype, cell.stored))

        def normal(*shape: int) -> Any:
            return torch.randn(shape, dtype=dtype, device=device)

        self.q = normal(cell.n, cell.h, cell.d)
        self.k = normal(pages, cell.g, cell.d // x, cell.page, x).to(stored)
        self.v = normal(pages, cell.g, cell.d, cell.page).to(stored)
        self.scales = {name: torch.ones(1, device=device) for name in ("k_scale", "v_scale") if cell.cache}
        named = torch.arange(int(counts.max()), device=device) < torch.from_numpy(counts).to(device)[:, None]
        self.tables = torch.full(named.shape, -1, dtype=torch.int32, device=device)
        self.tables[named] = torch.randperm(pages, device=device).to(torch.int32)
        self.lens = torch.from_numpy(cell.lens).to(device)

    def arguments(self, stem: str) -> dict[str, Any]:
        """Arguments of an attention kernel, the output poisoned, workspaces allocated."""
        import torch

        cell = self.cell

        def work(*shape: int) -> Any:
            return torch.zeros(shape, device=self.q.device)

        given = {
            "out": torch.full_like(self.q, float("nan")), "q": self.q, "k_cache": self.k, "v_cache": self.v, "block_tables": self.tables,
            "seq_lens": self.lens, "scale": cell.d**-0.5, "max_seq_len": cell.longest, **self.scales,
        }  # fmt: skip
        if stem == "paged_decode":
            states = paged_decode.tiles(cell.longest)
            given |= {name: work(cell.n, cell.h, states) for name in ("part_l", "part_m")}
            given["part_a"] = work(cell.n, cell.h, states, cell.d)
        if stem == "paged_attention_v2":
            parts = -(-cell.longest // 512)
            given |= {name: work(cell.n, cell.h, parts) for name in ("exp_sums", "max_logits")}
            given["tmp_out"] = work(cell.n, cell.h, parts, cell.d)
        return given

    def reference(self, stem: str, sequences: list[int]) -> np.ndarray:
        """The definition's bits for some of the sequences: a row's bytes do not depend on the batch around it."""
        import torch

        cell, picked = self.cell, torch.tensor(sequences, device=self.q.device)
        named = self.tables[picked] >= 0
        ids = self.tables[picked][named].to(torch.int64)
        tables = np.full(tuple(named.shape), -1, np.int32)
        tables[named.cpu().numpy()] = np.arange(ids.numel(), dtype=np.int32)

        def host(tensor: Any, dtype: str) -> np.ndarray:
            return bits(tensor).view(DTYPES[dtype][0])

        module = {"paged_decode": paged_decode, "paged_attention_v1": paged_attention_v2, "paged_attention_v2": paged_attention_v2}[stem]
        out = module.run(
            checked=False, q=host(self.q[picked], cell.dtype), k_cache=host(_rows(self.k, ids), cell.stored),
            v_cache=host(_rows(self.v, ids), cell.stored), block_tables=tables, seq_lens=self.lens[picked].cpu().numpy(),
            scale=cell.d**-0.5, **{name: scale.cpu().numpy() for name, scale in self.scales.items()},
        )  # fmt: skip
        out = out[0] if isinstance(out, tuple) else out
        return out.view(f"i{out.dtype.itemsize}")


def sets(cell: Cell) -> list[Inputs]:
    """Enough input sets that L2 does not serve them: at least 512 MB of KV, at most 48 sets."""
    return [Inputs(cell, seed) for seed in range(min(48, max(2, -(-(1 << 29) // cell.bytes))))]


def checked_calls(stem: str, inputs: list[Inputs]) -> list[Call]:
    """Calls of a kernel over every input set, after the bytes of the first one's outputs were compared with the definition on up to
    three sequences. Raises ValueError where they differ: nothing wrong is timed."""
    calls = [launch(stem, one.arguments(stem)) for one in inputs]
    calls[0]()
    cell = inputs[0].cell
    some = sorted({0, cell.n - 1, int(cell.lens.argmax())})
    got = bits(calls[0].keep["out"][some])  # type: ignore[attr-defined]
    wrong = np.count_nonzero(got != inputs[0].reference(stem, some))
    if wrong:
        raise ValueError(f"{stem} {cell.name}: {wrong} of {got.size} elements differ from the definition")
    return calls
