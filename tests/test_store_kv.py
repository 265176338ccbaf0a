"""store_kv: rows of K and V into their pools by slot, bit for bit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_cu import build
from pyref.spec import DTYPES
from pyref.store_kv import SPEC, run
from tests import harness
from tests.sparse import sparse
from tools import cases, compare, legs
from tools.arena import Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "store_kv"
ARRAYS = ("k", "v", "k_pool", "v_pool")
FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2", "u8")


def case(name: str, why: str, dtype: str, w: int, slots: list[int], s: int = 9, *, index: str = "i64", r: int = -1, **places: Any) -> Case:
    """A case of s slots and r rows (default: as many as ``slots``): ``places`` says how ``place`` lays out an argument."""
    shape = {"r": len(slots) if r < 0 else r, "w": w, "s": s, "m": len(slots), "slots": tuple(slots), "places": places}
    return Case(name, why, {"T": dtype, "I": index}, shape, seed=sum(name.encode()))


def at(offset: int) -> dict[str, Any]:
    """A layout: the array starts ``offset`` elements after an aligned address."""
    return {"offset": offset}


def apart(elements: int, offset: int = 0) -> dict[str, Any]:
    """A layout: so many elements between the end of a row and the start of the next."""
    return {"pad": {1: elements}, "offset": offset}


WIDTHS = [  # dtype, w, the access in bytes that the row's length allows
    ("f32", 12, 16), ("f32", 6, 8), ("f32", 1, 4), ("f32", 855, 4), ("f16", 24, 16), ("f16", 12, 8), ("f16", 6, 4), ("f16", 7, 2),
    ("f16", 1, 2), ("bf16", 1710, 4), ("e4m3", 80, 16), ("e5m2", 40, 8), ("u8", 20, 4), ("u8", 3420, 4), ("u8", 6, 2), ("u8", 5, 1),
    ("u8", 1, 1),
]  # fmt: skip
LONG = ((1024, "four pieces a lane"), (1032, "one more"), (1016, "one less"), (2056, "a third round"), (264, "a second in one lane"))
CASES = [
    *(case(f"{t}-i64", "every dtype, slots in no order", t, 64, [7, 0, 3, 8, 5]) for t in FLOATS),
    *(case(f"{t}-i32", "slots of 32 bits", t, 64, [7, 0, -1, 8, 5], index="i32") for t in ("f16", "u8")),
    *(case(f"{t}-w{w}-access{a}", f"rows of {w} elements allow accesses of {a} bytes", t, w, [4, 0, 8]) for t, w, a in WIDTHS),
    *(case(f"offset{o}-{a}", f"{a} starts at element {o}", "f16", 24, [2, 7], **{a: at(o)}) for o in (1, 4) for a in ARRAYS),
    *(case(f"offset{o}-u8-{a}", "byte addresses", "u8", 48, [2, 7], **{a: at(o)}) for o, a in ((1, "k"), (2, "v_pool"), (12, "v"))),
    *(case(f"pad{p}-{a}", f"rows of {a} lie {p} elements apart", "f16", 24, [3, 1], **{a: apart(p)}) for p in (1, 8) for a in ARRAYS),
    *(case(f"one-row-pad1-{a}", "a single row of an odd stride", "f16", 24, [1], **{a: apart(1)}) for a in ARRAYS),
    case("own-strides", "four strides", "bf16", 24, [5, 2, 0], k=apart(8), v=apart(16), k_pool=apart(24), v_pool=apart(32)),
    case("qkv-slice", "K and V are slices of rows of qkv that start inside them", "f16", 32, [1, 6], k=apart(96, 64), v=apart(96, 96)),
    case("padding-in-the-middle", "-1 skips a row", "f16", 24, [4, -1, 0, -1, -1, 2]),
    case("padding-first", "-1 in the first row", "f32", 5, [-1, 3]),
    case("all-padding", "nothing is written", "f16", 24, [-1, -1, -1]),
    case("8-rows-5-slots", "rows without a slot are padding", "f16", 24, [6, 1, 4, 0, 3], r=8),
    case("8-rows-5-slots-i32", "the same with 32-bit slots", "f16", 24, [6, 1, -1, 0, 3], r=8, index="i32"),
    case("no-slots", "rows, but no slots: nothing is launched", "f16", 24, [], r=3),
    case("no-rows", "no rows at all", "f16", 24, []),
    case("no-pool", "a pool of no slots takes padding alone", "f16", 24, [-1, -1], s=0),
    case("first-and-last-slot", "both ends of the pool", "f16", 24, [8, 0]),
    case("one-slot", "one row, one slot", "u8", 33, [0], s=1),
    case("one-row-odd-stride", "the stride of a single row plays no part", "f16", 24, [0], s=1, k=apart(1), v_pool=apart(3)),
    case("17-rows", "three blocks, the last one with a single row", "f16", 8, [(5 * i) % 23 for i in range(17)], s=23),
    case("9-rows-of-a-byte", "two blocks", "u8", 1, [8, 7, 6, 5, 4, 3, 2, 1, 0]),
    *(case(f"long-{w}", why, "f16", w, [1, 0], s=2) for w, why in LONG),
    case("f16-every-nan", "payloads and signs of all 2,046 NaN stay (C9)", "f16", 1023, [1, 2], s=3),
    case("f32-nans", "signalling NaN stay (C9)", "f32", 64, [1, 2], s=3),
    case("e4m3-every-byte", "all 256 patterns", "e4m3", 256, [1, 2], s=3),
    case("e5m2-every-byte", "all 256 patterns", "e5m2", 256, [1, 2], s=3),
    case("bf16-every-nan", "all 254 NaN of bf16", "bf16", 127, [1, 2], s=3),
]


def contents(name: str, dtype: str, shape: tuple[int, int], stream: Stream) -> np.ndarray:
    """Rows of any bits, or of the patterns that the case is named after."""
    storage = DTYPES[dtype][0]
    if name.endswith("every-byte"):
        return np.resize(np.arange(256, dtype=np.uint8), shape).view(storage)
    if name.endswith(("every-nan", "nans")):
        first = {"f16": 0x7C01, "bf16": 0x7F81, "f32": 0x7F800001}[dtype]
        unsigned = np.dtype(f"u{storage.itemsize}")
        rows = first + np.arange(shape[1], dtype=unsigned) * unsigned.type(1 if storage.itemsize == 2 else 0x1F0F1)
        return np.stack([rows, rows | unsigned.type(1 << (8 * storage.itemsize - 1))]).view(storage)
    count = shape[0] * shape[1]
    return stream.words(count).view(np.uint8)[: count * storage.itemsize].view(storage).reshape(shape)


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case. Rows that are padding hold bytes of their own, which are nowhere else; pools begin as sentinels.

    Behind the end of ``slots`` lie slots that exist: a kernel that goes on to the last row writes into them.
    """
    shape, dtype, stream = case.shape, case.dtypes["T"], Stream(case.seed)
    slots = np.array(shape["slots"], DTYPES[case.dtypes["I"]][0])
    written = np.zeros(shape["r"], bool)
    written[: slots.size] = slots >= 0
    behind = shape["r"] - slots.size
    found: dict[str, Any] = {"slots": place(slots, pad={0: behind})}
    start = found["slots"].offset + slots.nbytes
    np.ndarray((behind,), slots.dtype, found["slots"].buffer, start)[:] = np.arange(behind) % max(shape["s"], 1)
    for name in ("k", "v"):
        rows = contents(case.id, dtype, (shape["r"], shape["w"]), stream)
        rows.view(np.uint8)[~written] = 0x5A
        found[name] = place(rows, **shape["places"].get(name, {}))
    for name in ("k_pool", "v_pool"):
        found[name] = sentinel((shape["s"], shape["w"]), DTYPES[dtype][0], **shape["places"].get(name, {}))
    return found


