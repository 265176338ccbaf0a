"""Programs of the kinds that numba's documentation shows, with all that their host code calls, unchanged on the scheduler."""

# ruff: noqa: ANN001, ANN201, ANN202  kernels carry no annotations

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba import cuda, float32, int32

from emu import simt
from tests.simt_help import FULL, fires, launch

ORDERS = ("forward", "reverse", "shuffle:5")


@cuda.jit
def sessions(user, time, out):
    """Numbers the sessions of users: events at most an hour apart. Threads behind the end leave before the grid's barrier."""
    i = cuda.grid(1)
    if i >= len(user):
        return
    first = i == 0 or user[i] != user[i - 1] or time[i] - time[i - 1] > 3600
    out[i] = i if first else -1
    grid = cuda.cg.this_grid()
    grid.sync()
    if first:
        j = i + 1
        while j < len(user) and out[j] == -1:
            out[j] = i
            j += 1


@pytest.mark.parametrize("order", ORDERS)
def test_sessions_with_a_barrier_over_the_grid_after_some_threads_left(order: str) -> None:
    user = np.array([1, 1, 1, 2, 2, 2, 2, 3, 3, 4])
    time = np.array([1, 2, 5000, 0, 1, 2, 9000, 0, 1, 5])
    out = np.full(10, -7)
    launch(sessions, 3, 4, user, time, out, check=True, order=order)
    assert out.tolist() == [0, 0, 2, 3, 3, 3, 6, 7, 7, 9]


def test_a_queue_is_shared_in_a_shuffled_order() -> None:
    """Forward, the first thread takes all of it, and a race between those that take work cannot be seen."""

    @cuda.jit
    def take(head, owner, last, racy):
        i = cuda.atomic.add(head, 0, 1)
        while i < owner.size:
            owner[i] = cuda.threadIdx.x
            if racy:
                last[0] = i
            i = cuda.atomic.add(head, 0, 1)

    owner, last = np.full(40, -1), np.zeros(1, np.int64)
    for order in ("shuffle:1", "shuffle:2"):
        owner[:] = -1
        launch(take, 1, 8, np.zeros(1, np.int64), owner, last, False, check=True, order=order)
        assert sorted(set(owner.tolist())) == list(range(8))
        fires(simt.DataRace, "write of last[0]", kernel=take, block=8, args=(np.zeros(1, np.int64), owner, last, True), order=order)


def test_a_grid_barrier_needs_every_block_and_its_first_thread() -> None:
    @cuda.jit
    def leaves(thread, block):
        if cuda.threadIdx.x == thread and cuda.blockIdx.x == block:
            return
        cuda.cg.this_grid().sync()

    launch(leaves, 2, 32, 31, 1, check=True)
    report = fires(simt.DivergentBarrier, "grid sync", "first thread of block (1, 0, 0)", kernel=leaves, grid=2, args=(0, 1))
    assert report.thread == (0, 0, 0)
    fires(simt.DivergentBarrier, "grid sync", "1 blocks left", kernel=leaves, grid=2, block=1, args=(0, 1))


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_a_sparse_matrix_by_warps(order: str) -> None:
    @cuda.jit
    def product(start, column, value, x, y):
        row, lane = cuda.grid(1) // 32, cuda.laneid
        if row < y.size:
            total = 0.0
            for k in range(start[row] + lane, start[row + 1], 32):
                total += value[k] * x[column[k]]
            for offset in (16, 8, 4, 2, 1):
                total += cuda.shfl_down_sync(FULL, total, offset)
            if lane == 0:
                y[row] = total

    column = np.arange(40) % 5
    y = np.zeros(3)
    launch(product, 2, 64, np.array([0, 3, 3, 40]), column, np.ones(40), np.arange(5.0), y, check=True, order=order)
    assert y.tolist() == [3, 0, column[3:].sum()]


