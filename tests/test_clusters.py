"""Thread-block clusters of the emulator: geometry, barrier, shared memory of the other blocks, limits of launches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.host_programs import FORWARD, ILLEGAL_ADDRESS, LAUNCH_FAILURE, REVERSE, SHUFFLE, at, load, reset, set_order, text

INVALID_CLUSTER_SIZE = 912
ORDERS = [(FORWARD, 0), (REVERSE, 0), (SHUFFLE, 1), (SHUFFLE, 2)]


@pytest.mark.parametrize(
    ("grid", "cluster"), [((8, 1, 1), (2, 1, 1)), ((4, 6, 2), (2, 3, 1)), ((3, 2, 4), (1, 1, 4)), ((5, 1, 1), (1, 1, 1))]
)
@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_places(grid: tuple[int, int, int], cluster: tuple[int, int, int], order: int, seed: int) -> None:
    """Ranks count x first; a rank's shared variable is that block's, in whatever order the blocks met their variables."""
    library = load("clusters")
    out = np.zeros((*reversed(grid), 10), np.uint32)
    set_order(library, order, seed)
    assert library.run_places(*grid, *cluster, 0, at(out)) == 0, text(library)
    reset(library)
    blocks = np.prod(cluster)
    for z, y, x in np.ndindex(out.shape[:3]):
        inside = [i % c for i, c in zip((x, y, z), cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        after = (rank + 1) % blocks
        place = [i - j + k for i, j, k in zip((x, y, z), inside, np.unravel_index(after, cluster, order="F"), strict=True)]
        neighbour = (place[2] * grid[1] + place[1]) * grid[0] + place[0]
        assert out[z, y, x].tolist() == [rank, blocks, rank * 33 + 32, blocks * 33, *inside, *cluster[:2], neighbour]


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_barriers_order_what_the_blocks_write(order: int, seed: int) -> None:
    library, rounds = load("clusters"), 7
    out = np.zeros(12, np.int32)
    set_order(library, order, seed)
    assert library.run_ring(12, rounds, at(out)) == 0, text(library)
    reset(library)
    token = np.arange(1, 5)
    for r in range(rounds):
        token = np.roll(token * 3 + r, 1)
    assert out.tolist() == token.tolist() * 3


def test_limits() -> None:
    library = load("clusters")
    out = np.zeros((64, 10), np.uint32)
    codes = {(blocks, large): library.run_places(32, 1, 1, blocks, 1, 1, large, at(out)) for blocks in (8, 16, 32) for large in (0, 1)}
    refused = {key for key, code in codes.items() if code}
    assert refused == {(16, 0), (32, 0), (32, 1)}
    assert {codes[key] for key in refused} == {INVALID_CLUSTER_SIZE}
    assert library.run_places(9, 1, 1, 2, 1, 1, 0, at(out)) == INVALID_CLUSTER_SIZE
    assert "grid (9, 1, 1) is no multiple of the cluster (2, 1, 1)" in text(library)
    assert library.run_ring(6, 1, at(out)) == INVALID_CLUSTER_SIZE
    assert library.run_ring_in_clusters_of(2, at(out)) == INVALID_CLUSTER_SIZE
    assert "__cluster_dims__(4, 1, 1)" in text(library)
    assert library.run_ring_in_clusters_of(4, at(out)) == 0
    library.samebits_set_arch(b"sm_80")
    assert library.run_places(8, 1, 1, 2, 1, 1, 0, at(out)) == INVALID_CLUSTER_SIZE
    assert "sm_80" in text(library)
    assert library.run_places(8, 1, 1, 1, 1, 1, 0, at(out)) == 0
    reset(library)


@pytest.mark.parametrize(
    ("which", "code", "said"),
    [
        (0, LAUNCH_FAILURE, "again before it has waited"),
        (1, LAUNCH_FAILURE, "without having arrived"),
        (2, ILLEGAL_ADDRESS, "rank 2 of a cluster of 2 blocks"),
        (3, 0, ""),
        (4, LAUNCH_FAILURE, "block (0, 0, 0): deadlock: warp 0 lanes 0-31 wait at a barrier of the cluster"),
    ],
)
def test_misuse(which: int, code: int, said: str) -> None:
    library = load("clusters")
    library.samebits_clear_error()
    assert library.run_misused(which) == code
    assert said in text(library)
    assert "clusters.cu" in text(library) or not code
    library.samebits_clear_error()
