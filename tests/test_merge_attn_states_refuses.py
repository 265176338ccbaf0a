"""merge_attn_states: input that it refuses, and offsets that 32 bits would cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyref.merge_attn_states import SPEC
from pyref.spec import DTYPES
from tests import harness, test_merge_attn_states
from tests.sparse import sparse
from tools import compare, legs
from tools.arena import place, sentinel
from tools.data import Stream

STEM = "merge_attn_states"
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def good(**changed: Any) -> dict[str, Any]:
    """Good arguments (n 6, h 8, d 128, f16), some of them changed."""
    return {**test_merge_attn_states.inputs(test_merge_attn_states.by_id("f16-two-empty")), **changed}


ZERO_WIDE = {name: sentinel((6, 8, 0), F16) for name in ("out", "prefix_out", "suffix_out")}
BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [  # the texts that the error must have, separated by semicolons
    ("d-0", ZERO_WIDE, ValueError, "prefix_out; axis d; got 0; at least 1"),
    ("out-d", {"out": sentinel((6, 8, 120), F16)}, ValueError, "prefix_out; axis d; got 128; expected 120 (from out)"),
    ("suffix-d", {"suffix_out": sentinel((6, 8, 64), F16)}, ValueError, "suffix_out; axis d; got 64; expected 128 (from out)"),
    ("suffix-heads", {"suffix_out": sentinel((6, 2, 128), F16)}, ValueError, "suffix_out; axis h; got 2; expected 8 (from out)"),
    ("suffix-tokens", {"suffix_out": sentinel((5, 8, 128), F16)}, ValueError, "suffix_out; axis n; got 5; expected 6 (from out)"),
    ("lse-as-n-h", {"prefix_lse": sentinel((6, 8), F32)}, ValueError, "prefix_lse; axis h; got 6; expected 8 (from out)"),
    ("lse-tokens", {"suffix_lse": sentinel((8, 7), F32)}, ValueError, "suffix_lse; axis n; got 7; expected 6 (from out)"),
    ("out-lse-heads", {"out_lse": sentinel((9, 6), F32)}, ValueError, "out_lse; axis h; got 9; expected 8 (from out)"),
    ("lse-of-3-axes", {"prefix_lse": sentinel((8, 6, 1), F32)}, ValueError, "prefix_lse; got 3 axes; expected 2"),
    ("out-of-2-axes", {"out": sentinel((6, 1024), F16)}, ValueError, "out; got 2 axes; expected 3"),
    ("suffix-bf16", {"suffix_out": sentinel((6, 8, 128), DTYPES["bf16"][0])}, TypeError, "suffix_out; got bf16; expected f16 (from out)"),
    ("out-f32", {"out": sentinel((6, 8, 128), F32)}, TypeError, "prefix_out; got f16; expected f32 (from out)"),
    ("f64", {"out": place(np.zeros((6, 8, 128)))}, TypeError, "out; got float64; f32 or f16 or bf16"),
    ("e4m3", {"out": sentinel((6, 8, 128), DTYPES["e4m3"][0])}, TypeError, "out; got e4m3; f32 or f16 or bf16"),
    ("lse-f16", {"prefix_lse": sentinel((8, 6), F16)}, TypeError, "prefix_lse; got f16; expected f32"),
    ("lse-f64", {"suffix_lse": place(np.zeros((8, 6)))}, TypeError, "suffix_lse; got float64; expected f32"),
    ("out-lse-f64", {"out_lse": place(np.zeros((8, 6)))}, TypeError, "out_lse; got float64; expected f32"),
    ("not-dense", {"prefix_out": sentinel((6, 8, 128), F16, swap=(1, 2))}, ValueError, "prefix_out; axis d; stride of 16 bytes"),
    ("out-not-dense", {"out": sentinel((6, 8, 128), F16, swap=(1, 2))}, ValueError, "out; axis d; stride of 16 bytes; expected 2"),
    ("missing", {"prefix_lse": None}, TypeError, "prefix_lse; missing"),
    ("no-array", {"suffix_out": [[1.0]]}, TypeError, "suffix_out; got list; NumPy array"),
    ("unknown", {"scale": 1.0}, TypeError, "scale; expected out, out_lse, prefix_out"),
]


@pytest.mark.parametrize(("changed", "kind", "texts"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused(changed: dict[str, Any], kind: type[Exception], texts: str) -> None:
    harness.refuses(STEM, good(**changed), kind, *texts.split("; "))


strided = np.lib.stride_tricks.as_strided


def moved(array: np.ndarray, elements: int) -> np.ndarray:
    """The same view that many elements further on."""
    start = array.ctypes.data - array.base.ctypes.data + elements * array.itemsize
    return np.ndarray(array.shape, array.dtype, array.base, start, array.strides)


def lse_in(row: np.ndarray) -> np.ndarray:
    """An LSE in the memory of a row of 128 f16."""
    return row.view(F32)[:48].reshape(8, 6)


VIEWS: list[tuple[str, Callable[..., dict[str, Any]], str]] = [
    (
        "out-a-row-after-prefix",
        lambda prefix_out, **_: {"out": moved(prefix_out, 128)},
        "out; overlaps prefix_out; the same view or memory",
    ),
    ("out-an-element-before-suffix", lambda suffix_out, **_: {"out": moved(suffix_out, -1)}, "out; overlaps suffix_out; the same view"),
    ("out-is-prefix-reversed", lambda prefix_out, **_: {"out": prefix_out[::-1]}, "out; overlaps prefix_out; the same view"),
    ("out-has-other-strides", lambda prefix_out, **_: {"out": strided(prefix_out, strides=(4096, 256, 2))}, "out; overlaps prefix_out"),
    ("out-has-an-lse", lambda out, **_: {"prefix_lse": lse_in(out[0, 0])}, "out; overlaps prefix_lse; memory of its own"),
    ("out-has-the-other-lse", lambda out, **_: {"suffix_lse": lse_in(out[5, 7])}, "out; overlaps suffix_lse"),
    ("out-has-out-lse", lambda out, **_: {"out_lse": lse_in(out[2, 2])}, "out; overlaps out_lse; memory of its own"),
    ("out-lse-is-prefix-lse", lambda prefix_lse, **_: {"out_lse": prefix_lse}, "out_lse; overlaps prefix_lse; memory of its own"),
    ("out-lse-is-suffix-lse", lambda suffix_lse, **_: {"out_lse": suffix_lse}, "out_lse; overlaps suffix_lse; memory of its own"),
    ("out-lse-in-prefix", lambda prefix_out, **_: {"out_lse": lse_in(prefix_out[0, 0])}, "out_lse; overlaps prefix_out"),
    ("out-lse-in-suffix", lambda suffix_out, **_: {"out_lse": lse_in(suffix_out[0, 0])}, "out_lse; overlaps suffix_out"),
    ("heads-share-memory", lambda out, **_: {"out": strided(out, strides=(2048, 128, 2))}, "out; axis h; stride of 128 bytes; least 256"),
    ("tokens-share-lse", lambda out_lse, **_: {"out_lse": strided(out_lse, strides=(4, 0))}, "out_lse; axis n; stride of 0 bytes; least 4"),
    ("read-only", lambda out, **_: {"out": strided(out, writeable=False)}, "out; read-only"),
    ("odd-address", lambda suffix_out, **_: {"suffix_out": np.ndarray((6, 8, 128), F16, suffix_out.base, 513)}, "suffix_out; 2 bytes"),
    ("odd-lse-address", lambda prefix_lse, **_: {"prefix_lse": np.ndarray((8, 6), F32, prefix_lse.base, 514)}, "prefix_lse; 4 bytes"),
]


@pytest.mark.parametrize(("view", "texts"), [bad[1:] for bad in VIEWS], ids=[bad[0] for bad in VIEWS])
def test_bad_memory_is_refused(view: Callable[..., dict[str, Any]], texts: str) -> None:
    harness.refuses(STEM, good(), ValueError, *texts.split("; "), call=lambda **given: SPEC.bind({**given, **view(**given)}, checked=True))


def test_views_that_interleave_are_allowed() -> None:
    """out, prefix_out and suffix_out are columns of one array; no element is shared."""
    pool = np.zeros((6, 3, 8, 128), np.float16)
    lse = np.zeros((3, 8, 6), np.float32)
    outputs = {"out": pool[:, 0], "prefix_out": pool[:, 1], "suffix_out": pool[:, 2]}
    call = SPEC.bind({**outputs, "out_lse": lse[0], "prefix_lse": lse[1], "suffix_lse": lse[1]})
    assert call.axes == {"n": 6, "h": 8, "d": 128}


def test_a_grid_beyond_its_limit_is_refused() -> None:
    one, lse = strided(np.zeros(1, F16), (2**20, 2**20, 1), (0, 0, 2)), strided(np.zeros(1, F32), (2**20, 2**20), (0, 0))
    text = rf"merge_attn_states: prefix_out: axis n: got {2**20}, expected n \* h \* d of at most {(2**31 - 1) * 256}"
    with pytest.raises(ValueError, match=text):
        SPEC.bind({"prefix_out": one, "prefix_lse": lse, "suffix_out": one, "suffix_lse": lse})


@pytest.mark.parametrize("leg", ["ref", "host"])
def test_rows_2_to_the_32_elements_apart(leg: str) -> None:
    """Token 4 of the outputs begins 2^32 elements behind token 0, head 1 of each LSE 2^32 behind head 0; no two strides are the same."""
    runner = legs.leg(leg)
    if runner.missing():
        pytest.skip(runner.missing() or "")
    n, h, d, step = 5, 2, 8, 2**30
    given = {name: sparse((n, h, d), F16, (step + 8 * i, 16 + 8 * i, 1)) for i, name in enumerate(("out", "prefix_out", "suffix_out"))}
    given |= {name: sparse((h, n), F32, (4 * step + i, 1 + i)) for i, name in enumerate(("out_lse", "prefix_lse", "suffix_lse"))}
    stream = Stream(3)
    plain = {}
    for name in ("prefix_out", "suffix_out", "prefix_lse", "suffix_lse"):
        plain[name] = stream.normal(given[name].shape, "f16" if name.endswith("out") else "f32")
        given[name][...] = plain[name]
    runner.run(SPEC.bind(given, checked=True), {})
    out, lse = np.empty((n, h, d), np.float16), np.empty((h, n), np.float32)
    legs.leg("ref").run(SPEC.bind({**plain, "out": out, "out_lse": lse}), {})
    for name, expected in (("out", out), ("out_lse", lse)):
        wrong = compare.difference(name, given[name], expected)
        assert wrong is None, f"{wrong.text}: was an offset cut to 32 bits?"
