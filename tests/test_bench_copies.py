"""The benchmark of copies: every cell, shrunk and on a CPU, where its peers must write what the kernels write."""

from __future__ import annotations

import dataclasses

import pytest

from tests.torch_help import torch
from tools import bench_copies

CELLS = list(bench_copies.cells("cpu", batch=256, few=()))


@pytest.mark.parametrize("cell", CELLS, ids=[f"{cell.kernel}-{cell.name}".replace(" ", "-") for cell in CELLS])
def test_kernels_and_peers_write_the_same_bytes(cell: bench_copies.Cell) -> None:
    torch.manual_seed(1)
    work = cell.make()
    assert work.peers
    bench_copies.compare(cell, work)


def test_a_peer_that_writes_other_bytes_is_not_timed() -> None:
    cell = next(cell for cell in CELLS if cell.kernel == "embedding")
    work = cell.make()
    wrong = dataclasses.replace(work, peers={"nothing": lambda: None})
    with pytest.raises(ValueError, match=r"embedding .*: out: \d+ of \d+ bytes are not those of nothing"):
        bench_copies.compare(cell, wrong)
