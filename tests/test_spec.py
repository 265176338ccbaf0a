"""SPEC: what it checks, what it says, and that the struct it derives is the one C++ sees."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyref import paged_attention_v1
from pyref.spec import Call, Kernel, Scalar, Tensor, reference

SPEC = Kernel(
    stem="toy",
    does="A kernel for these tests.",
    args={
        "out": Tensor("n h | d", "T", "the result", role="out"),
        "q": Tensor("n h | d", "T", "query"),
        "k_cache": Tensor("pages g | d/x page x", "T", "keys", align=16),
        "ids": Tensor("n", "I", "ids"),
        "bias": Tensor("h", "f32", "bias", optional=True),
        "scale": Scalar("f32", "scale"),
        "twice": Scalar("f32", "2 * scale", default=lambda call: np.float32(2) * np.float32(1), computed=True),
        "limit": Scalar("i64", "limit", default=lambda call: call.axes["n"]),
    },
    dtypes={"T": ("f32", "f16", "bf16"), "I": ("i32", "i64")},
    constants={"SB_T": "T", "SB_D": "d", "SB_PAGE": "page"},
    derived={"x": lambda call: {"f32": 4}.get(call.dtypes["T"], 8)},
)


def good(dtype: type = np.float16) -> dict[str, object]:
    x = 16 // np.dtype(dtype).itemsize
    raw = np.zeros(2 * 5 * 2 * 32 * 16 + 64, dtype)
    start = (-raw.ctypes.data % 16) // raw.itemsize
    return {
        "q": np.zeros((3, 4, 32), dtype),
        "k_cache": raw[start : start + 5 * 2 * 32 * 16].reshape(5, 2, 32 // x, 16, x),
        "ids": np.zeros(3, np.int64),
        "scale": 0.5,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_axes_unify_and_outputs_are_allocated(dtype: type) -> None:
    call = SPEC.bind(good(dtype))
    assert [call.axes[name] for name in ("n", "h", "d", "pages", "g", "page")] == [3, 4, 32, 5, 2, 16]
    assert call["out"].shape == (3, 4, 32)
    assert call["out"].dtype == np.dtype(dtype)
    assert call["limit"] == 3
    assert call["bias"] is None


@pytest.mark.parametrize(
    ("change", "kind", "texts"),
    [
        ({"q": np.zeros((3, 4), np.float16)}, ValueError, ["q", "2 axes", "3"]),
        ({"q": np.zeros((3, 4, 32), np.float64)}, TypeError, ["q", "float64", "f32 or f16 or bf16"]),
        ({"q": np.zeros((3, 4, 32), np.float32)}, TypeError, ["k_cache", "got f16", "expected f32", "from q"]),
        ({"q": [1.0]}, TypeError, ["q", "list"]),
        ({"ids": np.zeros(4, np.int64)}, ValueError, ["ids", "axis n", "got 4", "expected 3", "from q"]),
        ({"ids": np.zeros(3, np.int16)}, TypeError, ["ids", "int16", "i32 or i64"]),
        ({"ids": np.zeros(6, np.int64)[::2]}, ValueError, ["ids", "axis n", "stride", "16", "expected 8"]),
        ({"k_cache": np.zeros((5, 2, 3, 16, 8), np.float16)}, ValueError, ["k_cache", "d/x", "got 3", "32/8", "from q"]),
        ({"k_cache": np.zeros((5, 2, 8, 16, 4), np.float16)}, ValueError, ["k_cache", "axis x", "got 4", "expected 8"]),
        ({"scale": None}, TypeError, ["scale", "missing"]),
        ({"scale": "1"}, TypeError, ["scale", "str"]),
        ({"limit": 1.5}, TypeError, ["limit", "float", "integer"]),
        ({"twice": 1.0}, TypeError, ["twice", "computed"]),
        ({"nothing": 1}, TypeError, ["'nothing'", "q, k_cache"]),
        ({"q": None}, TypeError, ["q", "missing"]),
        ({"out": np.broadcast_to(np.zeros(32, np.float16), (3, 4, 32))}, ValueError, ["out", "read-only"]),
    ],
)
def test_errors_say_kernel_argument_axis_got_expected_and_binder(change: dict, kind: type[Exception], texts: list[str]) -> None:
    with pytest.raises(kind) as caught:
        SPEC.bind({**good(), **change})
    for text in ("toy", *texts):
        assert text in str(caught.value)


def test_misaligned_bases_and_strides_are_named() -> None:
    args = good()
    cache = args["k_cache"]
    raw = np.zeros(cache.size + 64, np.float16)
    start = (-raw.ctypes.data % 16) // 2
    args["k_cache"] = raw[start + 1 : start + 1 + cache.size].reshape(cache.shape)
    with pytest.raises(ValueError, match=r"k_cache.*2 bytes past a multiple of 16"):
        SPEC.bind(args)
    padded = raw[start : start + 5 * (cache[0].size + 4)].reshape(5, -1)[:, : cache[0].size].reshape(cache.shape)
    strides = (2 * (cache[0].size + 4), *cache.strides[1:])
    args["k_cache"] = np.lib.stride_tricks.as_strided(raw[start:], cache.shape, strides)
    assert padded.size
    with pytest.raises(ValueError, match="k_cache: axis pages: got a stride"):
        SPEC.bind(args)


def test_outputs_whose_elements_share_memory_are_refused() -> None:
    shared = np.lib.stride_tricks.as_strided(np.zeros(4 * 32, np.float16), (3, 4, 32), (0, 64, 2))
    with pytest.raises(ValueError, match=r"out: axis n: got a stride of 0 bytes"):
        SPEC.bind({**good(), "out": shared})


def test_fused_views_are_accepted_and_their_strides_are_passed() -> None:
    qkv = np.zeros((3, 12, 32), np.float16)
    call = SPEC.bind({**good(), "q": qkv[:, 2:6]})
    params = call.params(lambda array: array.ctypes.data)
    assert list(params.q_stride) == [12 * 32, 32]
    assert params.q == qkv.ctypes.data + 2 * 32 * 2
    assert params.bias is None
    assert (params.n, params.h, params.pages, params.g) == (3, 4, 5, 2)


def test_struct_has_arguments_in_order_then_runtime_axes() -> None:
    names = [name for name, _ in SPEC.struct_fields()]
    tensors = ["out", "out_stride", "q", "q_stride", "k_cache", "k_cache_stride", "ids", "bias"]
    assert names == [*tensors, "scale", "twice", "limit", "n", "h", "pages", "g"]
    assert ctypes.sizeof(SPEC.struct()) == SPEC.struct().g.offset + 8
    assert SPEC.struct_name == "ToyParams"


def test_constants_name_what_specialises() -> None:
    assert SPEC.bind(good()).constants() == {"SB_T": "sb::f16", "SB_D": "32", "SB_PAGE": "16"}


def test_reference_checks_before_it_computes() -> None:
    ran = []

    @reference(SPEC)
    def run(call: Call) -> None:
        ran.append(call)

    with pytest.raises(TypeError):
        run(q=1)
    with pytest.raises(TypeError, match=r"^toy\.run\(\) takes 0 positional arguments"):
        run(good()["q"])
    assert not ran
    assert run(**good()).shape == (3, 4, 32)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("window", 2**63, "window: got 9223372036854775808, expected an integer of 64 bits"),
        ("window", np.uint64(2**64 - 1), "window: got 18446744073709551615, expected an integer of 64 bits"),
        ("cap", 1e-300, "cap: got 1e-300, which is 0 in binary32"),
        ("cap", 10**400, "cap: got a number beyond binary64"),
    ],
    ids=["above", "unsigned", "underflow", "beyond"],
)
def test_numbers_that_their_type_cannot_hold_are_refused(name: str, value: Any, text: str) -> None:
    q = np.zeros((1, 1, 8), np.float16)
    caches = {"k_cache": np.zeros((1, 1, 1, 16, 8), np.float16), "v_cache": np.zeros((1, 1, 8, 16), np.float16)}
    tables = {"block_tables": np.zeros((1, 1), np.int32), "seq_lens": np.zeros(1, np.int32)}
    with pytest.raises(ValueError, match=f"paged_attention_v1: {text}"):
        paged_attention_v1.SPEC.bind({"q": q, **caches, **tables, "scale": 1.0, name: value})


def test_no_query_heads_are_no_work() -> None:
    caches = {"k_cache": np.zeros((1, 2, 4, 16, 8), np.float16), "v_cache": np.zeros((1, 2, 32, 16), np.float16)}
    tables = {"block_tables": np.zeros((3, 1), np.int32), "seq_lens": np.full(3, 5, np.int32)}
    assert paged_attention_v1.run(q=np.zeros((3, 0, 32), np.float16), **caches, **tables, scale=1.0).shape == (3, 0, 32)