@harness.each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


def by_id(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


@harness.each([case for case in CASES if case.shape["r"]])
def test_the_definition_by_single_bytes(case: Case) -> None:
    """Bytes of the named slots are those of the rows, all others those of before: counted without any array arithmetic."""
    before = inputs(case)
    got = harness.compute(STEM, before)
    for pool, rows in (("k_pool", "k"), ("v_pool", "v")):
        expected = [row.tobytes() for row in compare.bits(before[pool].view)]
        for i, slot in enumerate(case.shape["slots"]):
            if slot >= 0:
                expected[slot] = before[rows].view[i].tobytes()
        assert [row.tobytes() for row in compare.bits(got[pool])] == expected


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rows_arrive_and_nothing_else_changes(data: st.DataObject) -> None:
    s, w, dtype = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40)), DTYPES[data.draw(st.sampled_from(FLOATS))][0]
    chosen = data.draw(st.permutations(range(s)))[: data.draw(st.integers(0, s))]
    slots = np.array([-1 if data.draw(st.booleans()) else slot for slot in chosen], np.int32)
    size, rows = w * dtype.itemsize, slots.size + 2
    k = np.frombuffer(data.draw(st.binary(min_size=size * rows, max_size=size * rows)), dtype).reshape(rows, w)
    pools = {name: np.full(s * size, 1, np.uint8).view(dtype).reshape(s, w) for name in ("k_pool", "v_pool")}
    run(k=k, v=k[::-1], slots=slots, **pools)
    for slot in range(s):
        found = np.flatnonzero(slots == slot)
        assert pools["k_pool"][slot].tobytes() == (k[found[0]].tobytes() if found.size else bytes([1]) * size)
        assert pools["v_pool"][slot].tobytes() == (k[::-1][found[0]].tobytes() if found.size else bytes([1]) * size)


