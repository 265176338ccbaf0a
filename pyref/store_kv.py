"""Copies row i of K and V to slot slots[i] of their pools, bit for bit: the definition."""

from __future__ import annotations

import numpy as np

from pyref import checks
from pyref.spec import Call, Kernel, Tensor, itemsize, reference

WARPS = 8  # rows a block of the CUDA kernel takes


def _size(call: Call) -> None:
    checks.at_least_one(call, "k", "w")
    rows, slots = call.axes["r"], call.axes["m"]
    if slots > rows:
        raise call.error(ValueError, "slots", f"axis m: got {slots}, expected at most {rows} (axis r, from k)")
    if slots > checks.GRID_X * WARPS:
        raise call.error(ValueError, "slots", f"axis m: got {slots}, expected at most {checks.GRID_X * WARPS} (grid)")


def _memory(call: Call) -> None:
    checks.separate(call, "k_pool", ("k", "v", "v_pool", "slots"))
    checks.separate(call, "v_pool", ("k", "v", "slots"))


def _slots(call: Call) -> None:
    slots, most = call["slots"], call.axes["s"]
    wrong = np.flatnonzero((slots < -1) | (slots >= most))
    if wrong.size:
        at = int(wrong[0])
        raise call.error(ValueError, "slots", f"axis m: got slot {slots[at]} at {at}, expected -1 to {most - 1} (axis s, from k_pool)")
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    twice = np.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0))
    if twice.size:
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        text = f"axis m: got slot {slots[first]} at {first} and at {second}, expected every slot once"
        raise call.error(ValueError, "slots", f"{text}: two rows in one slot have no defined order")


SPEC = Kernel(
    stem="store_kv",
    does="copies row i of K and V to slot slots[i] of their pools, bit for bit",
    args={
        "k": Tensor("r | w", "T", "rows of K, the heads of a token side by side; may be a slice of qkv"),
        "v": Tensor("r | w", "T", "rows of V"),
        "k_pool": Tensor("s | w", "T", "pool of K: only slots that are named are written", role="inout"),
        "v_pool": Tensor("s | w", "T", "pool of V: only slots that are named are written", role="inout"),
        "slots": Tensor("m", "I", "slot of row i < m in both pools, -1: the row is padding; rows from m on are padding too"),
    },
    dtypes={"T": ("f32", "f16", "bf16", "e4m3", "e5m2", "u8"), "I": ("i32", "i64")},
    constants={"SB_T": "T", "SB_INDEX": "I"},
    checks=(_size, _memory),
    values=(_slots,),
    work=lambda call: call.axes["m"] * (2 * call.axes["w"] * itemsize(call.dtypes["T"]) // 8 + 200),
)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")  # an assignment between integers keeps every bit


@reference(SPEC)
def run(call: Call) -> None:
    """Copies ``k[i]`` to ``k_pool[slots[i]]`` and ``v[i]`` to ``v_pool[slots[i]]`` for every i < m whose slot is not -1.

    k, v: [r, w]; k_pool, v_pool: [s, w]; all of one dtype (f32, f16, bf16, e4m3, e5m2 or u8), rows dense, each with a row stride of its
    own; slots: [m], int32 or int64, m <= r. w is what a token stores in one pool: kv heads times head size. Every bit is kept, NaN
    payloads too (C9), and nothing but the named slots is written.

    Returns (k_pool, v_pool), which are the arrays given. Raises TypeError or ValueError before anything is written: shapes, dtypes,
    strides, w < 1, m > r, pools that overlap each other or an input; with ``checked`` also slots outside [-1, s) and slots that stand
    twice. Without it every negative slot is skipped, and what a slot beyond the pool or one that stands twice does is not defined.
    """
    slots = call["slots"]
    rows = np.flatnonzero(slots >= 0)
    for pool, values in (("k_pool", "k"), ("v_pool", "v")):
        _bits(call[pool])[slots[rows]] = _bits(call[values])[rows]
