"""Looks up rows of a vocabulary shard [start, start + length) by id, zeros for ids outside it: the definition.

A tensor-parallel embedding adds the results of all shards; the row of an id then comes from exactly one of them.
"""

from __future__ import annotations

import numpy as np

from pyref import checks, row_tiles
from pyref.cache_write import INDEX, bits
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Scalar, Tensor, itemsize, reference

DEPTH = 2  # rows of a thread of the CUDA kernel


def _shapes(call: Call) -> None:
    checks.at_least_one(call, "table", "w")
    if call["start"] < 0:
        raise call.error(ValueError, "start", f"got {call['start']}, expected at least 0")
    row_tiles.fits(call, "ids", "n", RowTiles(call.axes["n"], call.axes["w"], DEPTH))


def _memory(call: Call) -> None:
    checks.separate(call, "out", ("table", "ids"))


def _work(call: Call) -> int:
    piece = 16 // itemsize(call.dtypes["T"])
    return row_tiles.steps(RowTiles(call.axes["n"], -(-call.axes["w"] // piece), DEPTH), piece)


SPEC = Kernel(
    stem="embedding",
    does="looks up rows of a vocabulary shard [start, start + length) by id, zeros for ids outside it",
    args={
        "out": Tensor("n | w", "T", "row of each id, or zeros", role="out"),
        "table": Tensor("length | w", "T", "the shard's rows"),
        "ids": Tensor("n", "I", "any ids; negative ones and those of other shards give zeros"),
        "start": Scalar("i64", "id of the table's first row", default=lambda call: 0),
    },
    dtypes={"T": ("f32", "f16", "bf16"), "I": INDEX},
    constants={"SB_T": "T", "SB_INDEX": "I"},
    checks=(_shapes, _memory),
    work=_work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """``out[i] = table[ids[i] - start]`` where start <= ids[i] < start + length, else +0, for every i.

    out: [n, w] and table: [length, w], f32, f16 or bf16, rows dense, row strides free; ids: [n], int32 or int64; start: a number of at
    least 0, 0 where it is not given. Any row length. Every bit is kept.

    Returns out. Raises TypeError or ValueError before anything is written: shapes, dtypes, strides, w < 1, start < 0, an output that
    overlaps an input, a grid beyond its limit.
    """
    ids, start = call["ids"].astype(np.int64), call["start"]
    inside = (ids >= start) & (ids >= 0)
    inside[inside] = ids[inside] - start < call.axes["length"]
    out = bits(call["out"])
    out[inside] = bits(call["table"])[ids[inside] - start]
    out[~inside] = 0
