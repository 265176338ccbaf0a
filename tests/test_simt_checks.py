"""Checks of the numba scheduler: each fires on its fault, names it, and stays silent on the cure."""

# ruff: noqa: ANN001, ANN201, ANN202  kernels carry no annotations

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32

from emu import simt
from emu.simt import watch
from tests.simt_help import FULL, fill, fires, launch

f32 = np.float32


# --- checks that fire ---


@cuda.jit
def reads(x, out, offset):
    i = cuda.grid(1)
    out[i] = x[i + offset]


def test_indices_outside_and_negative() -> None:
    x, out = np.zeros(64, f32), np.zeros(64, f32)
    report = fires(simt.OutOfBounds, "index [64]", "x", "shape (64,)", kernel=reads, grid=2, args=(x, out, 1))
    assert (report.block, report.thread) == ((1, 0, 0), (31, 0, 0))
    report = fires(simt.OutOfBounds, "negative index [-1]", "block (0, 0, 0)", kernel=reads, grid=2, args=(x, out, -1), order="reverse")
    assert report.thread == (0, 0, 0)
    with pytest.raises(IndexError, match=r"tid=\[31, 0, 0\] ctaid=\[1, 0, 0\]"):
        launch(reads, 2, 32, x, out, 1)


def test_bounds_hold_for_views_tuples_and_stores() -> None:
    def build(index: Any) -> Any:
        @cuda.jit
        def kernel(x):
            x[1:, 2][index] = 1
            x[0, index + 1] = 1

        return kernel

    x = np.zeros((3, 4), f32)
    launch(build(1), 1, 1, x, check=True)
    assert x[2, 2] == 1
    assert x[0, 2] == 1
    fires(simt.OutOfBounds, "[2]", "shape (2,)", kernel=build(2), block=1, args=(x,))
    fires(simt.OutOfBounds, "[-1]", kernel=build(-1), block=1, args=(x,))


@cuda.jit
def uneven_barrier(limit):
    if cuda.threadIdx.x < limit:
        cuda.syncthreads()


@cuda.jit
def two_barriers(out):
    i = cuda.threadIdx.x
    if i < 8:
        out[i] = 1
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda.jit
def early_exit(out):
    i = cuda.threadIdx.x
    if i >= 40:
        return
    cuda.syncthreads()
    out[i] = 1


def test_divergent_barriers() -> None:
    fires(simt.DivergentBarrier, "threads 0-15", "threads 16-31 left the kernel", kernel=uneven_barrier, args=(16,))
    fires(simt.DivergentBarrier, "threads 0-7", "threads 8-31 wait at another one", kernel=two_barriers, args=(np.zeros(32, np.int32),))
    for order in ("forward", "reverse"):
        fires(simt.DivergentBarrier, "threads 40-63 left", kernel=early_exit, block=64, args=(np.zeros(64, np.int32),), order=order)
    out = np.zeros(64, np.int32)
    launch(early_exit, 1, 64, out)  # hardware counts the threads that are left
    assert out.sum() == 40


def test_a_barrier_and_a_collective_wait_for_each_other() -> None:
    @cuda.jit
    def crossed():
        if cuda.threadIdx.x < 16:
            cuda.syncthreads()
        else:
            cuda.syncwarp()

    for check in (False, True):
        text = ("lacks lanes 0-15", "threads 0-15 wait at syncthreads", "threads 16-31 wait at syncwarp(mask 0xffffffff)")
        fires(simt.MissingLane, *text, kernel=crossed, check=check)


def test_missing_lanes() -> None:
    @cuda.jit
    def half(out):
        if cuda.threadIdx.x < 16:
            out[0] = cuda.ballot_sync(FULL, 1)

    @cuda.jit
    def outsider():
        cuda.syncwarp(0x7FFFFFFF)

    @cuda.jit
    def two_masks():
        cuda.syncwarp(0x0000FFFF if cuda.laneid == 0 else FULL)

    @cuda.jit
    def two_operations():
        if cuda.laneid == 3:
            cuda.any_sync(FULL, 1)
        else:
            cuda.all_sync(FULL, 1)

    @cuda.jit
    def silent_lane(out):
        if cuda.laneid < 4:
            out[0] = cuda.shfl_sync(0xF, int32(1), 9)

    out = np.zeros(1, np.int64)
    for order in ("forward", "reverse", "shuffle:4"):
        fires(simt.MissingLane, "lacks lanes 16-31", "threads 16-31 left", kernel=half, args=(out,), order=order)
        fires(simt.MissingLane, "lane 31 calls with mask 0x7fffffff", kernel=outsider, order=order)
        fires(simt.MissingLane, "lacks lanes", kernel=two_masks, order=order)
        fires(simt.MissingLane, "any_sync", "all_sync", kernel=two_operations, order=order)
        fires(simt.MissingLane, "reads from lane 9", kernel=silent_lane, args=(out,), order=order)


def test_an_exception_ends_the_launch() -> None:
    ended = []

    @cuda.jit
    def kernel(out):
        try:
            cuda.syncthreads()
            if cuda.threadIdx.x == 5:
                raise KeyError("mine")
            cuda.syncthreads()
            out[0] = 1
        finally:
            ended.append(cuda.threadIdx.x)

    out = np.zeros(1, np.int32)
    with pytest.raises(KeyError, match="mine") as caught:
        launch(kernel, 4, 32, out)
    assert "thread (5, 0, 0)" in caught.value.__notes__[0]
    assert len(ended) == 32
    assert out[0] == 0
    launch(fill, 1, 32, np.zeros(32, np.int32))


