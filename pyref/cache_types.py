"""What paged caches of K and V may hold: the dtype of the rows that go in and come out (T), or fp8 with a scale (C11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyref.spec import Call, Scalar, Tensor, itemsize

FLOATS = ("f32", "f16", "bf16")
FP8 = ("e4m3", "e5m2")

SCALES: Mapping[str, Tensor | Scalar] = {
    "k_scale": Tensor("k_scales", "f32", "scale of K for all or one a kv head; given if and only if the caches are fp8", optional=True),
    "v_scale": Tensor("v_scales", "f32", "scale of V, likewise", optional=True),
}
#: An absent scale has no axis.
SCALE_SIZES: Mapping[str, Callable[[Call], int]] = {"k_scales": lambda call: 0, "v_scales": lambda call: 0}


def x(rows: str) -> Callable[[Call], int]:
    """The rule of the axis x of a K cache [pages, g, d/x, page, x]: 16 bytes. It refuses a head size, that of the argument ``rows``, that x
    does not divide (ValueError)."""

    def rule(call: Call) -> int:
        elements = 16 // itemsize(call.dtypes["C"])
        if call.axes["d"] % elements:
            text = f"axis d: got {call.axes['d']}, expected a multiple of {elements} (x for a cache of {call.dtypes['C']})"
            raise call.error(ValueError, rows, text)
        return elements

    return rule


def check(rows: str) -> Callable[[Call], None]:
    """The check of a call whose argument ``rows`` has the dtype T, and whose caches have C: it refuses caches that hold neither that nor
    fp8 (TypeError), and scales that are absent, needless (TypeError) or of another size (ValueError)."""

    def types(call: Call) -> None:
        dtype, cache = call.dtypes["T"], call.dtypes["C"]
        if cache != dtype and cache not in FP8:
            raise call.error(TypeError, "k_cache", f"dtype: got {cache}, expected {dtype} (from {rows}) or {' or '.join(FP8)}")
        for name, axis in (("k_scale", "k_scales"), ("v_scale", "v_scales")):
            if cache == dtype and call[name] is not None:
                raise call.error(TypeError, name, f"got a scale, expected none: a cache of {cache} holds the values themselves")
            if cache != dtype and call[name] is None:
                raise call.error(TypeError, name, f"missing: a cache of {cache} needs a scale")
            if cache != dtype and call.axes[axis] not in (1, call.axes["g"]):
                raise call.error(ValueError, name, f"axis {axis}: got {call.axes[axis]}, expected 1 or {call.axes['g']} (axis g)")

    return types
