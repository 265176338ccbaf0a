"""What the kernels that write K and V into paged caches have in common: their checks, and what a cache stores of a row.

A cache holds the dtype of K and V (T), every bit kept, or fp8 (C11: one division by the scale, then nearest even, saturating).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pyref import checks, contract
from pyref.spec import Call, Scalar, Tensor

INDEX = ("i32", "i64")
#: Elements of one row: the kernels count the places inside a row in 32 bits.
ROW = 2**31 - 1

ROWS: Mapping[str, Tensor | Scalar] = {
    "k": Tensor("n g | d", "T", "rows of K; may be a slice of qkv"),
    "v": Tensor("n g | d", "T", "rows of V"),
}
SLOTS: Mapping[str, Tensor | Scalar] = {
    "slots": Tensor("m", "I", "slot of row i < m in both caches; -1: the row is padding; rows from m on are padding too"),
}


def bits(array: np.ndarray) -> np.ndarray:
    """The same elements as unsigned integers: an assignment between integers keeps every bit."""
    return array.view(f"u{array.itemsize}")


def shapes(call: Call) -> None:
    """Refuses empty heads and pages, rows that are too long, and more slots than rows. Raises ValueError."""
    for argument, axis in (("k", "g"), ("k", "d"), ("k_cache", "page")):
        checks.at_least_one(call, argument, axis)
    rows, slots = call.axes["n"], call.axes["m"]
    if slots > rows:
        raise call.error(ValueError, "slots", f"axis m: got {slots}, expected at most {rows} (axis n, from k)")
    row = call.axes["g"] * call.axes["d"]
    if row > ROW:
        text = f"got {call.axes['g']} heads of {call.axes['d']}, expected a row of at most {ROW} elements"
        raise call.error(ValueError, "k", f"axis g: {text}")


def memory(call: Call) -> None:
    """Refuses caches that share memory with each other or with an input. Raises ValueError."""
    inputs = [name for name in ("k", "v", "slots", "k_scale", "v_scale") if name in call.arrays]
    checks.separate(call, "k_cache", ("v_cache", *inputs))
    checks.separate(call, "v_cache", inputs)


def slots(call: Call) -> None:
    """Refuses slots outside the caches and slots that stand twice. Raises ValueError."""
    values, most = call["slots"], call.axes["pages"] * call.axes["page"]
    wrong = np.flatnonzero((values < -1) | (values >= most))
    if wrong.size:
        at = int(wrong[0])
        text = f"{call.axes['pages']} pages of {call.axes['page']}, from k_cache"
        raise call.error(ValueError, "slots", f"axis m: got slot {values[at]} at {at}, expected -1 to {most - 1} ({text})")
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    twice = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0))
    if twice.size:
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        text = f"axis m: got slot {values[first]} at {first} and at {second}, expected every slot once"
        raise call.error(ValueError, "slots", f"{text}: two rows in one slot have no defined order")


def places(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, pages, places): the rows that are no padding, and for each the page and the place in it that it goes to."""
    values = call["slots"]
    rows = np.flatnonzero(values >= 0)
    pages, inside = np.divmod(values[rows].astype(np.int64), call.axes["page"])
    return rows, pages, inside


def stored(call: Call, name: str, rows: np.ndarray) -> np.ndarray:
    """What the cache stores of ``k`` or ``v`` [rows, g, d], as unsigned integers."""
    values = call[name][rows]
    if call.dtypes.get("C", call.dtypes["T"]) == call.dtypes["T"]:
        return bits(values)
    return bits(contract.quantize(contract.to_f32(values), call[f"{name}_scale"][:, None], call.dtypes["C"]))  # C11


def fill(call: Call, within: Callable[[str, np.ndarray], np.ndarray] = lambda name, values: values) -> None:
    """Writes every row that is no padding to its place in both caches.

    ``within(name, values)`` shapes the ``values`` [rows, g, d] of "k" or "v" as the cache has them: [rows, ...], the axes of the cache in
    their order without ``pages`` and ``page``.
    """
    rows, pages, inside = places(call)
    for name in ("k", "v"):
        cache = bits(call[f"{name}_cache"])
        axis = call.kernel.tensors[f"{name}_cache"].names.index("page")
        np.moveaxis(cache, axis, 1)[pages, inside] = within(name, stored(call, name, rows))
