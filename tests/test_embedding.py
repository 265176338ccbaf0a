"""embedding: rows of a vocabulary shard by id, zeros for ids outside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyref import contract
from pyref.embedding import SPEC, run
from pyref.spec import DTYPES
from tests import harness
from tests.cache_write import anything
from tests.sparse import sparse
from tools import compare, legs
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "embedding"
FLOATS = ("f32", "f16", "bf16")


def case(name: str, why: str, dtypes: str, w: int, ids: list[int], length: int = 9, start: int = 0, **places: Any) -> Case:
    """A case. ``dtypes``: "elements" or "elements ids" (i64 where it is not said). ``places`` says how ``place`` lays out an argument."""
    element, *index = dtypes.split()
    shape = {"w": w, "ids": tuple(ids), "length": length, "start": start, "places": places}
    return Case(name, why, {"T": element, "I": index[0] if index else "i64"}, shape, seed=sum(name.encode()))


EDGES = [-1, 0, 8, 9]
CASES = [
    *(case(f"{t}-{i}", "every dtype, ids at the edges", f"{t} {i}", 64, [*EDGES, 3, 3]) for t in FLOATS for i in ("i32", "i64")),
    *(case(f"shard-{start}", "two shards of one vocabulary", "bf16 i32", 64, [*EDGES, 10, 17, 18, -9], start=start) for start in (0, 9)),
    case("negative-ids", "every negative id gives zeros, the least ones too", "f16 i32", 16, [-1, -2, -(2**31), 2]),
    case("negative-ids-i64", "64-bit ids", "f16", 16, [-1, -(2**63), 2, 2**63 - 1, 2**32, 2**32 + 2]),
    case("negative-id-under-a-shard", "id -1 of shard 3 is not row -4", "f16", 16, [-1, 2, 3, 11, 12], start=3),
    case("far-start", "a start beyond 32 bits", "f16", 16, [2**40 - 1, 2**40, 2**40 + 8, 2**40 + 9, 5], start=2**40),
    case("start-at-the-end", "no id is inside: id - start does not wrap", "f16", 16, [2**63 - 1, 0, -1], start=2**63 - 1, length=1),
    case("empty-shard", "a table of no rows", "f16", 16, [0, 1, -1], length=0),
    case("no-ids", "nothing is launched", "f16", 16, []),
    case("one-id", "one row", "f32", 4, [8]),
    *(case(f"row-of-{w}", "hidden sizes of real models: several warps a row", "bf16", w, [5, -1, 2]) for w in (512, 1024, 2048, 5120)),
    case("row-of-16384", "2,048 accesses a row: eight blocks side by side", "bf16", 16_384, [1, 7], length=2),
    case("row-of-3420", "a row that no 16 bytes divide", "f16", 3420, [1, 0, 3]),
    case("row-of-1710-bytes", "single elements", "f16", 855, [1, 0, 3]),
    *(case(f"tail-{w}", "rows around one, two and eight warps of accesses", "f16", w, [2, 9, 0])
      for w in (255, 256, 257, 264, 511, 512, 520, 2047, 2049)),
    *(case(f"short-{w}", "rows shorter than an access", "f16", w, [2, 9, 0, 8]) for w in (1, 2, 3, 4, 7)),
    case("f32-of-1", "rows of one element: 256 of them a step", "f32", 1, [(7 * i) % 11 - 1 for i in range(1030)]),
    case("70-ids", "several tiles", "bf16 i32", 128, [(5 * i) % 12 - 1 for i in range(70)]),
    case("padded", "rows of table and output with room behind them", "f16", 24, EDGES, out={"pad": {1: 8}}, table={"pad": {1: 16}}),
    case("46-in-48", "strides allow 16 bytes, the rows do not", "f16", 46, EDGES, out={"pad": {1: 2}}, table={"pad": {1: 2}}),
    *(case(f"odd-{a}", f"{a} starts at element 1", "f16", 64, [2, 9, 0], **{a: {"offset": 1}}) for a in ("out", "table")),
    case("8-bytes-off", "8-byte accesses", "f16", 64, [2, 9, 0], table={"offset": 4}),
    case("odd-stride", "rows of the table an odd number of elements apart", "f16", 64, [2, 9, 0], table={"pad": {1: 1}}),
    case("f16-every-nan", "payloads and signs of NaN stay (C9)", "f16", 2046, [1, 0]),
]  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Rows that no id names are poisoned; the output begins as a sentinel."""
    shape, storage = case.shape, DTYPES[case.dtypes["T"]][0]
    ids = np.array(shape["ids"], DTYPES[case.dtypes["I"]][0])
    table = anything(Stream(case.seed), (shape["length"], shape["w"]), storage)
    if case.id.endswith("every-nan"):
        table.view(np.uint16)[:] = np.concatenate([np.arange(0x7C01, 0x8000), np.arange(0xFC01, 0x10000)])
    named = [i for i in range(shape["length"]) if i + shape["start"] in shape["ids"]]
    table.view(f"u{storage.itemsize}")[np.setdiff1d(np.arange(shape["length"]), named)] = np.iinfo(f"u{storage.itemsize}").max
    return {
        "out": sentinel((ids.size, shape["w"]), storage, **shape["places"].get("out", {})),
        "table": place(table, **shape["places"].get("table", {})),
        "ids": place(ids),
        "start": shape["start"],
    }


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


