"""C1 to C8 one by one, judged by exact rationals. C4 is in test_elementary, C9 and C11 in test_conversions, C12 and C13 in test_states."""

from __future__ import annotations

import ctypes
import itertools
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from pyref import contract
from tests.rationals import (
    BINARY32,
    CORNERS,
    INF,
    NEGATIVE_INF,
    bits,
    canonical,
    exact_divide,
    exact_fma,
    f32,
    fraction,
    is_negative,
    near_ties,
)
from tools.data import Stream

# --- the judge ---


def test_the_judge_rounds_like_a_conversion_from_binary64() -> None:
    """An implementation of its own (the processor's) for numbers that binary64 holds."""
    words = Stream(1).words(20000)
    x = words.view(np.float64)
    near = np.ldexp(1.0 + (words >> np.uint64(12)).astype(np.float64) * 2.0**-52, (words % np.uint64(300)).astype(np.int64) - 170)
    with np.errstate(all="ignore"):
        for value in (*x[np.isfinite(x)].tolist(), *near.tolist()):
            assert BINARY32.nearest(Fraction(value), value < 0) == bits(np.float32(value))[0], value.hex()


# --- C1: rounding, and the probe that refuses to run without it ---


@contextmanager
def floating_environment(change: Callable[[bytearray], None]) -> Iterator[None]:
    """This thread's floating point environment, changed in the C library's record of it."""
    libm = ctypes.CDLL(None)
    saved = (ctypes.c_char * 64)()
    assert libm.fegetenv(saved) == 0
    record = bytearray(saved.raw)
    change(record)
    try:
        assert libm.fesetenv((ctypes.c_char * 64).from_buffer(record)) == 0
        yield
    finally:
        libm.fesetenv(saved)


