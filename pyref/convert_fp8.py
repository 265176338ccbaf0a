"""Converts between f32, f16 or bf16 and fp8 e4m3fn or e5m2, with one scale for all or one a head: the definition."""

from __future__ import annotations

import numpy as np

from pyref import checks, contract, row_tiles
from pyref.cache_types import FLOATS, FP8
from pyref.row_tiles import RowTiles
from pyref.spec import Call, Kernel, Tensor, reference


def _types(call: Call) -> None:
    if call["out"] is None:
        raise call.error(TypeError, "out", "missing: its dtype says what x is converted to")
    out, x = call.dtypes["O"], call.dtypes["X"]
    if (out in FP8) == (x in FP8):
        expected = FLOATS if x in FP8 else FP8
        raise call.error(TypeError, "out", f"dtype: got {out}, expected {' or '.join(expected)} (x is {x})")


def _shapes(call: Call) -> None:
    for axis in ("g", "w"):
        checks.at_least_one(call, "x", axis)
    scales, heads = call.axes["scales"], call.axes["g"]
    if scales not in (1, heads):
        raise call.error(ValueError, "scale", f"axis scales: got {scales}, expected 1 or {heads} (axis g, from out)")
    tiles = RowTiles(call.axes["n"] * heads, call.axes["w"])
    if tiles.blocks > checks.GRID_X:
        most = checks.GRID_X // tiles.across * tiles.height // heads
        raise call.error(ValueError, "x", f"axis n: got {call.axes['n']}, expected at most {most} (grid)")


def _memory(call: Call) -> None:
    checks.separate(call, "out", ("x", "scale"))


SPEC = Kernel(
    stem="convert_fp8",
    does="converts between f32, f16 or bf16 and fp8 e4m3fn or e5m2, with one scale for all or one a head",
    args={
        "out": Tensor("n g | w", "O", "converted elements", role="inout"),
        "x": Tensor("n g | w", "X", "elements"),
        "scale": Tensor("scales", "f32", "one for all, or one for each g"),
    },
    dtypes={"O": (*FLOATS, *FP8), "X": (*FLOATS, *FP8)},
    constants={"SB_O": "O", "SB_X": "X"},
    checks=(_types, _shapes, _memory),
    work=lambda call: row_tiles.steps(RowTiles(call.axes["n"] * call.axes["g"], -(-call.axes["w"] // 4)), 4) + call["x"].size * 10,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Converts ``x`` [n, g, w] to the dtype of ``out`` [n, g, w]; one of the two is e4m3 or e5m2, the other f32, f16 or bf16.

    To fp8: one division by the scale, then nearest even, saturating (infinities too). From fp8: exact, one multiplication by the scale,
    then nearest even, f16 and bf16 overflow to infinity (C11). A NaN becomes the one of C9. scale: f32, [1], or [g] with one for each g.
    The last axis is dense, other strides are free: a cache [pages, g, ...] is given as [pages, g, w], its heads or rows as g = 1.

    Returns out, which is the array given. Raises TypeError or ValueError before anything is written: shapes, dtypes (fp8 to fp8 too),
    strides, scales, an output that overlaps an input, a grid beyond its limit.
    """
    x, scale, to = contract.to_f32(call["x"]), call["scale"][:, None], call.dtypes["O"]
    out = contract.quantize(x, scale, to) if to in FP8 else contract.from_f32(contract.mul(x, scale), to)
    call["out"].view(f"u{out.itemsize}")[...] = out.view(np.dtype(f"u{out.itemsize}"))