def test_k_and_v_of_one_qkv_and_pools_of_one_cache() -> None:
    """Views that interleave without sharing an element are allowed, on every leg."""
    qkv = place(Stream(5).normal((3, 3, 16), "f16"))
    cache = sentinel((6, 2, 16), np.dtype(np.float16))
    for leg in (legs.leg("ref"), *harness.available()):
        rows, pools = qkv.copy(), cache.copy()
        slots = place(np.array([5, -1, 2]))
        arguments = {"k": rows.view[:, 1], "v": rows.view[:, 2], "slots": slots.view}
        if leg.name == "gpu":
            continue  # its memory is one buffer an argument; the cases with strides cover it
        leg.run(SPEC.bind({**arguments, "k_pool": pools.view[:, 0], "v_pool": pools.view[:, 1]}, checked=True), {})
        expected = cache.copy().view
        expected[[5, 2], 0], expected[[5, 2], 1] = qkv.view[[0, 2], 1], qkv.view[[0, 2], 2]
        assert compare.difference(leg.name, pools.view, expected) is None


def test_negative_slots_are_skipped_unchecked() -> None:
    for leg in (legs.leg("ref"), *harness.available()):
        mine = inputs(by_id("f16-i64"))
        mine["slots"].view[:] = [-1, -2, 3, -(2**40), -(2**63)]
        call = SPEC.bind(cases.views(mine))
        leg.run(call, {name: value for name, value in mine.items() if isinstance(value, Region)})
        touched = [slot for slot in range(9) if (compare.bits(mine["k_pool"].view[slot]) != 0xFFA5).any()]
        assert touched == [3], leg.name


# --- 32 bits are not enough (BUGS: rows x width; stride x row) ---------------------------------------------------------------------------


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_slot_1048576_of_width_4096(leg: str) -> None:
    """Its first byte is byte 2^32 of the pool."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    slot, w, u8 = 1_048_576, 4096, np.dtype(np.uint8)
    k, v = (np.full((1, w), fill, u8) for fill in (0x11, 0x22))
    pools = [sparse((slot + 1, w), u8, (w, 1)) for _ in range(2)]
    runner.run(SPEC.bind({"k": k, "v": v, "k_pool": pools[0], "v_pool": pools[1], "slots": np.array([slot])}, checked=True), {})
    for pool, rows in zip(pools, (k, v), strict=True):
        assert not pool[:4].any(), "the row went to an offset that was cut to 32 bits"
        assert np.array_equal(pool[slot], rows[0]), "the row did not arrive"


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_rows_2_to_the_28_elements_apart(leg: str) -> None:
    """Row 16 of K and of V begins at byte 2^32, slot 8 of a u8 pool at 2^31: products that 32 bits, signed or not, cut."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    u8, step = np.dtype(np.uint8), 2**28
    arrays = {name: sparse((17, 40), u8, (step + 8 * i, 1)) for i, name in enumerate(ARRAYS)}
    for name in ("k", "v"):
        arrays[name][:] = Stream(len(name)).integers(1, 255, 17 * 40).reshape(17, 40)
    slots = np.arange(16, -1, -1)
    runner.run(SPEC.bind({**arrays, "slots": slots}, checked=True), {})
    for name in ("k", "v"):
        wrong = compare.difference(f"{name}_pool, slots descending", arrays[f"{name}_pool"][::-1], arrays[name])
        assert wrong is None, f"{wrong.text}: was an offset cut to 32 bits?"


# --- the width of accesses ---------------------------------------------------------------------------------------------------------------


