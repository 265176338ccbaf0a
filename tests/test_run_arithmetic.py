"""Small floats, rounding directions and inline PTX of the emulator, against NumPy, ml_dtypes and exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.host_programs import at, load, text
from tests.test_host_emulator import operands

DTYPES = {0: np.float16, 1: ml_dtypes.bfloat16, 2: ml_dtypes.float8_e4m3fn, 3: ml_dtypes.float8_e5m2}


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16).astype(np.uint16)


@pytest.mark.parametrize("kind", DTYPES)
def test_every_small_float_widens_exactly(kind: int) -> None:
    library, dtype = load("small_floats"), np.dtype(DTYPES[kind])
    count = 1 << (8 * dtype.itemsize)
    patterns, out = np.arange(count, dtype=np.uint16), np.zeros(count, np.float32)
    assert library.run_widen(kind, at(patterns), at(out), count) == 0, text(library)
    want = patterns.astype(np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype).astype(np.float32)
    number = ~np.isnan(want)
    assert (np.isnan(out) == ~number).all()
    assert out[number].tobytes() == want[number].tobytes()


@pytest.mark.parametrize("kind", DTYPES)
def test_floats_narrow_to_nearest(kind: int) -> None:
    """Every value of the small format, what lies in the middle between neighbours and next to that, and random bits."""
    library, dtype = load("small_floats"), np.dtype(DTYPES[kind])
    count = 1 << (8 * dtype.itemsize)
    values = np.arange(count).astype(np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middle = values[:-1] / 2 + values[1:] / 2
    near = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([values, middle, *near, operands()[0]]).astype(np.float32)
    out = np.zeros(x.size, np.uint16)
    assert library.run_narrow(kind, at(x), at(out), x.size) == 0, text(library)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(dtype)
    number = ~np.isnan(want.astype(np.float32))
    assert out[number].tobytes() == _bits(want)[number].tobytes()
    assert np.isnan(out[~number].astype(np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype).astype(np.float32)).all()


def test_narrowing_has_directions_and_fp8_saturates() -> None:
    library = load("small_floats")
    x = np.concatenate([operands()[1], operands()[2], np.linspace(-3, 3, 4001, dtype=np.float32)])
    x = x[~np.isnan(x)]
    found = {}
    for kind in (0, 4, 5, 6, 7):
        found[kind] = np.zeros(x.size, np.uint16)
        assert library.run_narrow(kind, at(x), at(found[kind]), x.size) == 0, text(library)
    zero, up, down = (found[kind].view(np.float16).astype(np.float32) for kind in (4, 5, 6))
    assert (down <= x).all()
    assert (x <= up).all()
    assert (np.abs(zero) <= np.abs(x)).all()
    finite = np.isfinite(up) & np.isfinite(down)
    exact = up == down
    assert (zero[finite] == np.where(x > 0, down, up)[finite]).all()
    below, above = (found[kind].view(np.float16)[finite & ~exact] for kind in (6, 5))
    assert (np.nextafter(below, np.float16(np.inf)) == above).all()
    assert (found[7][x >= 464] == 0x7E).all()
    assert (found[7][x <= -464] == 0xFE).all()


@pytest.mark.parametrize("kind", [0, 1])
def test_comparisons_and_saturation_of_small_floats(kind: int) -> None:
    """With a NaN the functions are false, those that end in u true, and a saturated sum is zero."""
    library, dtype = load("small_floats"), np.dtype(DTYPES[kind])
    special = np.array([0, -0.0, 0.25, 1, -1, 2, np.inf, -np.inf, np.nan], np.float32).astype(dtype).view(np.uint16)
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(special, special))
    out = np.zeros((a.size, 4), np.uint32)
    assert library.run_comparisons(kind, at(a), at(b), at(out), a.size) == 0, text(library)
    for x, y, row in zip(a.view(dtype).tolist(), b.view(dtype).tolist(), out.tolist(), strict=True):
        nan = math.isnan(x) or math.isnan(y)
        told = [x == y, x != y, x < y, x >= y]
        want = [not nan and bool(is_so) for is_so in told] + [nan or bool(is_so) for is_so in told] + [x != y, x < y]
        assert [bool(row[0] >> k & 1) for k in range(10)] == want, (x, y)
        assert row[1] == (0xFFFF * (x < y) | 0xFFFF0000 * (y < x)), (x, y)
        assert row[2] == (0xFFFFFFFF if nan or x != y else 0), (x, y)
        sums = [float(np.array(word, np.uint16).view(dtype)) for word in (row[3] >> 16, row[3] & 0xFFFF)]
        for got, exact in zip(sums, (x + y, x * y + x), strict=True):
            assert got == (0 if math.isnan(exact) else min(max(exact, 0), 1)), (x, y)


@pytest.mark.parametrize("kind", [0, 1])
def test_arithmetic_of_small_floats_is_rounded_once(kind: int) -> None:
    library, dtype = load("small_floats"), np.dtype(DTYPES[kind])
    rng = np.random.default_rng(kind)
    a, b = (rng.integers(0, 1 << 16, 60000, dtype=np.uint16) for _ in "ab")
    b[:30000] = (a[:30000] & 0xFC00) ^ (b[:30000] & 0x83FF)  # near each other
    n = a.size
    out = np.zeros((5, n), np.uint16)
    assert library.run_operations(kind, at(a), at(b), at(out), n) == 0, text(library)
    with np.errstate(invalid="ignore"):  # signalling NaN
        x, y = (v.view(dtype).astype(np.float64) for v in (a, b))
    with np.errstate(all="ignore"):
        want = [x + y, x - y, x * y, x / y]
        for i, exact in enumerate(want):  # double holds sums and products of these exactly, or far more bits than twice theirs
            narrow = exact.astype(np.float32) if i != 3 else x.astype(np.float32) / y.astype(np.float32)
            rounded = narrow.astype(dtype)
            number = ~np.isnan(rounded.astype(np.float32))
            assert out[i][number].tobytes() == rounded.view(np.uint16)[number].tobytes(), i
    got = out[4].view(dtype)
    rows = [i for i in range(0, n, 23) if np.isfinite(x[i]) and np.isfinite(y[i]) and np.isfinite(float(got[i]))]
    for i in rows:
        exact, value = Fraction(x[i]) * Fraction(y[i]) + Fraction(x[i]), Fraction(float(got[i]))
        for step in (-1, 1):
            other = got[i : i + 1].view(np.uint16) + np.uint16(step & 0xFFFF)
            neighbour = float(other.view(dtype)[0])
            if np.isfinite(neighbour):
                assert abs(value - exact) <= abs(Fraction(neighbour) - exact), (x[i], y[i], float(got[i]))


def test_rounding_directions_are_exact() -> None:
    library = load("small_floats")
    rng = np.random.default_rng(3)
    rows = operands()[:, rng.integers(0, operands().shape[1], 4000)]
    a, b, c = (np.ascontiguousarray(row) for row in rows)
    n = a.size
    out = np.zeros((4, 4, n), np.float32)
    assert library.run_rounded(at(a), at(b), at(c), at(out), n) == 0, text(library)
    most = Fraction(np.finfo(np.float32).max.item())
    for i in range(n):
        x, y, z = float(a[i]), float(b[i]), float(c[i])
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)) or y == 0:
            continue
        fx, fy, fz = Fraction(x), Fraction(y), Fraction(z)
        for op, exact in enumerate((fx + fy, fx * fy, fx / fy, fx * fy + fz)):
            if abs(exact) > most:
                continue
            nearest, zero, down, up = (float(v) for v in out[:, op, i])
            assert Fraction(down) <= exact <= Fraction(up), (op, x, y, z)
            assert Fraction(zero) == (Fraction(down) if exact > 0 else Fraction(up)), (op, x, y, z)
            assert nearest in (down, up), (op, x, y, z)
            if down != up:
                assert np.nextafter(np.float32(down), np.float32(np.inf)) == np.float32(up), (op, x, y, z)
                assert abs(Fraction(nearest) - exact) <= abs(Fraction(down) + Fraction(up) - Fraction(nearest) - exact)


def test_inline_ptx() -> None:
    library = load("ptx")
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 1 << 32, 32, dtype=np.uint32) for _ in "xy")
    f = (rng.standard_normal(32) * 1000).astype(np.float32)
    out = np.zeros((28, 32), np.uint64)
    assert library.run(at(x), at(y), at(f), at(out)) == 0, text(library)
    a, b, g, h = x.astype(np.uint64), y.astype(np.uint64), f, f[::-1].copy()
    sa, sb = x.view(np.int32).astype(np.int64), y.view(np.int32).astype(np.int64)
    shift = b & np.uint64(63)
    low = np.uint64(0xFFFFFFFF)
    wide = g.astype(np.float64) * h.astype(np.float64)
    toward_zero = wide.astype(np.float32)
    over = np.abs(toward_zero.astype(np.float64)) > np.abs(wide)
    toward_zero[over] = np.nextafter(toward_zero[over], np.float32(0))
    mask = np.uint64(0xFFF << 8)
    c = np.uint64(0x0F0F0F0F)
    less = a < b
    lanes = np.arange(32)
    bf = lambda v: v.astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint64)  # noqa: E731
    half = g.astype(np.float16).view(np.uint16).astype(np.uint64)
    word = np.uint64
    least = np.minimum(shift, word(31))
    odd = [(v >> word(8)) & word(0xFF) | (v >> word(24)) << word(8) for v in (a, b)]
    want = [
        (a + b) & low, (a - b) & low, (a * b) >> word(32), (a * b + word(7)) & low, (sa * sb).view(np.uint64), a & b,
        np.where(shift > 31, word(0), (a << least) & low), (sa >> least.astype(np.int64)).astype(np.uint64) & low,
        (a >> word(5)) & word(0x1FF), (b & ~mask) | ((a << word(8)) & mask),
        odd[0] | odd[1] << word(16),
        (a & b) | (~a & c & low), np.array([bin(int(v)).count("1") for v in a], np.uint64), np.maximum(sa, sb).astype(np.uint64) & low,
        (wide + g.astype(np.float64)).astype(np.float32).view(np.uint32).astype(np.uint64), toward_zero.view(np.uint32).astype(np.uint64),
        np.trunc(g).astype(np.int64).astype(np.uint64) & low, sa.astype(np.float32).view(np.uint32).astype(np.uint64), a & word(0xFF),
        half | half << word(16), bf(h) | bf(g) << word(16), np.where(less, a, (b + word(1)) & low),
        a[np.where(lanes + 3 < 32, lanes + 3, lanes)], a[(lanes & 0x18) | 5], a | b << word(32), a,
        np.full(32, sum(int(v & word(1)) << i for i, v in enumerate(a)), np.uint64), lanes.astype(np.uint64),
    ]  # fmt: skip
    assert len(want) == len(out)
    for i, expected in enumerate(want):
        assert out[i].tolist() == expected.tolist(), i


def test_carries_and_branches_of_ptx() -> None:
    """Halves of 64 bits whose sums, differences and products carry everywhere, and nowhere."""
    rng = np.random.default_rng(8)
    edges = np.array([0, 1, (1 << 32) - 1, 1 << 32, (1 << 63), (1 << 64) - 1], np.uint64)
    x, y = (np.concatenate([edges[order], rng.integers(0, 1 << 64, 26, dtype=np.uint64)]) for order in (slice(None), slice(None, None, -1)))
    library, out = load("ptx"), np.zeros((9, 32), np.uint64)
    assert library.run_carries(at(x), at(y), at(out)) == 0, text(library)
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        pairs = zip(a.to_bytes(8, "little")[:4], b.to_bytes(8, "little")[:4], strict=True)
        signed = [(p ^ 128) - 128 for pair in pairs for p in pair]
        dot = a // 2**32 + sum(signed[k] * signed[k + 1] for k in range(0, 8, 2))
        want = [(a + b) % 2**64, (a + b) // 2**64, (a - b) % 2**64, a * b % 2**64, a * b // 2**64, a.bit_count()]
        want += [(a << 8 >> 32) % 2**32, a >> 32, dot % 2**32]
        assert out[:, i].tolist() == want, (a, b)


def test_assembly_beside_names_of_the_program() -> None:
    library, out = load("ptx"), np.zeros(1, np.uint32)
    assert library.run_own_names(at(out)) == 0, text(library)
    assert out[0] == (12 - 5) * (9 + 1) + 2


def test_special_functions_invert_each_other() -> None:
    library = load("special")
    x = np.concatenate([np.linspace(1e-9, 1 - 1e-9, 101), [1e-300, 1e-20, 0.5, 1 - 2**-53]])
    out = np.zeros((11, x.size))
    assert library.run_functions(at(x), at(out), x.size) == 0, text(library)
    erf, erfc = np.vectorize(math.erf), np.vectorize(math.erfc)
    upper = x <= 1 - 1e-9  # where the neighbour of x is near enough for an inverse to be compared
    doubles = [
        (erf(out[0]), x), (erfc(out[1]), x), (out[2], erfc(-x / math.sqrt(2)) / 2), (erfc(-out[3] / math.sqrt(2)) / 2, x),
        (out[4] * np.exp(-x * x), erfc(x)), (out[6], np.sin(np.pi * x)), (out[7], np.cos(np.pi * x)), (out[8] ** -3, x),
    ]  # fmt: skip
    floats = [(erf(out[9]), x), (out[10], out[2])]
    for error, pairs in ((1e-12, doubles), (2e-6, floats)):
        for i, (got, want) in enumerate(pairs):
            assert (np.abs(got - want)[upper] <= error * np.maximum(np.abs(want), 1e-3)[upper]).all(), (error, i)
    assert np.allclose(out[5], [sum((v / 2) ** (2 * k) / math.factorial(k) ** 2 for k in range(20)) for v in x], rtol=1e-14)


def test_parts_of_words() -> None:
    library = load("special")
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 1 << 32, 4000, dtype=np.uint32) for _ in "ab")
    a[:9], b[:9] = np.meshgrid([0x80808080, 0x7FFF7F80, 0], [0x80007F01, 0xFFFFFFFF, 0])[0].ravel(), 0x80FF017F
    out = np.zeros((15, a.size), np.uint32)
    assert library.run_parts(at(a), at(b), at(out), a.size) == 0, text(library)

    def word(values: np.ndarray, bits: int) -> np.ndarray:
        return (values & ((1 << bits) - 1)).astype(f"<u{bits // 8}").reshape(a.size, -1).copy().view("<u4").ravel()

    s = {bits: [v.view(f"<i{bits // 8}").astype(np.int64).reshape(a.size, -1) for v in (a, b)] for bits in (8, 16)}
    u = {bits: [v.view(f"<u{bits // 8}").astype(np.int64).reshape(a.size, -1) for v in (a, b)] for bits in (8, 16)}
    (x, y), (p, q), (m, n), (g, h) = s[8], u[8], s[16], u[16]
    want = [
        word(x + y, 8), word(np.clip(x + y, -128, 127), 8), word(np.clip(g + h, 0, 65535), 16), word(np.clip(m - n, -32768, 32767), 16),
        word(np.maximum(x, y), 8), word(np.minimum(g, h), 16), word((x + y + (x + y >= 0)) >> 1, 8), word((g + h + 1) >> 1, 16),
        word(np.abs(x - y), 8), word(-(m > n).astype(np.int64), 16), word((p <= q).astype(np.int64), 8),
        np.abs(p - q).sum(1).astype(np.uint32), word(np.minimum(np.abs(x), 127), 8), word(-m, 16),
        (7 + (m * y[:, 2:]).sum(1)).astype(np.int32).view(np.uint32),
    ]  # fmt: skip
    for i, expected in enumerate(want):
        assert (out[i] == expected).all(), i


def test_philox() -> None:
    """The known answer of Philox4x32-10 for key and counter zero, streams that differ, and the moments of its numbers."""
    library, threads = load("special"), 512
    words, numbers = np.zeros((threads, 8), np.uint32), np.zeros((threads, 16), np.float32)
    assert library.run_random(0, at(words), at(numbers), threads) == 0, text(library)
    assert [hex(word) for word in words[0, :4]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    assert len(np.unique(words)) == words.size
    uniform, normal = numbers[:, :8], numbers[:, 8:]
    assert 0 < uniform.min() < 0.01 < 0.99 < uniform.max() <= 1
    assert abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.07
    assert abs(normal.std() - 1) < 0.05


def test_integers_from_floats_are_rounded_and_saturate() -> None:
    """Halves, the ends of every integer type and their neighbours in float32, infinities; a NaN gives 0."""
    library = load("special")
    ends = [0.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64]
    near = [np.nextafter(np.float32(end), np.float32(side)) for end in ends for side in (-np.inf, np.inf)]
    some = np.array([*ends, *near, 0.5, 1.5, 2.5, 2.75, 1e30, np.inf, 2.0**31 - 128, 8388609.0], np.float64)
    x = np.concatenate([some, -some, [np.nan]])
    out = np.zeros((4, 8, x.size), np.uint64)
    assert library.run_to_integers(at(x), at(out), x.size) == 0, text(library)
    types = [(-(2**31), 2**31 - 1), (0, 2**32 - 1), (-(2**63), 2**63 - 1), (0, 2**64 - 1)]
    for direction, rounded in enumerate((np.rint, np.trunc, np.floor, np.ceil)):
        for kind in range(8):
            low, high = types[kind % 4]
            for value, got in zip(x, out[direction, kind], strict=True):
                whole = 0 if np.isnan(value) else high if value == np.inf else low if value == -np.inf else int(rounded(value))
                want = min(max(whole, low), high)
                assert int(got) == want % 2**64, (direction, kind, value)
