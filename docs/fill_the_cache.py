"""Fills a paged KV cache and attends over it step by step, as a serving engine does, with the operators of torch.

    python docs/fill_the_cache.py [cpu|cuda]

Requests arrive with a prompt, take pages from a common pool as they grow, and give them back when they leave; pages are reused in any
order. Their lengths are those of a public trace (tests/data), shortened. After every step the output is compared with the definition of
paged_decode over the same K and V in contiguous memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from kernels_cu.torch_ops import cache_views
from pyref import layout, paged_decode

ops = torch.ops.samebits
TRACE = Path(__file__).resolve().parent.parent / "tests" / "data" / "trace_lengths.json"
H, G, D, PAGE, X = 4, 2, 32, 16, 8  # query heads, kv heads, head size, tokens a page, f16 elements in 16 bytes
RUNNING, PAGES, MAX_PAGES = 4, 40, 10  # sequences at a time, pages of the pool, pages of one sequence


class Classic:
    """K [pages, g, d/x, page, x], V [pages, g, d, page]."""

    def __init__(self, device: str) -> None:
        self.views = empty(PAGES, G, D // X, PAGE, X, device=device), empty(PAGES, G, D, PAGE, device=device)

    def store(self, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        ops.reshape_and_cache(k, v, *self.views, slots)


class Nhd:
    """K and V [pages, page, g, d], side by side in one tensor."""

    def __init__(self, device: str) -> None:
        self.caches = empty(PAGES, 2, PAGE, G, D, device=device).unbind(1)
        self.views = cache_views("NHD", *self.caches)

    def store(self, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        ops.reshape_and_cache_flash(k, v, *self.caches, slots)


class Hnd:
    """K and V [pages, g, page, d]."""

    def __init__(self, device: str) -> None:
        self.caches = [empty(PAGES, G, PAGE, D, device=device) for _ in "kv"]
        self.views = cache_views("HND", *self.caches)

    def store(self, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        ops.store_kvcache(k, v, *self.caches, slots)


class Pool:
    """K and V [slots, g * d], which attention sees as [pages, page, g, d]."""

    def __init__(self, device: str) -> None:
        self.pools = [empty(PAGES * PAGE, G * D, device=device) for _ in "kv"]
        self.views = cache_views("NHD", *(pool.view(PAGES, PAGE, G, D) for pool in self.pools))

    def store(self, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        ops.store_kv(k.flatten(1), v.flatten(1), *self.pools, slots)


CACHES = {"classic": Classic, "nhd": Nhd, "hnd": Hnd, "pool": Pool}


def empty(*shape: int, device: str) -> torch.Tensor:
    """Memory full of NaN: whoever reads a slot that nobody has filled is seen."""
    return torch.full(shape, float("nan"), dtype=torch.float16, device=device)


@dataclass
class Sequence:
    """A request: tokens it still has to produce, its pages, and its K and V [tokens, g, d] in contiguous memory, to compare with."""

    left: int
    pages: list[int]
    k: torch.Tensor
    v: torch.Tensor

    @property
    def length(self) -> int:
        return len(self.k)


def requests() -> Iterator[tuple[int, int]]:
    """(tokens of the prompt, tokens to produce), without end."""
    batches = json.loads(TRACE.read_text())["batches"]
    while True:
        for request in (request for batch in batches for request in batch):
            yield request["context"] // 32 + 1, request["produced"] // 4 + 1


class Engine:
    """Runs requests over one cache. ``attend``: the operator, paged_decode or one with its arguments."""

    def __init__(self, cache: str, attend: str = "paged_decode", device: str = "cpu", seed: int = 1) -> None:
        self.cache = CACHES[cache](device)
        self.attend = getattr(ops, attend)
        self.device = device
        self.numbers = torch.Generator().manual_seed(seed)
        self.free = torch.randperm(PAGES, generator=self.numbers).tolist()
        self.waiting = requests()
        self.running: list[Sequence] = []

    def _rows(self, tokens: int, heads: int) -> torch.Tensor:
        return torch.randn(tokens, heads, D, generator=self.numbers).half()

    def _append(self, sequences: list[Sequence], k: torch.Tensor, v: torch.Tensor) -> None:
        """Stores the next tokens of the sequences: all rows of one, or a row of each."""
        slots = []
        for sequence, rows in zip(sequences, torch.arange(len(k)).chunk(len(sequences)), strict=True):
            for row in rows.tolist():
                if sequence.length % PAGE == 0:
                    sequence.pages.append(self.free.pop())
                slots.append(sequence.pages[-1] * PAGE + sequence.length % PAGE)
                sequence.k, sequence.v = (torch.cat([old, new[row : row + 1]]) for old, new in ((sequence.k, k), (sequence.v, v)))
        self.cache.store(k.to(self.device), v.to(self.device), torch.tensor(slots, device=self.device))

    def step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One step of decoding: requests leave and join, every running sequence appends a token and attends. Returns (q, out)."""
        for done in (sequence for sequence in self.running if not sequence.left):
            self.free += done.pages
        self.running = [sequence for sequence in self.running if sequence.left]
        while len(self.running) < RUNNING:
            prompt, produce = next(self.waiting)
            prompt = min(prompt, MAX_PAGES * PAGE - produce)
            nothing = torch.empty(0, G, D).half()
            self.running.append(Sequence(produce, [], nothing, nothing))
            self._append(self.running[-1:], self._rows(prompt, G), self._rows(prompt, G))

        n = len(self.running)
        qkv = self._rows(n, H + 2 * G)
        self._append(self.running, qkv[:, H : H + G], qkv[:, H + G :])
        tables = torch.full((n, MAX_PAGES), -1, dtype=torch.int32)
        for row, sequence in enumerate(self.running):
            tables[row, : len(sequence.pages)] = torch.tensor(sequence.pages)
            sequence.left -= 1
        lens = torch.tensor([sequence.length for sequence in self.running], dtype=torch.int32)
        q = qkv[:, :H].to(self.device)
        out = torch.empty_like(q)
        self.attend(out, q, *self.cache.views, tables.to(self.device), lens.to(self.device), D**-0.5)
        return q.cpu(), out.cpu()


def contiguous(running: list[Sequence]) -> dict[str, np.ndarray]:
    """Caches in which the sequences' K and V lie one after another, with their tables and lengths: arguments of an attention kernel."""
    lengths = np.array([sequence.length for sequence in running], np.int32)
    table = np.arange(len(running) * MAX_PAGES, dtype=np.int32).reshape(len(running), MAX_PAGES)
    k, v = (torch.cat([getattr(sequence, name) for sequence in running]).numpy() for name in "kv")
    k_cache, v_cache = layout.pack_classic(k, v, lengths, table, page=PAGE, pages=table.size)
    return {"k_cache": k_cache, "v_cache": v_cache, "block_tables": table, "seq_lens": lengths}


def main(device: str = "cpu", steps: int = 200) -> None:
    """Fills every cache and prints how many of its steps had the bytes of the definition."""
    for name in CACHES:
        engine = Engine(name, device=device)
        equal = 0
        for _ in range(steps):
            q, out = engine.step()
            expected = paged_decode.run(q=q.numpy(), scale=D**-0.5, **contiguous(engine.running))
            equal += out.numpy().tobytes() == expected.tobytes()
        print(f"{name:8} {steps} steps, {equal} with the bytes of attention over contiguous K and V")


if __name__ == "__main__":
    main(*sys.argv[1:2])