def test_the_widest_access_that_everything_allows(tmp_path: Path) -> None:
    """access.cuh, compiled as it is, against the rule in its words; the port's text too."""
    from emu.access import widest_access
    from emu.host import build as host

    compiler = host.find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    source, library = tmp_path / "access.cpp", tmp_path / "access.so"
    source.write_text(
        f'#include "{build.SOURCES / "access.cuh"}"\n'
        'extern "C" int widest(unsigned long long bits) { return sb::widest_access(bits); }\n'
        'extern "C" unsigned long long bits(unsigned long long a, long long n, long long s) {'
        " return sb::alignment_of(reinterpret_cast<const void*>(a), n, s); }\n"
    )
    build.run_nvcc([str(compiler), "-std=c++17", "-shared", "-fPIC", "-o", str(library), str(source)])
    texts = ctypes.CDLL(str(library))
    texts.bits.restype = ctypes.c_uint64
    for number in range(1025):
        expected = next(size for size in (16, 8, 4, 2, 1) if number % size == 0)
        assert texts.widest(ctypes.c_uint64(number)) == widest_access(number) == expected
    for address, rows, stride, expected in ((32, 2, 6, 2), (32, 1, 6, 16), (36, 2, 64, 4), (64, 3, -8, 8), (64, 0, 1, 16)):
        assert texts.widest(ctypes.c_uint64(texts.bits(ctypes.c_uint64(address), ctypes.c_int64(rows), ctypes.c_int64(stride)))) == expected