def test_spinning_for_nothing_is_an_error() -> None:
    @cuda.jit
    def kernel(flag):
        while cuda.atomic.cas(flag, 0, 1, 2) != 1:
            pass

    fires(simt.Deadlock, "threads 0-31", kernel=kernel, grid=2, args=(np.zeros(1, np.int32),))


@pytest.mark.parametrize("check", [False, True])
def test_a_spin_on_a_plain_load_ends(check: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.5)

    @cuda.jit(device=True)
    def load(flag):
        return flag[0]

    @cuda.jit
    def direct(flag):
        while flag[0] == 0:
            pass

    @cuda.jit
    def by_a_function(flag):
        while load(flag) == 0:
            continue

    for kernel in (direct, by_a_function):
        fires(simt.Deadlock, "looks at memory for ever", kernel=kernel, args=(np.zeros(1, np.int32),), check=check)


def test_long_work_is_no_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.3)

    @cuda.jit
    def kernel(out):
        start, steps = time.process_time(), 0
        while time.process_time() - start < 1:
            steps += 1
        out[0] = steps

    out = np.zeros(1, np.int64)
    launch(kernel, 1, 1, out)
    assert out[0] > 0


# --- races ---


@cuda.jit
def reverse_in_shared(x, barrier):
    s = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    if barrier == 2:
        cuda.syncthreads()
    elif barrier == 1:
        cuda.syncwarp()
    x[i] = s[i ^ 1] if barrier == 1 else s[63 - i]


def test_races_in_shared_memory() -> None:
    x = np.arange(64, dtype=f32)
    for order in ("forward", "reverse", "shuffle:1"):
        launch(reverse_in_shared, 1, 64, x, 1, check=True, order=order)
        launch(reverse_in_shared, 1, 64, x, 2, check=True, order=order)
        text = ("write of shared array 's'", "read by block (0, 0, 0), thread (")
        report = fires(simt.DataRace, *text, kernel=reverse_in_shared, block=64, args=(x, 0), order=order)
        assert "test_simt_checks.py:" in report.other

    @cuda.jit
    def missing_syncwarp(x):
        s = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        s[i] = x[i]
        cuda.syncwarp()
        s[i] = s[31 - i]  # read by one lane, written by another

    fires(simt.DataRace, "read of shared array 's'", "[31]", "write by", kernel=missing_syncwarp, args=(x,))


@cuda.jit
def last_block_sums(x, partial, ticket, out, fence):
    s = cuda.shared.array(1, int32)
    i, b = cuda.threadIdx.x, cuda.blockIdx.x
    if i == 0:
        partial[b] = x[b]
        if fence:
            cuda.threadfence()
        s[0] = cuda.atomic.add(ticket, 0, 1)
    cuda.syncthreads()
    if s[0] == cuda.gridDim.x - 1 and i == 5:
        for k in range(cuda.gridDim.x):
            out[0] += partial[k]


def test_races_between_blocks_and_their_cure() -> None:
    x = np.arange(8, dtype=np.int32)
    for order in ("forward", "reverse", "shuffle:7"):
        partial, ticket, out = np.zeros(8, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
        launch(last_block_sums, 8, 32, x, partial, ticket, out, True, check=True, order=order)
        assert out[0] == 28
    arrays = (x, partial, np.zeros(1, np.int32), out)
    fires(simt.DataRace, "partial", "nothing orders them", kernel=last_block_sums, grid=8, args=(*arrays, False))

    @cuda.jit
    def same_cell(out):
        out[cuda.threadIdx.x] = cuda.blockIdx.x

    fires(simt.DataRace, "write of out[0]", "block (0, 0, 0), thread (0, 0, 0)", kernel=same_cell, grid=2, args=(np.zeros(32, np.int32),))

    @cuda.jit
    def plain_and_atomic(out):
        cuda.atomic.add(out, 0, 1)
        out[0] = 7

    @cuda.jit
    def cleared_without_a_barrier(out):
        if cuda.threadIdx.x == 0:
            out[0] = 0
        cuda.atomic.add(out, 0, 1)

    for kernel in (plain_and_atomic, cleared_without_a_barrier):
        for order in ("forward", "reverse"):
            fires(simt.DataRace, "atomic", kernel=kernel, args=(np.zeros(32, np.int32),), order=order)


def test_overlapping_arguments_are_one_memory() -> None:
    @cuda.jit
    def kernel(a, b):
        a[cuda.threadIdx.x] = 1
        b[cuda.threadIdx.x] = 2

    memory = np.zeros(40, np.int32)
    launch(kernel, 1, 8, memory[:8], memory[8:], check=True)
    fires(simt.DataRace, "write of a[4]", "write by", kernel=kernel, block=8, args=(memory[:8], memory[4:].view(np.int16)[::2]))


def test_a_lock_between_blocks_is_clean() -> None:
    @cuda.jit
    def kernel(lock, total):
        if cuda.threadIdx.x == 0:
            while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                cuda.nanosleep(10)
            total[0] = total[0] + 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)

    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch(kernel, 6, 32, lock, total, check=True, order="shuffle:2")
    assert total[0] == 6
