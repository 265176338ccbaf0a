"""Threads that wait for others by polling: those others get to run, in every order, and what never ends is reported with its line."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.host_programs import FORWARD, REVERSE, SHUFFLE, TIMEOUT, at, compilers, load, reset, set_order, text
from tools.__main__ import main

ATOMIC, VOLATILE, FENCE, REFERENCE, VOTE = range(5)
ORDERS = [(FORWARD, 0), (REVERSE, 0), (SHUFFLE, 1)]


@pytest.fixture
def library() -> Iterator[ctypes.CDLL]:
    yield load("polls")
    reset(load("polls"))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("from_the_last", [0, 1])
@pytest.mark.parametrize(("how", "all_threads"), [(ATOMIC, 1), (VOLATILE, 0), (VOLATILE, 1), (FENCE, 0), (REFERENCE, 1), (VOTE, 0)])
def test_blocks_wait_for_earlier_and_later_ones(
    library: ctypes.CDLL, order: tuple[int, int], from_the_last: int, how: int, all_threads: int
) -> None:
    set_order(library, *order)
    turn, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    assert library.blocks_in_turn(5, how, from_the_last, all_threads, at(turn), at(total)) == 0, text(library)
    assert (turn[0], total[0]) == (5, 1234)


def test_another_emulator_in_the_process_takes_no_tick_away() -> None:
    """Each compiler builds an emulator of its own; the ticker of the second starts when the first one's has."""
    libraries = [load("polls", compiler) for compiler in compilers()]
    for library in [*libraries, *libraries]:
        test_blocks_wait_for_earlier_and_later_ones(library, (REVERSE, 0), 0, VOLATILE, 1)
        reset(library)


@pytest.mark.parametrize("order", ORDERS)
def test_warps_and_lanes_wait_for_others_of_their_block(library: ctypes.CDLL, order: tuple[int, int]) -> None:
    set_order(library, *order)
    flags, out = np.zeros(3, np.int32), np.zeros(32, np.int32)
    assert library.within_a_block(at(flags), at(out)) == 0, text(library)
    assert (out == 7).all()


def test_as_many_blocks_wait_as_the_device_holds(library: ctypes.CDLL) -> None:
    resident = 132 * (228 // (48 + 1))  # by their 48 KiB of shared memory and one of the system's, on an H200
    library.samebits_set_workers(1)
    flag = np.zeros(1, np.int32)
    assert library.wait_for_the_last_block(resident, at(flag)) == 0, text(library)
    flag[:] = 0
    library.samebits_set_patience(ctypes.c_double(0.1))
    assert library.wait_for_the_last_block(resident + 1, at(flag)) == TIMEOUT
    assert "all blocks that the device holds have started" in text(library)


def test_polling_without_an_end_is_given_up(library: ctypes.CDLL) -> None:
    library.samebits_set_patience(ctypes.c_double(0.1))
    flag = np.zeros(1, np.int32)
    assert library.wait_for_nobody(at(flag)) == TIMEOUT
    assert "polls memory that nobody changes" in text(library)
    assert ", thread (" in text(library)


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_the_time_limit_names_the_line_of_a_volatile_poll(tmp_path: Path, check: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cu").write_text(
        "__global__ void k(volatile int* flag) {\n  if (threadIdx.x == 5)\n    while (*flag == 0) {}\n}\n"
        "int main() {\n  int* p;\n  cudaMallocManaged(&p, 4);\n  *p = 0;\n  k<<<3, 64>>>(p);\n  return cudaDeviceSynchronize();\n}\n"
    )
    assert main(["run", str(tmp_path / "k.cu"), *check, "--timeout", "1"]) == 124
    assert "k.cu:3: time limit of 1 s reached in device code" in capfd.readouterr().err