def control(field: str) -> Callable[[bytearray], None]:
    """Sets a field of MXCSR (x86-64: the last word of glibc's 32 bytes) or of FPCR (arm64: the first word)."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    offset = 28 if x86 else 0
    mask = {
        "flush": 0x8040 if x86 else 1 << 24,  # results and operands
        "downward": 0x2000 if x86 else 2 << 22,
        "upward": 0x4000 if x86 else 1 << 22,
        "toward zero": 0x6000 if x86 else 3 << 22,
    }[field]

    def change(record: bytearray) -> None:
        word = int.from_bytes(record[offset : offset + 4], "little") | mask
        record[offset : offset + 4] = word.to_bytes(4, "little")

    return change


def test_c1_the_probe_passes_here() -> None:
    contract.probe()


@pytest.mark.parametrize(
    ("field", "says"), [("flush", "flushed to zero"), ("downward", "nearest"), ("upward", "nearest"), ("toward zero", "nearest")]
)
def test_c1_the_probe_refuses_a_changed_environment(field: str, says: str) -> None:
    """Libraries built with fast-math flags set flush-to-zero for the thread that loads them."""
    with floating_environment(control(field)):
        try:
            contract.probe()
        except RuntimeError as error:
            text = str(error)
        else:
            text = "no error"
    assert says in text
    assert text.startswith("C1")
    contract.probe()


def test_c1_operations_round_once_at_all_corners() -> None:
    x = f32(*CORNERS)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    one, zero = np.float32(1), np.float32(-0.0)
    for name, got, exact in (
        ("add", contract.add(a, b), lambda p, q: exact_fma(p, one, q)),
        ("sub", contract.sub(a, b), lambda p, q: exact_fma(q, np.float32(-1), p)),
        ("mul", contract.mul(a, b), lambda p, q: exact_fma(p, q, zero if is_negative(p) != is_negative(q) else np.float32(0))),
        ("div", contract.div(a, b), exact_divide),  # C5
    ):
        for p, q, found in zip(a, b, canonical(got), strict=True):
            assert found == exact(p, q), f"C1: {name}({p!r}, {q!r}) gave {found:#010x}, exact is {exact(p, q):#010x}"


def test_c5_sqrt_is_correctly_rounded() -> None:
    words = (Stream(3).words(3000) & np.uint64(0x7FFFFFFF)).astype(np.uint32)
    x = np.concatenate([f32(*CORNERS), words.view(np.float32)])
    for value, root in zip(x, np.asarray(contract.sqrt(x)), strict=True):
        if np.isnan(value) or value < 0:
            assert np.isnan(root), value
        elif value == 0 or np.isinf(value):
            assert bits(root) == bits(value)
        else:  # the exact root lies between the midpoints on both sides of the result
            below, above = (fraction(np.nextafter(root, np.float32(end))) for end in (0, np.inf))
            low, high = (fraction(root) + below) / 2, (fraction(root) + above) / 2
            assert low**2 < fraction(value) < high**2, f"C5: sqrt({value!r}) gave {root!r}"


def test_operands_that_are_not_binary32_are_refused() -> None:
    one = np.float32(1)
    for function in (contract.add, contract.mul, contract.sub, contract.div, contract.running_max, contract.chain):
        with pytest.raises(TypeError, match="float64"):
            function(one, 2.0)
    with pytest.raises(TypeError, match="float16"):
        contract.fma(one, one, np.float16(1))
    with pytest.raises(TypeError, match="float64"):
        contract.exp2(np.ones(4))


# --- C3: fma ---

TWINS = (contract.fma, contract.fma_exact)


@pytest.mark.parametrize("fma", TWINS)
def test_c3_fma_at_triples_of_corners(fma: Callable[..., np.ndarray]) -> None:
    few = [CORNERS[i] for i in range(0, len(CORNERS), 3)] + [0x80000000, 0x80000001, 0xBF800000, 0xFF7FFFFF]
    triples = f32(*itertools.chain.from_iterable(itertools.product(few, repeat=3))).reshape(-1, 3)
    got = canonical(fma(*triples.T))
    for triple, found in zip(triples, got, strict=True):
        assert found == exact_fma(*triple), f"C3: fma{tuple(triple)} gave {found:#010x}, exact is {exact_fma(*triple):#010x}"


@pytest.mark.parametrize("power", [0, -149])
@pytest.mark.parametrize("fma", TWINS)
@pytest.mark.parametrize("sign", [1, -1])
def test_c3_fma_at_constructed_near_ties(power: int, fma: Callable[..., np.ndarray], sign: int) -> None:
    x, y, c = near_ties(power)
    x, c = x * np.float32(sign), c * np.float32(sign)
    got = bits(fma(x, y, c))
    expected = [BINARY32.nearest(fraction(x[0]) * fraction(y[0]) + fraction(v)) for v in c]
    assert got == expected, f"C3: {sum(g != e for g, e in zip(got, expected, strict=True))} of {len(got)} near-ties are wrong"
    plain = bits((x.astype(np.float64) * y + c).astype(np.float32))
    wrong = sum(p != e for p, e in zip(plain, expected, strict=True))
    assert wrong > len(c) // 3, "the case does not bite: a plain binary64 sum is right"


def operand_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    stream, count = Stream(6), 1 << 18

    def raw() -> np.ndarray:
        return (stream.words(count) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)

    def near(low: int, high: int) -> np.ndarray:
        scale = np.ldexp(np.float32(1), stream.integers(low, high, count)).astype(np.float32)
        return contract.mul(scale, stream.normal((count,), "f32"))

    yield "any bits", raw(), raw(), raw()
    yield "like magnitudes", near(-2, 3), near(-2, 3), near(-3, 4)
    yield "subnormal sums", near(-80, -60), near(-80, -60), near(-150, -126)
    yield "sums about the least normal number", near(-64, -61), near(-64, -61), near(-128, -124)
    yield "sums about overflow", near(60, 64), near(62, 65), near(124, 128)
    halves = [contract.to_f32(stream.normal((count,), "f16")) for _ in range(3)]
    yield "f16 operands: many exact ties", halves[0], halves[1], halves[2]

    def short(low: int, high: int, kept: int = 0xFFFF0000) -> np.ndarray:
        return (near(low, high).view(np.uint32) & np.uint32(kept)).view(np.float32)

    yield "bf16 operands of any exponent", short(-140, 127), short(-140, 127), near(-149, 127)
    tiny = [f32(*(stream.integers(-70, -63, count) + 127 << 23 | stream.integers(0, 128, count) << 16)) for _ in range(2)]
    yield "bf16 operands whose product is subnormal", tiny[0], tiny[1], near(-145, -135)
    yield "bf16 operands whose product overflows and comes back", short(62, 66), -np.abs(short(62, 66)), np.abs(near(126, 128))
    yield "operands of 12 bits", short(-2, 3, 0xFFFFF000), short(-2, 3, 0xFFFFF000), near(-3, 4)
    yield "operands of 13 bits: their product may be inexact", short(-2, 3, 0xFFFFF800), short(-2, 3, 0xFFFFF800), near(-3, 4)
    yield "cancellation", (a := near(0, 2)), (b := near(0, 2)), -contract.mul(a, b)


@pytest.mark.parametrize(("name", "a", "b", "c"), list(operand_sets()), ids=lambda x: x if isinstance(x, str) else "")
def test_c3_fma_is_fma_exact_bit_for_bit(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    fast, exact = contract.fma(a, b, c), contract.fma_exact(a, b, c)
    wrong = np.flatnonzero(np.array(canonical(fast)) != np.array(canonical(exact)))
    assert not wrong.size, f"C3: {name}: fma{a[wrong[0]], b[wrong[0]], c[wrong[0]]}: {fast[wrong[0]]!r}, twin {exact[wrong[0]]!r}"
    for i in range(0, len(a), len(a) // 500):
        assert canonical(exact[i]) == [exact_fma(a[i], b[i], c[i])], f"C3: {name}: fma{a[i], b[i], c[i]} gave {exact[i]!r}"


def test_fma_broadcasts_like_numpy() -> None:
    a, b, c = f32(0x3F800001, 0x40400000), f32(0x3F800001), f32(*range(0x3F800000, 0x3F800006)).reshape(3, 1, 2)
    assert contract.fma(a, b, c).shape == (3, 1, 2)
    assert np.array_equal(contract.fma(a, b, c), contract.fma_exact(a, b, c))
    assert contract.fma(a[0], b[0], a[1]).shape == ()
    assert contract.fma(a[:0], b, a[:0]).shape == (0,)
    wide = np.broadcast_to(c.reshape(3, 2), (20000, 3, 2))  # more than one block
    assert np.array_equal(contract.fma(wide, a, wide[:1]), contract.fma_exact(wide, a, wide[:1]))


# --- C6, C7, C8 ---


def test_c6_a_nan_never_wins_a_running_maximum() -> None:
    nan, one, low = np.float32(np.nan), np.float32(1), np.float32(-np.inf)
    assert bits(contract.running_max(one, nan)) == bits(one)
    assert bits(contract.running_max(low, nan)) == [NEGATIVE_INF]
    assert bits(contract.running_max(low, one)) == bits(one)
    assert np.isnan(contract.running_max(nan, one)), "C6: x > m is false for m = NaN, which is why a maximum starts from -inf"
    assert bits(contract.running_max(np.float32(0.0), np.float32(-0.0))) == [0]  # equal: the first stays
    assert bits(contract.running_max(np.float32(-0.0), np.float32(0.0))) == [0x80000000]


def walked_tree(values: np.ndarray) -> np.float32:
    """C7 told once more, as 128 threads: every lane adds what its partner held, then warps in the classic order."""
    held = [np.float32(0)] * 128
    held[: len(values)] = list(values)
    for distance in (16, 8, 4, 2, 1):
        held = [np.float32(held[t] + held[(t // 32) * 32 + ((t % 32) ^ distance)]) for t in range(128)]
    return np.float32(np.float32(held[0] + held[64]) + np.float32(held[32] + held[96]))


def test_c7_tree_sum_is_the_walk_of_128_threads() -> None:
    for count in (1, 2, 31, 32, 33, 64, 127, 128):
        x = Stream(count).normal((5, count), "f32", scale=1000.0)
        assert bits(contract.tree_sum(x)) == [bits(walked_tree(row))[0] for row in x], f"C7: {count} values"
        assert np.array_equal(contract.tree_sum(x.T, axis=0), contract.tree_sum(x))
    minus = np.full(128, -0.0, np.float32)
    assert bits(contract.tree_sum(minus)) == [0x80000000]
    assert bits(contract.tree_sum(minus[:127])) == [0], "C7: a missing value is +0"
    with pytest.raises(ValueError, match="129"):
        contract.tree_sum(np.zeros(129, np.float32))


def test_c7_the_order_of_the_tree_matters_here() -> None:
    """A case in which the sum in another order differs, so that the test above can fail."""
    x = Stream(2).normal((128,), "f32", scale=1000.0)
    tree = bits(contract.tree_sum(x))
    rows = np.float32([contract.tree_sum(x[32 * r : 32 * r + 32]) for r in range(4)])
    assert bits(contract.add(contract.add(rows[0], rows[2]), contract.add(rows[1], rows[3]))) == tree
    others = [contract.add(contract.add(rows[0], rows[1]), contract.add(rows[2], rows[3])), np.add.accumulate(x)[-1]]
    assert all(bits(other) != tree for other in others)


def test_c8_chain_is_one_fma_after_another() -> None:
    stream = Stream(8)
    a, b = stream.normal((3, 1, 40), "f32"), stream.normal((1, 4, 40), "f32")
    expected = np.zeros((3, 4), np.float32)
    for h, t in itertools.product(range(3), range(4)):
        acc = np.float32(0)
        for i in range(40):
            acc = f32(exact_fma(a[h, 0, i], b[0, t, i], acc))[0]
        expected[h, t] = acc
    assert bits(contract.chain(a, b)) == bits(expected)
    assert bits(contract.chain(a.transpose(2, 0, 1), b.transpose(2, 0, 1), axis=0)) == bits(expected)
    assert bits(contract.chain(a[1, 0], b[0, 2])) == bits(expected[1, 2])


def test_c8_chain_starts_at_plus_zero_and_skips_nothing_itself() -> None:
    zero, minus = np.float32(0), np.float32(-0.0)
    assert bits(contract.chain(np.array([minus]), np.array([np.float32(1)]))) == [0], "C8: +0 + -0 is +0"
    tiny = f32(0x80000001)
    assert bits(contract.chain(tiny, f32(0x00000001))) == [0x80000000], "C8: p * v below all subnormals leaves -0"
    kept, padded = contract.chain(tiny, f32(1)), contract.chain(np.append(tiny, zero), np.append(f32(1), zero))
    assert bits(kept) != bits(padded), "C8: a zero that takes part changes the sign of a zero sum"
    assert np.isnan(contract.chain(f32(0x3F800000, 0), f32(0x3F800000, INF))), "C10: a weight of +0 times an infinite v is NaN"
    assert contract.chain(np.zeros((4, 0), np.float32), np.zeros((4, 0), np.float32)).tolist() == [0, 0, 0, 0]
    assert contract.chain(np.zeros((0, 5), np.float32), np.zeros(5, np.float32)).shape == (0,)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_c8_chain_in_blocks_is_the_slow_chain(dtype: str) -> None:
    """More results than one block of the cache, operands short and long, some of them outside the short path's range."""
    stream = Stream(9)
    a = contract.to_f32(stream.normal((3, 1, 24), dtype))
    b = contract.to_f32(stream.normal((3, 9000, 24), dtype))
    b[1, 5000:5003, 3] = [2.0**-130, np.inf, np.nan]
    acc = np.zeros((3, 9000), np.float32)
    for i in range(24):
        acc = contract.fma_exact(a[..., i], b[..., i], acc)
    assert canonical(contract.chain(a, b)) == canonical(acc)
