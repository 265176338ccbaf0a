"""Times decode attention on a GPU against its peers, over the cells of the project's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyref import paged_decode
from tools import gpu_arrays, timing


@dataclass(frozen=True)
class Cell:
    """h query heads, g kv heads, n sequences of t tokens each."""

    h: int
    g: int
    n: int
    t: int
    d: int = 128
    page: int = 16
    dtype: str = "bfloat16"

    @property
    def name(self) -> str:
        return f"{self.h}/{self.g} {self.n} x {self.t}"

    @property
    def bytes(self) -> int:
        """KV bytes that must be read."""
        return 2 * self.n * self.g * self.t * self.d * 2


SHAPES = [(1, 1024), (1, 8192), (1, 65536), (16, 4096), (64, 2048), (128, 4096), (256, 512)]
CELLS = [Cell(h, g, n, t) for h, g in ((32, 8), (32, 32), (64, 8)) for n, t in SHAPES]


class Inputs:
    """One set of inputs of a cell on the GPU, pages in random order."""

    def __init__(self, cell: Cell, seed: int) -> None:
        import torch

        torch.manual_seed(seed)
        dtype = getattr(torch, cell.dtype)
        self.cell = cell
        count = cell.t // cell.page
        pages = cell.n * count
        x = 16 // torch.empty(0, dtype=dtype).element_size()
        normal = lambda *shape: torch.randn(shape, dtype=dtype, device="cuda")  # noqa: E731
        self.q = normal(cell.n, cell.h, cell.d)
        self.k = normal(pages, cell.g, cell.d // x, cell.page, x)
        self.v = normal(pages, cell.g, cell.d, cell.page)
        self.tables = torch.randperm(pages, device="cuda").to(torch.int32).reshape(cell.n, count)
        self.lens = torch.full((cell.n,), cell.t, dtype=torch.int32, device="cuda")
        self.out = torch.empty_like(self.q)
        self._expected: dict[tuple[int, ...], np.ndarray] = {}

    def launch(self, split: int | None = None, constants: dict[str, str] | None = None) -> Callable[[], None]:
        """paged_decode over these inputs."""
        import torch

        cell = self.cell
        states = paged_decode.tiles(cell.t)
        work = {
            "part_a": torch.empty(cell.n, cell.h, states, cell.d, device="cuda"),
            "part_l": torch.empty(cell.n, cell.h, states, device="cuda"),
            "part_m": torch.empty(cell.n, cell.h, states, device="cuda"),
            "done": torch.zeros(cell.n, cell.h, dtype=torch.int32, device="cuda"),
        }
        arguments: dict[str, Any] = {
            "out": self.out, "q": self.q, "k_cache": self.k, "v_cache": self.v, "block_tables": self.tables, "seq_lens": self.lens,
            "scale": cell.d**-0.5, "max_seq_len": cell.t, **work,
        }  # fmt: skip
        if split is not None:
            arguments["split"] = split
        run = gpu_arrays.Launch(gpu_arrays.bind(paged_decode.SPEC, **arguments), constants)
        keep = (arguments, work)
        return lambda keep=keep: run(torch.cuda.current_stream().cuda_stream)

    def reference(self, sequences: list[int]) -> np.ndarray:
        """Bits of the definition's outputs for some of the sequences: a row's bytes do not depend on the batch around it."""
        import torch

        if tuple(sequences) in self._expected:
            return self._expected[tuple(sequences)]
        picked = torch.tensor(sequences, device="cuda")
        ids = self.tables[picked].to(torch.int64).cpu()
        flat = ids.reshape(-1).to("cuda")

        def host(tensor: Any) -> np.ndarray:
            import ml_dtypes

            return tensor.contiguous().view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16 if self.cell.dtype == "bfloat16" else np.float16)

        tables = np.arange(ids.numel(), dtype=np.int32).reshape(tuple(ids.shape))
        out = paged_decode.run(
            checked=False, q=host(self.q[picked]), k_cache=host(self.k[flat]), v_cache=host(self.v[flat]), block_tables=tables,
            seq_lens=self.lens[picked].cpu().numpy(), scale=self.cell.d**-0.5,
        )  # fmt: skip
        self._expected[tuple(sequences)] = out.view(np.uint16)
        return self._expected[tuple(sequences)]

    def bits(self, sequences: list[int]) -> np.ndarray:
        """Bits of the outputs on the GPU."""
        import torch

        return self.out[sequences].view(torch.int16).cpu().numpy().view(np.uint16)


def sets(cell: Cell) -> list[Inputs]:
    """Enough input sets that L2 does not serve them: at least 512 MB of KV, at most 48 sets."""
    return [Inputs(cell, seed) for seed in range(min(48, max(2, -(-(1 << 29) // cell.bytes))))]


def time_decode(cell: Cell, split: int | None = None, constants: dict[str, str] | None = None, inputs: list[Inputs] | None = None) -> timing.Timing:
    """Checks the bytes of some sequences, then times the kernel. Raises ValueError where bytes differ."""
    inputs = inputs or sets(cell)
    calls = [one.launch(split, constants) for one in inputs]
    inputs[0].out.fill_(float("nan"))
    calls[0]()
    some = sorted({0, cell.n - 1}) if cell.t <= 8192 else [0]
    wrong = np.count_nonzero(inputs[0].bits(some) != inputs[0].reference(some))
    if wrong:
        raise ValueError(f"paged_decode {cell.name} split {split}: {wrong} elements differ from the definition")
    return timing.graph_time(calls)