@harness.each(CASES)
def test_the_definition_row_by_row(case: Case) -> None:
    before = inputs(case)
    out = harness.compute(STEM, before)["out"]
    for i, number in enumerate(case.shape["ids"]):
        row = number - case.shape["start"]  # of any size: Python's integers do not wrap
        known = number >= 0 and 0 <= row < case.shape["length"]
        assert out[i].tobytes() == (before["table"].view[row].tobytes() if known else bytes(out[i].nbytes)), number


@given(st.lists(st.integers(-3, 40), max_size=20), st.integers(1, 4), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_shards_add_up(ids: list[int], shards: int, w: int) -> None:
    """Every row comes from exactly one shard: the sum over shards is the row of the whole table."""
    table = contract.to_f32(Stream(w).normal((9 * shards, w), "f16"))
    ids_array = np.array(ids, np.int64)
    parts = [run(table=table[9 * s : 9 * (s + 1)], ids=ids_array, start=9 * s) for s in range(shards)]
    whole = run(table=table, ids=ids_array)
    total = np.zeros_like(whole)
    for part in parts:
        total = contract.add(total, part)
    assert np.array_equal(total, whole)
    assert all((whole[i] == (table[n] if 0 <= n < len(table) else 0)).all() for i, n in enumerate(ids))


def test_any_id_is_safe_on_every_leg() -> None:
    """Unchecked too: ids of stale memory read nothing outside the table."""
    i64 = np.array([2**63 - 1, -(2**63), 2**32, 2**31, -(2**31), -(2**32) - 1, 9, 1 << 40], np.int64)
    for leg in (legs.leg("ref"), *harness.available()):
        if leg.name == "gpu":
            continue  # the same in the cases, over guarded memory
        out = sentinel((8, 16), np.dtype(np.float16)).view
        leg.run(SPEC.bind({"out": out, "table": anything(Stream(1), (9, 16), np.dtype(np.float16)), "ids": i64, "start": 1}), {})
        assert np.flatnonzero(compare.bits(out).any(1)).tolist() == [6], leg.name


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_row_1048577_of_width_4096(leg: str) -> None:
    """BUGS: rows x width in 32 bits. The row begins at element 2^32 + 4,096, row 16 of the output at 2^32."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    f16, last = np.dtype(np.float16), 2**20 + 1
    table, out = sparse((last + 1, 4096), f16, (4096, 1)), sparse((17, 4096), f16, (2**28, 1))
    table[last] = anything(Stream(1), (4096,), f16)
    ids = np.full(17, -1)
    ids[16] = last
    out[0] = 1
    runner.run(SPEC.bind({"out": out, "table": table, "ids": ids}, checked=True), {})
    assert not compare.bits(out[0]).any(), "row 0 is not zeros: another row went to it"
    assert out[16].tobytes() == table[last].tobytes(), "the row did not arrive"


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def good(**changed: Any) -> dict[str, Any]:
    return {**inputs(case("good", "", "f16", 64, EDGES)), **changed}


F16 = np.dtype(np.float16)
BAD: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ("start-below-0", good(start=-1), ValueError, ("start", "got -1", "at least 0")),
    ("start-is-no-integer", good(start=1.5), TypeError, ("start", "float", "integer")),
    ("out-of-3-rows", good(out=sentinel((3, 64), F16)), ValueError, ("ids", "axis n", "got 4", "expected 3 (from out)")),
    ("table-narrower", good(table=sentinel((9, 63), F16)), ValueError, ("table", "axis w", "got 63", "expected 64 (from out)")),
    ("table-of-bf16", good(table=sentinel((9, 64), DTYPES["bf16"][0])), TypeError, ("table", "got bf16", "expected f16 (from out)")),
    ("table-of-f64", good(out=None, table=place(np.zeros((9, 64)))), TypeError, ("table", "got float64", "expected f32 or f16 or bf16")),
    ("table-of-1-axis", good(table=sentinel((64,), F16)), ValueError, ("table", "got 1 axes", "expected 2")),
    ("ids-of-2-axes", good(ids=place(np.zeros((2, 2), np.int64))), ValueError, ("ids", "got 2 axes", "expected 1")),
    ("ids-of-u8", good(ids=place(np.zeros(4, np.uint8))), TypeError, ("ids", "got u8", "expected i32 or i64")),
    ("rows-not-dense", good(table=sentinel((9, 64), F16, swap=(0, 1))), ValueError, ("table", "axis w", "stride of 18 bytes")),
    ("rows-of-nothing", good(out=sentinel((4, 0), F16), table=sentinel((9, 0), F16)), ValueError, ("table: axis w", "got 0", "at least 1")),
    ("no-table", good(table=None), TypeError, ("table", "missing")),
]


@pytest.mark.parametrize(("arguments", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(arguments: dict[str, Any], kind: type[Exception], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, arguments, kind, *texts)


VIEWS: list[tuple[str, Callable[..., dict[str, Any]], tuple[str, ...]]] = [
    ("out-in-the-table", lambda table, **rest: {"out": table[2:6]}, ("out: got memory that overlaps table",)),
    ("ids-in-out", lambda out, **rest: {"ids": out[1, :16].view(np.int64)}, ("out: got memory that overlaps ids",)),
    ("rows-of-out-overlap", lambda out, **rest: {"out": np.lib.stride_tricks.as_strided(out, strides=(64, 2))}, ("out", "axis n")),
    ("read-only", lambda out, **rest: {"out": np.lib.stride_tricks.as_strided(out, writeable=False)}, ("out", "read-only")),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: tuple[str, ...]) -> None:
    harness.refuses(STEM, good(), ValueError, *texts, call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_the_output_is_allocated_where_it_is_absent() -> None:
    out = run(**{name: value.view if hasattr(value, "view") else value for name, value in good(out=None).items()})
    assert out.shape == (4, 64)
    assert not compare.bits(out[[0, 3]]).any()


def test_a_grid_beyond_its_limit_is_refused() -> None:
    """Without memory: all ids are one id."""
    ids, table = np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), (2**36,), (8,)), np.zeros((1, 256), np.float16)
    with pytest.raises(ValueError, match=f"embedding: ids: axis n: got {2**36}, expected at most {(2**31 - 1) * 2}"):
        SPEC.bind({"table": table, "ids": ids})