def test_the_port_takes_the_widest_aligned_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the simulator any piece gives the same bytes: so the views that the port passes to its kernel are looked at themselves."""
    if legs.leg("sim").missing():
        pytest.skip(legs.leg("sim").missing() or "")
    from emu import store_kv as port

    seen: list[tuple[int, tuple[np.ndarray, ...]]] = []

    class Spy:
        def __init__(self, units: int, unit: str) -> None:
            self.size = units * int(unit[1:])

        def __getitem__(self, geometry: tuple[int, int]) -> Callable[..., None]:
            return lambda *arguments: seen.append((self.size, arguments[:4]))

    monkeypatch.setattr(port, "kernel", Spy)
    launched = [case for case in CASES if case.shape["m"]]
    for case in launched:
        arguments = cases.views(inputs(case))
        port.launch(SPEC.bind(arguments))
        size, views = seen[-1]
        numbers = [arguments["k"].shape[1] * arguments["k"].itemsize]
        for name in ARRAYS:
            numbers += [arguments[name].ctypes.data] + ([arguments[name].strides[0]] if len(arguments[name]) > 1 else [])
        assert size == next(width for width in (16, 8, 4, 2, 1) if all(number % width == 0 for number in numbers)), case.id
        assert all(view.ctypes.data % view.itemsize == 0 for view in views), case.id
    assert {size for size, _ in seen} == {1, 2, 4, 8, 16}
    assert len(seen) == len(launched)


# --- bad input ---------------------------------------------------------------------------------------------------------------------------


def swap(**changed: Any) -> dict[str, Any]:
    """Good arguments, some of them changed."""
    return {**inputs(by_id("f16-i64")), **changed}


F16 = np.dtype(np.float16)
ZERO_WIDE = {"k": sentinel((5, 0), F16), "v": sentinel((5, 0), F16), "k_pool": sentinel((9, 0), F16), "v_pool": sentinel((9, 0), F16)}
BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [  # the texts that the error must have, separated by semicolons
    ("slot-at-the-end", {"slots": place(np.array([0, 1, 9, 2, 3]))}, ValueError, "slots; axis m; slot 9 at 2; -1 to 8"),
    ("slot-minus-2", {"slots": place(np.array([0, 1, 3, -2, 3]))}, ValueError, "slots; axis m; slot -2 at 3; -1 to 8"),
    ("slot-beyond-32-bits", {"slots": place(np.array([2**32]))}, ValueError, "slots; slot 4294967296 at 0; -1 to 8"),
    ("slot-twice", {"slots": place(np.array([4, -1, 2, -1, 4]))}, ValueError, "slots; axis m; slot 4 at 0 and at 4; every slot once"),
    ("more-slots-than-rows", {"slots": place(np.arange(6))}, ValueError, "slots; axis m; got 6; at most 5"),
    ("slots-of-i16", {"slots": place(np.arange(5, dtype=np.int16))}, TypeError, "slots; got int16; i32 or i64"),
    ("slots-of-2-axes", {"slots": place(np.zeros((5, 1), np.int64))}, ValueError, "slots; got 2 axes; expected 1"),
    ("v-wider", {"v": sentinel((5, 65), F16)}, ValueError, "v; axis w; got 65; expected 64 (from k)"),
    ("v-more-rows", {"v": sentinel((6, 64), F16)}, ValueError, "v; axis r; got 6; expected 5 (from k)"),
    ("pool-narrower", {"k_pool": sentinel((9, 63), F16)}, ValueError, "k_pool; axis w; got 63; expected 64 (from k)"),
    ("pools-of-two-sizes", {"v_pool": sentinel((8, 64), F16)}, ValueError, "v_pool; axis s; got 8; expected 9 (from k_pool)"),
    ("pool-of-3-axes", {"k_pool": sentinel((9, 1, 64), F16)}, ValueError, "k_pool; got 3 axes; expected 2"),
    ("v-of-f32", {"v": sentinel((5, 64), np.dtype(np.float32))}, TypeError, "v; got f32; expected f16 (from k)"),
    ("pool-of-bf16", {"v_pool": sentinel((9, 64), DTYPES["bf16"][0])}, TypeError, "v_pool; got bf16; expected f16 (from k)"),
    ("f64", {"k": place(np.zeros((5, 64)))}, TypeError, "k; got float64; expected f32 or f16"),
    ("rows-not-dense", {"k": place(np.zeros((5, 64), F16), swap=(0, 1))}, ValueError, "k; axis w; stride of 10 bytes; expected 2"),
    (
        "pool-not-dense",
        {"k_pool": place(np.zeros((9, 64), F16), swap=(0, 1))},
        ValueError,
        "k_pool; axis w; stride of 18 bytes; expected 2",
    ),
    ("width-0", ZERO_WIDE, ValueError, "k; axis w; got 0; at least 1"),
    ("missing", {"v": None}, TypeError, "v; missing"),
    ("no-array", {"v": 3}, TypeError, "v; got int; NumPy array"),
    ("unknown", {"scale": 1.0}, TypeError, "scale; expected k, v, k_pool, v_pool, slots"),
]


@pytest.mark.parametrize(("changed", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(changed: dict[str, Any], kind: type[Exception], texts: str) -> None:
    harness.refuses(STEM, swap(**changed), kind, *texts.split("; "))


strided = np.lib.stride_tricks.as_strided
VIEWS: list[tuple[str, Callable[..., dict[str, Any]], str]] = [
    ("pools-are-one", lambda k_pool, **_: {"v_pool": k_pool}, "k_pool; overlaps v_pool; memory of its own"),
    ("pools-share-a-slot", lambda k_pool, **_: {"k_pool": k_pool[:5], "v_pool": k_pool[4:]}, "k_pool; overlaps v_pool"),
    ("pool-is-k", lambda k, v_pool, **_: {"k_pool": k, "v_pool": v_pool[:5]}, "k_pool; overlaps k,"),
    ("pool-has-k", lambda k_pool, **_: {"k": k_pool[3:8]}, "k_pool; overlaps k,"),
    ("pool-has-v", lambda k_pool, **_: {"v": k_pool[3:8]}, "k_pool; overlaps v,"),
    ("v-pool-has-k", lambda v_pool, **_: {"k": v_pool[:5]}, "v_pool; overlaps k,"),
    ("v-pool-has-v", lambda v_pool, **_: {"v": v_pool[:5]}, "v_pool; overlaps v,"),
    ("k-pool-has-slots", lambda k_pool, **_: {"slots": k_pool[1].view(np.int64)[:5]}, "k_pool; overlaps slots"),
    ("v-pool-has-slots", lambda v_pool, **_: {"slots": v_pool[1].view(np.int64)[:5]}, "v_pool; overlaps slots"),
    ("slots-overlap", lambda k_pool, **_: {"k_pool": strided(k_pool, strides=(64, 2))}, "k_pool; axis s; stride of 64 bytes; least 128"),
    ("pool-is-read-only", lambda k_pool, **_: {"k_pool": strided(k_pool, writeable=False)}, "k_pool; read-only"),
    (
        "odd-address",
        lambda k, **_: {"k": np.ndarray(k.shape, k.dtype, k.base, 513, k.strides)},
        "k; got an address 1 bytes past; multiple of 2 bytes",
    ),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: str) -> None:
    harness.refuses(STEM, swap(), ValueError, *texts.split("; "), call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_repeated_padding_is_no_repetition() -> None:
    assert SPEC.bind(cases.views(swap(slots=place(np.full(5, -1)))), checked=True).axes["m"] == 5


def test_a_grid_beyond_its_limit_is_refused() -> None:
    """Without memory: all rows are one row, all slots one -1."""
    one = np.zeros((1, 1), np.uint8)
    rows = np.lib.stride_tricks.as_strided(one, (2**34, 1), (0, 1))
    slots = sparse((2**34,), np.dtype(np.int32), (1,))
    with pytest.raises(ValueError, match=f"store_kv: slots: axis m: got {2**34}, expected at most {(2**31 - 1) * 8}"):
        SPEC.bind({"k": rows, "v": rows, "k_pool": np.zeros((1, 1), np.uint8), "v_pool": np.zeros((1, 1), np.uint8), "slots": slots})