@pytest.mark.parametrize("order", ORDERS)
def test_breadth_first_search_by_a_queue(order: str) -> None:
    @cuda.jit
    def expand(neighbours, level, now, then, count, depth):
        i = cuda.grid(1)
        if i < now.size:
            for n in neighbours[now[i]]:
                if cuda.atomic.cas(level, n, -1, depth) == -1:
                    then[cuda.atomic.add(count, 0, 1)] = n

    n = 10
    neighbours = np.stack([(np.arange(n) + 1) % n, (np.arange(n) - 1) % n], 1)
    level, now, depth = np.full(n, -1), np.array([0]), 0
    level[0] = 0
    while now.size:
        depth += 1
        then, count = np.full(n, -1), np.zeros(1, np.int64)
        launch(expand, 2, 4, neighbours, level, now, then, count, depth, check=True, order=order)
        now = then[: count[0]]
    assert level.tolist() == [0, 1, 2, 3, 4, 5, 4, 3, 2, 1]


def test_records_in_shared_and_local_memory_have_attributes() -> None:
    record = numba.from_dtype(np.dtype([("x", np.float32), ("n", np.int32)]))

    @cuda.jit
    def turn(out):
        mine = cuda.local.array(2, record)
        shared = cuda.shared.array(8, record)
        i = cuda.threadIdx.x
        mine[1].x = 2.5
        mine[1]["n"] = i
        shared[i].x, shared[i].n = mine[1]["x"], mine[1].n
        cuda.syncthreads()
        out[i] = shared[7 - i].n + shared[i]["x"]

    for check in (False, True):
        out = np.zeros(8, np.float32)
        launch(turn, 1, 8, out, check=check)
        assert (out == 9.5 - np.arange(8)).all()


def test_what_host_code_calls() -> None:
    @cuda.jit
    def triple(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 3

    assert len(cuda.gpus) == 1
    for device in (cuda.gpus[0], cuda.current_context().device, cuda.get_current_device()):
        assert device.compute_capability == (9, 0)
        assert device.MULTIPROCESSOR_COUNT > 0
        assert device.name
    assert cuda.is_supported_version()
    cuda.current_context().synchronize()
    start, end, stream = cuda.event(), cuda.event(timing=False), cuda.stream()
    seen: list[Any] = []
    a, b = np.ones(5, np.float32), cuda.pinned_array(4, np.float32)
    with cuda.pinned(a, b), stream.auto_synchronize():
        start.record(stream)
        on_device = cuda.to_device(a, stream=stream)
        triple[1, 8, stream](on_device)
        end.record(stream)
        stream.add_callback(lambda *given: seen.append(given), "done")
        end.wait(stream)
    assert start.query()
    assert start.elapsed_time(end) == cuda.event_elapsed_time(start, end) == 0
    assert seen == [(stream, 0, "done")]
    with cuda.mapped(a) as one, cuda.mapped(a, b, stream=stream) as both:
        assert one is a
        assert both[1] is b
        triple[1, 8](one)
    assert (a == on_device.copy_to_host(stream=stream)).all()
    for array in (cuda.mapped_array(3, dtype=np.float32), cuda.mapped_array_like(a), cuda.managed_array(3, np.float32)):
        array[:] = 2
        triple.forall(array.size)(cuda.as_cuda_array(array))
        assert (np.asarray(array) == 6).all()


def test_dynamic_shared_memory_as_two_arrays_of_different_types() -> None:
    @cuda.jit
    def split(out):
        halves = cuda.shared.array(0, float32)[:8]
        numbers = cuda.shared.array(0, int32)[8:]
        i = cuda.threadIdx.x
        halves[i], numbers[i] = i * 0.5, i
        cuda.syncthreads()
        out[i] = halves[7 - i] + numbers[i]

    out = np.zeros(8, np.float32)
    launch(split, 1, 8, out, shared=64, check=True)
    assert (out == 3.5 + 0.5 * np.arange(8)).all()
