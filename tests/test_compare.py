"""The comparer is what every claim of equality rests on: it must reject what looks equal and is not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tools.arena import GUARD, Region, place, sentinel
from tools.compare import difference, surroundings_difference, ulp_distance


def f32(*patterns: int) -> np.ndarray:
    return np.array(patterns, np.uint32).view(np.float32)


def test_equal_bytes_are_accepted_nan_included() -> None:
    values = f32(0x7FFFFFFF, 0x00000000, 0x80000000, 0x3F800000)
    assert difference("out", values, values.copy()) is None


@pytest.mark.parametrize(
    ("got", "expected", "why"),
    [
        (0x80000000, 0x00000000, "-0 is not +0"),
        (0x7FC00000, 0x7FFFFFFF, "one NaN is not another"),
        (0xFFFFFFFF, 0x7FFFFFFF, "the sign of a NaN counts"),
        (0x3F800001, 0x3F800000, "one ulp is a difference"),
        (0x00000001, 0x00000000, "the smallest subnormal is not zero"),
        (0x7F7FFFFF, 0x7F800000, "the largest finite number is not infinity"),
    ],
)
def test_what_looks_equal_is_rejected(got: int, expected: int, why: str) -> None:
    found = difference("out", f32(0, got), f32(0, expected))
    assert found is not None, why
    assert found.count == 1
    for text in ("out", "1 of 2", "[1]", f"0x{got:08X}", f"0x{expected:08X}"):
        assert text in found.text


def test_shape_and_dtype_come_first() -> None:
    values = np.zeros((2, 3), np.float32)
    assert "(2, 3)" in difference("out", values.reshape(3, 2), values).text
    assert "f16" in difference("out", np.zeros((2, 3), np.float16), values).text
    assert difference("out", np.zeros((2, 3), np.uint32), values) is not None, "equal bytes of another dtype are not equal"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int64, np.uint8])
def test_every_dtype_is_compared_by_bits(dtype: type) -> None:
    values = np.zeros((3, 4), dtype)
    other = values.copy()
    other.view(np.uint8)[2, -1] ^= 1
    assert difference("out", values, values.copy()) is None
    assert difference("out", other, values).count == 1


def test_first_coordinate_is_given_in_every_axis() -> None:
    left = np.zeros((3, 4, 5), np.float32)
    right = left.copy()
    right[1, 2, 3] = right[2, 0, 0] = 1
    found = difference("out", left, right)
    assert "[1, 2, 3]" in found.text
    assert found.count == 2


def test_ulp_distance_counts_representable_values() -> None:
    assert ulp_distance(0x3F800001, 0x3F800000, 4) == 1
    assert ulp_distance(0x80000000, 0x00000000, 4) == 1, "-0 and +0 are neighbours"
    assert ulp_distance(0x80000001, 0x00000001, 4) == 3
    assert ulp_distance(0x8001, 0x0001, 2) == 3


def test_an_element_that_nobody_wrote_is_named() -> None:
    out = sentinel((4,), np.dtype(np.float32))
    expected = out.copy()
    expected.view[...] = 1
    assert "nobody wrote it" in difference("out", out.view, expected.view).text


@pytest.mark.parametrize("where", ["before", "after", "gap"])
def test_a_byte_written_around_the_array_is_found(where: str) -> None:
    before = place(np.ones((3, 8), np.float16), pad={1: 8})
    after = before.copy()
    after.buffer[{"before": GUARD - 1, "after": -1, "gap": GUARD + 16}[where]] = 0
    assert surroundings_difference("out", before.copy(), before) is None
    found = surroundings_difference("out", after, before)
    assert found is not None
    assert "1 bytes outside" in found.text


def test_elements_themselves_are_not_surroundings() -> None:
    before = place(np.arange(6, dtype=np.int32))
    after = before.copy()
    after.view[...] = 7
    assert surroundings_difference("slots", after, before) is None


def test_copies_keep_alignment_and_layout() -> None:
    region = place(np.arange(24, dtype=np.float32).reshape(2, 3, 4), pad={1: 1, 2: 2}, offset=3, swap=(0, 1))
    twin = region.copy()
    assert isinstance(twin, Region)
    assert twin.view.strides == region.view.strides
    assert twin.view.ctypes.data % 256 == region.view.ctypes.data % 256
    assert np.array_equal(twin.view, region.view)
    assert not np.shares_memory(twin.buffer, region.buffer)
