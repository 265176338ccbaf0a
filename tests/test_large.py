"""Sizes beyond 32 bits that no test has the memory for: the bytes of swap_blocks' copies and the grids of RowTiles."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import host_programs as programs

THREADS = 256  # of a block


@pytest.fixture(scope="module")
def large() -> ctypes.CDLL:
    library = programs.load("large")
    library.copies_of.restype = library.last_row_of.restype = ctypes.c_int64
    library.blocks_of.restype = ctypes.c_uint
    return library


def copies_of(large: ctypes.CDLL, pairs: list[tuple[int, int]], w: int, stride: int) -> list[tuple[int, int, int]]:
    """(to, from, bytes) of every copy of bf16 pages that swap_blocks asks for, addresses counted from the first page."""
    numbers, out = np.array(pairs, np.int64), np.zeros((len(pairs), 3), np.uint64)
    sizes = (ctypes.c_int64(size) for size in (len(pairs), w, stride))
    count = large.copies_of(programs.at(numbers), *sizes, programs.at(out), ctypes.c_int64(len(pairs)))
    return [tuple(map(int, copy)) for copy in out[:count]]


@pytest.mark.parametrize(("w", "count"), [(2**31 + 8, 1), (2**17, 2**15 + 1), (2**14, 2**17)])
def test_swap_blocks_copies_more_bytes_than_32_bits_count(large: ctypes.CDLL, w: int, count: int) -> None:
    """One page above 4 GiB, a run of more than 2^32 elements, a run of exactly 2^32 bytes; pairs in any order are one copy."""
    first = 2**30 + 3
    pairs = [(first + i, 5 + i) for i in reversed(range(count))]
    assert copies_of(large, pairs, w, w) == [(5 * w * 2, first * w * 2, count * w * 2)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20, unique_by=lambda pair: pair[1]), st.sampled_from([0, 8]))
def test_swap_blocks_copies_every_pair_in_as_few_runs_as_can_be(large: ctypes.CDLL, pairs: list[tuple[int, int]], room: int) -> None:
    """Every pair is in one run; with room between pages it is one pair long; without, where no page is read twice, none can be lengthened.
    (At address 0 is nothing that the kernel would take.)"""
    w = 2**17
    found = [(start // (w + room) // 2, to // (w + room) // 2, size // w // 2) for to, start, size in copies_of(large, pairs, w, w + room)]
    assert sorted((read + i, written + i) for read, written, count in found for i in range(count)) == sorted(pairs)
    if room:
        assert all(count == 1 for _, _, count in found)
    elif len({read for read, _ in pairs}) == len(pairs):
        ends = {(read + count, written + count) for read, written, count in found}
        assert not ends & {(read, written) for read, written, _ in found}


HOST, DEVICE, MANAGED = 1, 2, 3  # cudaMemoryType; 0 is not registered


@pytest.mark.parametrize(
    ("kind", "device", "pointer", "reached"),
    [(HOST, 0, 64, 64), (DEVICE, 1, 64, 64), (MANAGED, 0, 64, 64), (HOST, 0, 0, 0), (DEVICE, 0, 64, 0), (0, 1, 64, 0), (0, 1, 0, 0)],
    ids=["pinned", "own", "managed", "pinned-not-mapped", "of-another-device", "pageable-that-the-device-reaches", "pageable"],
)
def test_swap_blocks_leaves_other_memory_to_the_engines(large: ctypes.CDLL, kind: int, device: int, pointer: int, reached: int) -> None:
    """On device 1. Where a GPU reaches all memory, pageable memory has an address too, but must be copied before the call ends."""
    large.address_of.restype = ctypes.c_int64
    assert large.address_of(kind, device, ctypes.c_int64(pointer), 1) == reached


@pytest.mark.parametrize(
    ("runs", "size", "in_host", "short"),
    [(1, 100, 1, 0), (2, 100, 1, 1), (2, 2**19 - 2, 1, 1), (2, 2**19, 1, 0), (2, 2**25 - 2, 0, 1), (2, 2**25, 0, 0), (2**20, 2**37, 1, 1)],
)
def test_swap_blocks_gives_short_runs_to_the_kernel(large: ctypes.CDLL, runs: int, size: int, in_host: int, short: int) -> None:
    """Runs of less than 256 KiB where the host has a part in it, of less than 16 MiB on the device; a single run never."""
    assert large.short_runs(ctypes.c_int64(runs), ctypes.c_int64(size), in_host) == short


def test_swap_blocks_says_that_a_launch_failed(large: ctypes.CDLL) -> None:
    cache, pairs = np.zeros((4, 8), np.uint16), np.array([[0, 1], [1, 0]])
    assert large.launch_that_fails(programs.at(cache), programs.at(pairs)) == 1, "cudaErrorInvalidValue"


def test_swap_blocks_with_room_between_pages_beyond_32_bits(large: ctypes.CDLL) -> None:
    w, stride = 2**31 + 8, 2**31 + 16
    expected = [(to * stride * 2, page * stride * 2, w * 2) for page, to in ((1, 3), (2, 4))]
    assert copies_of(large, [(1, 3), (2, 4)], w, stride) == expected


ROWS = [(2**32, 1), (2**32 + 1, 1), (2**32 + 1025, 3), (2**35 + 7, 2), (2**33 - 5, 256), (2**31 + 1, 257), (2**30 + 1, 513), (5, 2**36 + 1)]


@pytest.mark.parametrize(("rows", "pieces"), ROWS)
def test_row_tiles_count_blocks_beyond_32_bits(large: ctypes.CDLL, rows: int, pieces: int) -> None:
    """Of rows and of pieces: four rows a thread, each piece of them once, blocks of at most 256 threads, a power of two of them a row."""
    across = 1
    while across * THREADS < pieces:
        across *= 2
    high = THREADS // -(-pieces // across) * 4
    assert large.blocks_of(ctypes.c_int64(rows), ctypes.c_int64(pieces)) == -(-rows // high) * across < 2**31


def test_the_last_block_of_2_to_the_32_rows_begins_where_it_should(large: ctypes.CDLL) -> None:
    rows = 2**32 + 1
    assert large.last_row_of(ctypes.c_int64(rows), ctypes.c_int64(1)) == 2**32
