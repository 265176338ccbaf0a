"""The host emulator: what it accepts as CUDA, and that what runs does what CUDA says, in every order."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.host_programs import FORWARD, REVERSE, SHUFFLE, at, compilers, load, reset, set_order, text


@pytest.fixture(autouse=True)
def _as_loaded() -> Iterator[None]:
    yield
    reset(load("orders"))


# -- the language


@pytest.mark.parametrize("compiler", compilers(), ids=lambda path: Path(path).name)
def test_launches_in_every_dress(compiler: str) -> None:
    library = load("language", compiler)
    n = 200
    x, f = np.zeros(n, np.int32), np.ones(n, np.float32)
    assert library.launches(at(x), at(f), n) == 0, text(library)
    expected = np.full(n, 10, np.int32)
    expected[0] += 10
    assert x.tolist() == expected.tolist()
    assert f.tolist() == [160.0] + [60.0] * (n - 1)


def test_names_of_the_thread_that_a_program_declares_itself() -> None:
    library, out = load("language"), np.zeros(9, np.int32)
    assert library.own_names(at(out)) == 0, text(library)
    assert out.tolist() == [204] * 8 + [16]


def test_parameters_are_converted_once_and_copied() -> None:
    library = load("language")
    out = np.zeros(7, np.int32)
    assert library.parameters(at(out)) == 0, text(library)
    assert out.tolist() == [4321, 4321, 4321, 4321, 1 + 2 + 97, 40, 41]


@pytest.mark.parametrize("poison", [0xFF, 0x5A])
@pytest.mark.parametrize("order", [FORWARD, REVERSE])
def test_shared_variables_are_distinct_and_poisoned_for_every_block(poison: int, order: int) -> None:
    library = load("language")
    library.samebits_set_poison(poison)
    set_order(library, order, 0)
    bad = np.zeros(1, np.uint32)
    assert library.shared_variables(at(bad), poison) == 0, text(library)
    assert bad[0] == 0


def test_shared_variables_at_namespace_scope() -> None:
    library = load("language")
    out = np.zeros(32, np.int32)
    assert library.namespace_scope(at(out)) == 0, text(library)
    assert out.tolist() == [i * i + i for i in range(31, -1, -1)]


@pytest.mark.parametrize("order", [FORWARD, REVERSE, SHUFFLE])
def test_every_thread_of_every_block_runs_once(order: int) -> None:
    library = load("language")
    set_order(library, order, 3)
    grid, block = np.array([3, 2, 5], np.uint32), np.array([7, 3, 2], np.uint32)
    out = np.full((grid.prod() * block.prod(), 6), 0xFFFF, np.uint32)
    assert library.all_indices(at(out), at(grid), at(block)) == 0, text(library)
    want = [(a, b, c, x, y, z) for c in range(5) for b in range(2) for a in range(3) for z in range(2) for y in range(3) for x in range(7)]
    assert [tuple(row) for row in out.tolist()] == want


def test_runtime_api() -> None:
    library = load("language")
    out, total = np.zeros(4, np.float32), np.zeros(1, np.int32)
    assert library.runtime_api(at(out), at(total)) == 0, text(library)
    assert out.tolist() == [1, 2, 3, 4]
    assert total[0] == 6


# -- warps

SHUFFLES = {0: "idx", 1: "up", 2: "down", 3: "xor"}


def shuffle_source(op: int, lane: int, arg: int, width: int) -> int:
    """PTX ISA, shfl.sync, as its pseudocode has it."""
    c = ((32 - width) << 8) | (0 if op == 1 else 0x1F)
    clamp, segmask = c & 31, c >> 8
    highest = (lane & segmask) | (clamp & ~segmask)
    b = arg & 31
    source = {0: (lane & segmask) | (b & ~segmask), 1: lane - b, 2: lane + b, 3: lane ^ b}[op] & ~0
    inside = source >= highest if op == 1 else source <= highest
    return source if inside else lane


@pytest.mark.parametrize("op", SHUFFLES, ids=SHUFFLES.get)
def test_shuffles_of_every_width(op: int) -> None:
    library = load("warp")
    values = np.arange(64, dtype=np.float32) + 0.5
    wide = (np.arange(64, dtype=np.int64) << 40) + 7
    for width in (1, 2, 4, 8, 16, 32):
        for arg in (0, 1, 2, 3, 5, 8, 16, 31, 32, 33):
            source = np.array([shuffle_source(op, lane, arg, width) for lane in range(32)])
            source = np.concatenate([source, source + 32])
            out, out_wide = np.zeros(64, np.float32), np.zeros(64, np.int64)
            assert library.shuffle4(op, 0xFFFFFFFF, arg, width, at(values), at(out)) == 0, text(library)
            assert library.shuffle8(op, 0xFFFFFFFF, arg, width, at(wide), at(out_wide)) == 0, text(library)
            assert out.tolist() == values[source].tolist(), (width, arg)
            assert out_wide.tolist() == wide[source].tolist(), (width, arg)


@pytest.mark.parametrize("mask", [0x0000FFFF, 0x55555555, 0x80000001, 0xFFFFFFFE, 0x00000010])
@pytest.mark.parametrize("order", [FORWARD, REVERSE, SHUFFLE])
def test_shuffles_with_a_partial_mask(mask: int, order: int) -> None:
    library = load("warp")
    set_order(library, order, mask)
    values = np.arange(64, dtype=np.float32)
    for arg in (1, 2, 16):
        out = np.full(64, -1, np.float32)
        assert library.shuffle4(3, mask, arg, 32, at(values), at(out)) == 0, text(library)
        for thread in range(64):
            lane = thread % 32
            if not mask >> lane & 1:
                assert out[thread] == -1
            elif mask >> (lane ^ arg) & 1:
                assert out[thread] == values[thread ^ arg]
            else:  # a lane that takes no part has no value: poison
                assert out[thread : thread + 1].tobytes() == b"\xff" * 4


@pytest.mark.parametrize("order", [FORWARD, REVERSE, SHUFFLE])
def test_masks_of_half_warps_do_not_disturb_each_other(order: int) -> None:
    library = load("warp")
    v = np.arange(32, dtype=np.uint32)
    lanes = np.arange(32)
    for i in range(100):
        moved = v + v[lanes ^ (1 << (i % 4))]
        v = np.where((lanes < 16) | (i < 7), moved, v)
    out = np.zeros(32, np.uint32)
    for seed in range(8 if order == SHUFFLE else 1):
        set_order(library, order, seed)
        assert library.half_warps(at(out)) == 0, text(library)
        assert out.tolist() == (v + v[31 - lanes]).tolist()


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0F0F00FF])
def test_votes_matches_and_reductions(mask: int) -> None:
    library = load("warp")
    values = np.array([(lane * 7) % 5 - 2 for lane in range(32)], np.int32)
    out = np.zeros((32, 14), np.uint32)
    assert library.all_votes(mask, at(values), at(out)) == 0, text(library)
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    taking_part = [int(values[lane]) for lane in lanes]
    positive = sum(1 << lane for lane in lanes if values[lane] > 0)
    odd = sum(1 << lane for lane in lanes if lane % 2)
    for lane in lanes:
        same = sum(1 << other for other in lanes if values[other] == values[lane])
        xor = functools.reduce(lambda a, b: a ^ b, (v & 0xFFFFFFFF for v in taking_part))
        bits = bin(mask).count("1") + (32 - lane.bit_length()) + ((lane & -lane).bit_length()) + int(f"{lane:05b}"[::-1], 2)
        want = [
            positive,
            1,
            0,
            1,
            0,
            same,
            0,
            0,
            sum(taking_part) & 0xFFFFFFFF,
            min(taking_part) & 0xFFFFFFFF,
            max(v & 0xFFFFFFFF for v in taking_part),
            xor,
            odd if lane % 2 else 0,
            bits,
        ]
        assert out[lane].tolist() == want, lane


def test_barriers_that_count() -> None:
    library = load("warp")
    out = np.zeros(100, np.int32)
    assert library.barriers_with_votes(at(out)) == 0, text(library)
    assert out.tolist() == [34 * 16 + 8 + 2] * 100


def test_lanes_that_returned_are_missed_by_nobody() -> None:
    library = load("warp")
    out = np.zeros(80, np.uint32)
    assert library.exited_lanes(20, at(out)) == 0, text(library)
    for thread in range(80):
        lane, last = thread % 32, 16 if thread >= 64 else 20
        if lane >= last:
            assert out[thread] == 0
        elif lane ^ 16 < last:
            assert out[thread] == (thread ^ 16) + 1000
        else:
            assert out[thread] == (0xFFFFFFFF + 1000) & 0xFFFFFFFF


# -- orders


def arrivals(library: ctypes.CDLL, order: int, seed: int = 0, barrier: int = 0, blocks: int = 4, threads: int = 70) -> np.ndarray:
    """[blocks, threads]: when each thread came."""
    set_order(library, order, seed)
    library.samebits_set_workers(1)
    out = np.zeros((blocks, threads), np.uint32)
    assert library.order_of(barrier, blocks, threads, at(out)) == 0, text(library)
    assert sorted(out.ravel().tolist()) == list(range(blocks * threads))
    return out


@pytest.mark.parametrize("barrier", [0, 1])
def test_orders_of_threads_and_blocks(barrier: int) -> None:
    library = load("orders")
    count = np.arange(4 * 70).reshape(4, 70)
    assert (arrivals(library, FORWARD, 0, barrier) == count).all()
    assert (arrivals(library, REVERSE, 0, barrier) == 279 - count).all()
    shuffled = [arrivals(library, SHUFFLE, seed, barrier) for seed in range(16)]
    assert len({a.tobytes() for a in shuffled}) == 16
    assert len({int(a.min(axis=1).argmin()) for a in shuffled}) > 1  # blocks too
    assert (arrivals(library, SHUFFLE, 5, barrier) == shuffled[5]).all()  # and a seed says all


def test_a_race_is_seen_in_some_order_and_a_clean_kernel_in_none() -> None:
    library = load("orders")
    data = np.random.default_rng(1).standard_normal(3 * 4 * 128).astype(np.float32)
    results: dict[int, set[bytes]] = {0: set(), 1: set()}
    for clean in results:
        for order, seed in [(FORWARD, 0), (REVERSE, 0), *((SHUFFLE, seed) for seed in range(8))]:
            set_order(library, order, seed)
            out = np.zeros((3, 128), np.float32)
            assert library.block_sums(clean, 3, 4, at(data), at(out)) == 0, text(library)
            results[clean].add(out.tobytes())
    assert len(results[1]) == 1
    assert len(results[0]) > 1


def test_cores_change_no_byte() -> None:
    library = load("orders")
    blocks, rounds = 3000, 4
    data = np.random.default_rng(2).standard_normal(blocks * rounds * 128).astype(np.float32)
    results = set()
    for workers in (1, 2, 5):
        library.samebits_set_workers(workers)
        out = np.zeros((blocks, 128), np.float32)
        assert library.block_sums(1, blocks, rounds, at(data), at(out)) == 0, text(library)
        results.add(out.tobytes())
    assert len(results) == 1


def test_blocks_hand_over_by_fences_and_atomics() -> None:
    library = load("orders")
    data = np.arange(2000 * 64, dtype=np.uint32)
    partial, out = np.zeros(2000, np.uint32), np.zeros(1, np.uint32)
    for order in (FORWARD, REVERSE, SHUFFLE):
        set_order(library, order, 1)
        library.samebits_set_workers(2)
        assert library.grid_sum(2000, at(data), at(partial), at(out)) == 0, text(library)
        assert out[0] == data.sum(dtype=np.uint32)


@pytest.mark.parametrize("order", [FORWARD, REVERSE, SHUFFLE])
def test_threads_that_poll_let_the_others_run(order: int) -> None:
    library = load("orders")
    set_order(library, order, 0)
    lock, counter = np.zeros(1, np.int32), np.zeros(1, np.int32)
    assert library.spin_lock(at(lock), at(counter)) == 0, text(library)
    assert counter[0] == 1100


# -- arithmetic


def operands() -> np.ndarray:
    """[3, n] f32: every class of number against every other, then random bits; no two NaN meet, their payload is not promised."""
    special = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F000001]
    special += [0x4B7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000]
    grid = np.array(np.meshgrid(special, special, special), np.uint32).reshape(3, -1)
    random = np.random.default_rng(7).integers(0, 2**32, (3, 20000), dtype=np.uint32)
    near = np.random.default_rng(8).integers(0x3F000000, 0x40800000, (3, 20000), dtype=np.uint32)
    bits = np.concatenate([grid, random, near], axis=1)
    return bits.view(np.float32)


def test_compilers_give_the_same_bytes() -> None:
    assert len(compilers()) >= 1, "neither g++ nor clang++"
    a, b, c = (np.ascontiguousarray(row) for row in operands())
    results = []
    for compiler in compilers():
        library = load("arithmetic", compiler)
        out = np.zeros((len(a), 8), np.float32)
        assert library.run(len(a), at(a), at(b), at(c), at(out)) == 0, text(library)
        results.append(out)
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        rounded = product.astype(np.float32).astype(np.float64)
        want = np.stack([a + b, a - b, a * b, a / b, np.sqrt(a)], axis=1)
        unfused = a * b + c
    for out in results:
        canonical = np.where(np.isnan(out), np.float32(np.nan), out)
        reference = np.where(np.isnan(results[0]), np.float32(np.nan), results[0])
        assert canonical.tobytes() == reference.tobytes()
        for i in range(5):
            number = ~np.isnan(want[:, i])
            assert (np.isnan(out[:, i]) == ~number).all(), i
            assert out[number, i].tobytes() == want[number, i].tobytes(), i
        number = ~np.isnan(unfused)
        assert out[number, 6].tobytes() == unfused[number].tobytes()
    # __fmaf_rn is fused: a product that float cannot hold, with its rounded value taken away, leaves the error.
    i = int(np.flatnonzero((abs(product) > 1) & (abs(product) < 4) & (rounded != product))[0])
    one = [np.array([v], np.float32) for v in (a[i], b[i], -rounded[i])]
    out = np.zeros(8, np.float32)
    assert load("arithmetic").run(1, *(at(v) for v in one), at(out)) == 0
    assert out[5] == np.float32(product[i] - rounded[i]) != 0 == out[6]
