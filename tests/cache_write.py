"""What the tests of the kernels that write K and V into paged caches share: their data, their arguments and their bad input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pyref import cache_write, contract
from pyref.spec import DTYPES
from tests import harness
from tests.sparse import sparse
from tools import cases, compare, legs
from tools.arena import Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

#: The shape of a cache of the layout under test: (name "k" or "v", sizes of its axes by name, x of the classic layout).
Shape = Callable[[str, Mapping[str, Any], int], tuple[int, ...]]
Bad = tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]


def case(name: str, why: str, dtypes: str, g: int, d: int, page: int, slots: list[int], **rest: Any) -> Case:
    """A case. ``dtypes``: "rows cache" or "rows cache slots" (i64 where it is not said). ``rest``: pages, n (rows), scales (of K and V;
    a list: one a head), places (argument -> how ``place`` lays it out)."""
    rows, cache, *index = dtypes.split()
    shape = {"g": g, "d": d, "page": page, "slots": tuple(slots), "m": len(slots), "n": len(slots), "pages": 3, "places": {}, **rest}
    shape.setdefault("scales", (0.5, 2.0))
    return Case(name, why, {"T": rows, "C": cache, "I": index[0] if index else "i64"}, shape, seed=sum(name.encode()))


def wild(cache: str, scale: float, dtype: str) -> np.ndarray:
    """Values whose quotient with ``scale`` fp8 finds hard: midpoints, limits, beyond them, infinities, NaN, zeros, subnormals."""
    values = contract.to_f32(np.arange(0x7C, dtype=np.uint8).view(contract.STORAGE[cache]))
    middles = (values[1:] + values[:-1]) / np.float32(2)
    limits = [447, 448, 449, 463, 464, 465, 480, 57343, 57344, 61439, 61440, 65535]
    single = np.float32([1, 2.6, 2.7, 1e-3, *limits, 1e30, 1e-30, 1e-45, 0, np.inf])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = np.concatenate([middles, single]) * np.float32(scale)
    nans = np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x7F812345], np.uint32).view(np.float32)
    return contract.from_f32(np.concatenate([scaled, -scaled, nans, -nans]), dtype)


def anything(stream: Stream, shape: tuple[int, ...], storage: np.dtype) -> np.ndarray:
    """An array of any bits."""
    count = int(np.prod(shape))
    return stream.words(count).view(np.uint8)[: count * storage.itemsize].view(storage).reshape(shape)


def hard(stream: Stream, shape: tuple[int, ...], dtype: str, cache: str, scale: float) -> np.ndarray:
    """Normals, among which every value that fp8 finds hard stands at a random place."""
    values = stream.normal(shape, dtype, min(100.0 * scale, 1e30)).reshape(-1)
    special = wild(cache, scale, dtype)[: values.size]
    values[stream.permutation(values.size)[: special.size]] = special
    return values.reshape(shape)


def first(values: np.ndarray, rest: np.ndarray) -> Region:
    """``values``, behind which ``rest`` lies in memory: a kernel that reads on finds numbers that it can use, and is seen to."""
    both = place(np.concatenate([values, rest]))
    return Region(both.buffer, both.view[: values.size])


def inputs(case: Case, cache_shape: Shape) -> dict[str, Any]:
    """The arguments of a case. Rows that are padding are poisoned; caches begin as sentinels."""
    shape, stream, rows, cache = case.shape, Stream(case.seed), case.dtypes["T"], case.dtypes["C"]
    places = shape["places"]
    slots = np.array(shape["slots"], DTYPES[case.dtypes["I"]][0])
    written = np.zeros(shape["n"], bool)
    written[: slots.size] = slots >= 0
    found: dict[str, Any] = {"slots": first(slots, np.zeros(shape["n"] - slots.size, slots.dtype))}
    storage = DTYPES[cache][0]
    for name, scale in zip("kv", shape["scales"], strict=True):
        scales = np.float32(scale if isinstance(scale, list | tuple) else [scale])
        size = (shape["n"], shape["g"], shape["d"])
        values = anything(stream, size, storage) if rows == cache else hard(stream, size, rows, cache, float(scales[0]))
        cache_write.bits(values)[~written] = np.iinfo(f"u{values.itemsize}").max
        found[name] = place(values, **places.get(name, {}))
        found[f"{name}_cache"] = sentinel(cache_shape(name, shape, 16 // storage.itemsize), storage, **places.get(f"{name}_cache", {}))
        if rows != cache:
            found[f"{name}_scale"] = place(scales)
    return found


def element(case: Case, before: Mapping[str, Any], name: str, row: int, head: int, i: int) -> int:
    """The bits that the cache must hold for one element of a row."""
    value = before[name].view[row, head, i : i + 1]
    if case.dtypes["C"] != case.dtypes["T"]:
        scales = before[f"{name}_scale"].view
        scale = scales[head if scales.size > 1 else 0]
        value = contract.from_f32(contract.div(contract.to_f32(value), scale), case.dtypes["C"])  # C11: one division, one rounding
    return int(cache_write.bits(value)[0])


def check_by_single_elements(stem: str, case: Case, before: dict[str, Any], index: Callable[..., tuple[int, ...]]) -> None:
    """The definition, element by element: ``index(name, page, head, i, place)`` says where one lies. Everything else is as before."""
    got = harness.compute(stem, before)
    for name in ("k", "v"):
        expected = compare.bits(before[f"{name}_cache"].view).copy()
        for row, slot in enumerate(case.shape["slots"]):
            if slot < 0:
                continue
            page, inside = divmod(slot, case.shape["page"])
            for head in range(case.shape["g"]):
                for i in range(case.shape["d"]):
                    expected[index(name, page, head, i, inside)] = element(case, before, name, row, head, i)
        assert np.array_equal(compare.bits(got[f"{name}_cache"]), expected), name


def check_order_of_rows(stem: str, before: dict[str, Any], seed: int) -> None:
    """Rows in another order, in a longer batch, give the same caches."""
    once = harness.compute(stem, before)
    slots = before["slots"].view
    order = Stream(seed).permutation(slots.size)
    other = {**before, "slots": place(np.concatenate([slots[order], np.full(3, -1, slots.dtype)]))}
    for name in ("k", "v"):
        values = before[name].view
        rows = cache_write.bits(values)
        padding = np.full((3, *rows.shape[1:]), 0xA5, rows.dtype)
        other[name] = place(np.concatenate([rows[order], padding, rows[slots.size :]]).view(values.dtype))
    for leg in ("ref", "host"):
        if legs.leg(leg).missing():
            continue
        for name, values in harness.compute(stem, other, leg).items():
            assert compare.difference(f"{leg}: {name}", values, once[name]) is None


def check_negative_slots(stem: str, cache_shape: Shape, pages: Callable[[np.ndarray], np.ndarray]) -> None:
    """Unchecked, every negative slot is skipped, on every leg. ``pages(cache)`` gives it as [pages, page, ...]."""
    five = case("five", "", "f16 f16", 2, 16, 8, [0, 1, 2, 3, 4])
    for leg in (legs.leg("ref"), *harness.available()):
        mine = inputs(five, cache_shape)
        mine["slots"].view[:] = [-1, -2, 13, -(2**40), -(2**63)]
        call = cases.kernel(stem).bind(cases.views(mine))
        leg.run(call, {name: value for name, value in mine.items() if isinstance(value, Region)})
        for name in ("k_cache", "v_cache"):
            view = pages(compare.bits(mine[name].view)).reshape(3, 8, 32)
            assert np.argwhere((view != 0xFFA5).any(2)).tolist() == [[1, 5]], leg.name


def check_far_places(stem: str, leg: str, cache_shape: Shape) -> None:
    """BUGS: block id x stride, rows x width in 32 bits, here with caches and rows that lie head after head. Page 2^21 + 1 begins at element
    2^32 + 2,048, which 32 bits, signed or not, take for page 1, the heads of a cache lie 2^32 + 4,096 apart; row 16 begins at element
    2^32, the heads of a row lie 2^32 + 2^28 apart. No big memory is used."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    pages, g, d, page, storage = 2**21 + 2, 8, 128, 16, DTYPES["bf16"][0]
    kernel, given = cases.kernel(stem), {}
    for name, values in zip(("k", "v"), anything(Stream(7), (2, g, d), storage), strict=True):
        given[name] = sparse((17, g, d), storage, (2**28, 17 * 2**28, 1))
        given[name][16] = values
        full = cache_shape(name, {"pages": pages, "g": g, "d": d, "page": page}, 8)
        outermost = [kernel.tensors[f"{name}_cache"].names.index(axis) for axis in ("g", "pages")]
        strides, step = [0] * len(full), 1
        for axis in reversed([*outermost, *(axis for axis in range(len(full)) if axis not in outermost)]):
            strides[axis], step = step, step * full[axis]
        given[f"{name}_cache"] = sparse(full, storage, tuple(strides))
    slots = np.full(17, -1)
    slots[16] = (pages - 1) * page + 5
    runner.run(kernel.bind({**given, "slots": slots}, checked=True), {})
    for name in ("k", "v"):
        cache = cache_write.bits(given[f"{name}_cache"])
        assert not cache[:2].any(), "the row went to an offset that was cut to 32 bits"
        arrived = np.sort(cache[-1], axis=None)[-g * d :]
        assert np.array_equal(arrived, np.sort(cache_write.bits(given[name][16]), axis=None)), "the row did not arrive"


