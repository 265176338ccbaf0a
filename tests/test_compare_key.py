"""compare_key: the length of the common prefix of two token sequences, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref.compare_key import SPEC
from pyref.spec import DTYPES
from tests import harness
from tools import legs
from tools.arena import Region, place
from tools.cases import Case
from tools.data import Stream

STEM = "compare_key"


def case(name: str, why: str, dtype: str, lengths: tuple[int, int], common: int, offsets: tuple[int, int] = (0, 0)) -> Case:
    """A case: ``lengths`` of a and b, the first element in which they differ (``common``), and where they start in their buffers."""
    return Case(name, why, {"T": dtype}, {"lengths": lengths, "common": common, "offsets": offsets}, seed=sum(name.encode()))


CASES = [
    *(case(f"{t}-{n}", "equal to the end", t, (n, n), n)
      for t in ("i32", "i64") for n in (0, 1, 2, 3, 7, 255, 256, 257, 511, 512, 513, 5000)),
    *(case(f"{t}-differ-at-{n}", "one element differs, those behind it too", t, (3000, 3000), n)
      for t in ("i32", "i64") for n in (0, 1, 2, 255, 256, 511, 512, 513, 1024, 2999)),
    *(case(f"{t}-prefix-{n}", "a is a prefix of b", t, (n, n + 300), n) for t in ("i32", "i64") for n in (0, 1, 511, 512, 1025)),
    *(case(f"{t}-prefix-of-a-{n}", "b is a prefix of a", t, (n + 300, n), n) for t in ("i32", "i64") for n in (0, 3, 512)),
    *(case(f"{t}-offset-{a}-{b}", "no 16 bytes divide their addresses", t, (1500, 1400), 1300, (a, b))
      for t in ("i32", "i64") for a, b in ((1, 0), (0, 3), (1, 2), (3, 3))),
]  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Behind the shorter one the elements of the longer one go on, where nothing may be read."""
    shape, dtype = case.shape, DTYPES[case.dtypes["T"]][0]
    longest = max(shape["lengths"])
    tokens = Stream(case.seed).words(longest + 64).astype(dtype)
    both = []
    for length, offset in zip(shape["lengths"], shape["offsets"], strict=True):
        whole = place(tokens, offset=offset)
        both.append(Region(whole.buffer, whole.view[:length]))
    if shape["common"] < min(shape["lengths"]):
        rest = both[1].view[shape["common"] :]
        rest[0] ^= np.array(1, dtype) << np.array(8 * dtype.itemsize - 2, dtype)
        rest[1:] = np.flip(rest[1:])
    return {"length": place(np.full(1, -1)), "a": both[0], "b": both[1]}


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


@harness.each(CASES)
def test_the_definition_gives_the_length(case: Case) -> None:
    assert harness.compute(STEM, inputs(case))["length"].tolist() == [case.shape["common"]]


def test_no_gpu_runs_it() -> None:
    call = SPEC.bind({"a": np.zeros(1, np.int32), "b": np.zeros(1, np.int32)})
    declined = {name: legs.leg(name).declines(call) for name in ("gpu", "numba-gpu", "host", "sim")}
    assert declined == {"gpu": "a kernel of the CPU", "numba-gpu": "the port has no kernel", "host": None, "sim": None}


FEW = st.lists(st.integers(0, 2), max_size=40)


@given(FEW, FEW, st.integers(0, 700), st.sampled_from(["i32", "i64"]))
@settings(max_examples=150, deadline=None)
def test_it_is_the_common_prefix(a: list[int], b: list[int], shared: int, dtype: str) -> None:
    expected = shared + next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    left, right = (np.array([7] * shared + rest, DTYPES[dtype][0]) for rest in (a, b))
    for leg in ("ref", "sim", "host"):
        given = {"length": place(np.zeros(1, np.int64)), "a": place(left), "b": place(right)}
        assert harness.compute(STEM, given, leg)["length"].tolist() == [expected], leg


def test_a_sequence_and_itself() -> None:
    tokens = np.arange(1000, dtype=np.int32)
    for leg in ("ref", "sim", "host"):
        call = SPEC.bind({"a": tokens, "b": tokens})
        legs.leg(leg).run(call, {})
        assert call["length"].tolist() == [1000], leg


I64 = np.dtype(np.int64)
BAD: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ("two-dtypes", {"b": place(np.zeros(3, np.int32))}, TypeError, ("b", "got i32", "expected i64 (from a)")),
    ("floats", {"a": place(np.zeros(3, np.float32))}, TypeError, ("a", "got f32", "expected i32 or i64")),
    ("two-axes", {"a": place(np.zeros((3, 1), I64))}, ValueError, ("a", "got 2 axes", "expected 1")),
    ("length-of-2", {"length": place(np.zeros(2, I64))}, ValueError, ("length", "got 2", "expected 1")),
    ("length-of-i32", {"length": place(np.zeros(1, np.int32))}, TypeError, ("length", "got i32", "expected i64")),
    ("missing", {"b": None}, TypeError, ("b", "missing")),
    ("a-list", {"b": [1, 2]}, TypeError, ("b", "list", "NumPy array")),
]


@pytest.mark.parametrize(("changed", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(changed: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    good = {"a": place(np.arange(3)), "b": place(np.arange(3)), "length": place(np.zeros(1, I64))}
    harness.refuses(STEM, {**good, **changed}, kind, *texts)