def bad_input(make: Callable[[], dict[str, Any]], fp8: Callable[[], dict[str, Any]] | None) -> list[Bad]:
    """Bad arguments that every such kernel refuses: id, the arguments, the error, texts in it. ``make``: good arguments, f16, g 2, d 16,
    page 8, pages 3, n 5; ``fp8``: the same with an e4m3 cache, where the kernel has such."""
    f16, k = np.dtype(np.float16), (5, 2, 16)
    i16 = np.arange(5, dtype=np.int16)
    value, kind = ValueError, TypeError
    changes: list[tuple[str, dict[str, Any], type[Exception], tuple[str, ...]]] = [
        ("slot-at-the-end", {"slots": place(np.array([0, 1, 24, 2, 3]))}, value, ("slots", "slot 24 at 2", "-1 to 23", "3 pages of 8")),
        ("slot-minus-2", {"slots": place(np.array([0, 1, 3, -2, 4]))}, value, ("slots", "slot -2 at 3", "-1 to 23")),
        ("slot-beyond-32-bits", {"slots": place(np.array([2**32]))}, value, ("slots", "slot 4294967296 at 0", "-1 to 23")),
        ("slot-twice", {"slots": place(np.array([4, -1, 2, -1, 4]))}, value, ("slots", "slot 4 at 0 and at 4", "every slot once")),
        ("more-slots-than-rows", {"slots": place(np.arange(6))}, value, ("slots", "axis m", "got 6", "at most 5")),
        ("slots-of-i16", {"slots": place(i16)}, kind, ("slots", "got int16", "i32 or i64")),
        ("v-of-more-heads", {"v": sentinel((5, 3, 16), f16)}, value, ("v", "axis g", "got 3", "expected 2 (from k)")),
        ("v-of-more-rows", {"v": sentinel((6, 2, 16), f16)}, value, ("v", "axis n", "got 6", "expected 5 (from k)")),
        ("v-of-f32", {"v": sentinel(k, np.dtype(np.float32))}, kind, ("v", "got f32", "expected f16 (from k)")),
        ("k-of-f64", {"k": place(np.zeros(k))}, kind, ("k", "got float64", "expected f32 or f16 or bf16")),
        ("k-of-fp8", {"k": sentinel(k, DTYPES["e4m3"][0])}, kind, ("k", "got e4m3", "expected f32 or f16 or bf16")),
        ("heads-not-dense", {"k": place(np.zeros(k, f16), swap=(1, 2))}, value, ("k", "axis d", "stride of 4 bytes")),
        ("missing", {"v": None}, kind, ("v", "missing")),
        ("no-array", {"slots": [1, 2]}, kind, ("slots", "list", "NumPy array")),
    ]
    found = [(name, {**make(), **changed}, error, texts) for name, changed, error, texts in changes]
    if fp8 is None:
        return found
    three = place(np.float32([1, 2, 3]))
    return [
        *found,
        ("scale-for-f16", {**make(), "k_scale": place(np.float32([1]))}, kind, ("k_scale", "expected none", "f16")),
        ("no-scale-for-fp8", {**fp8(), "v_scale": None}, kind, ("v_scale", "missing", "e4m3")),
        ("three-scales-for-two-heads", {**fp8(), "k_scale": three}, value, ("k_scale", "got 3", "expected 1 or 2")),
        ("scale-of-f64", {**fp8(), "k_scale": place(np.ones(1))}, kind, ("k_scale", "got float64", "expected f32")),
        ("scale-is-a-number", {**fp8(), "k_scale": 0.5}, kind, ("k_scale", "float", "NumPy array")),
    ]


def bad_memory() -> list[tuple[str, Callable[..., dict[str, Any]], tuple[str, ...]]]:
    """Views that every such kernel refuses: id, what changes given the views of good f16 arguments, texts in the error."""

    def rows(cache: np.ndarray) -> np.ndarray:
        return cache.reshape(-1)[: 5 * 32].reshape(5, 2, 16)

    def fixed(cache: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(cache, writeable=False)

    return [
        ("caches-are-one", lambda k_cache, v_cache, **rest: {"v_cache": k_cache.reshape(v_cache.shape)}, ("k_cache", "overlaps v_cache")),
        ("cache-has-k", lambda k_cache, **rest: {"k": rows(k_cache)}, ("k_cache", "overlaps k,")),
        ("cache-has-v", lambda v_cache, **rest: {"v": rows(v_cache)}, ("v_cache", "overlaps v,")),
        ("cache-has-slots", lambda v_cache, **rest: {"slots": v_cache.reshape(-1)[:20].view(np.int64)}, ("v_cache", "overlaps slots")),
        ("cache-is-read-only", lambda k_cache, **rest: {"k_cache": fixed(k_cache)}, ("k_cache", "read-only")),
    ]
