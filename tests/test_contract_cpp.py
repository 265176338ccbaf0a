"""The C++ text of the contract gives the bits of the NumPy text, function by function (the elementary ones are in test_elementary)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from pyref import contract
from tests.rationals import CORNERS, bits, canonical, f32, near_ties
from tools import exhaustive
from tools.data import Stream


@functools.cache
def cpp_cases() -> dict[str, tuple[Callable[..., np.ndarray], list[np.ndarray]]]:
    """Entry of functions.cu -> its NumPy text, and operands."""
    x = f32(*CORNERS)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    stream = Stream(14)
    raw = [(stream.words(1 << 16) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32) for _ in range(3)]
    pairs = [np.concatenate([a, raw[0]]), np.concatenate([b, raw[1]])]
    ties = [np.concatenate(columns) for columns in zip(near_ties(0), near_ties(-149), strict=True)]
    triples = [np.concatenate([t, n, r]) for t, n, r in zip(ties, (a, b, a[::-1]), raw, strict=True)]
    logits = np.concatenate([stream.normal((1 << 16,), "f32", scale=s) for s in (1.0, 40.0, 2e9)] + [x])
    tops = contract.ceil(np.where(np.isnan(logits), np.resize(np.float32([0, -np.inf, np.inf]), len(logits)), logits))
    below = contract.add(tops, np.resize(np.arange(100, 140).astype(np.float32), len(tops)))  # weights about the least that counts
    codes = np.arange(1 << 8, dtype=np.uint32).view(np.float32)
    half = np.float32(0.5)
    return {
        "add": (contract.add, pairs),
        "sub": (contract.sub, pairs),
        "mul": (contract.mul, pairs),
        "div": (contract.div, pairs),
        "fma": (contract.fma, triples),
        "mul_add": (lambda p, q, r: contract.add(contract.mul(p, q), r), triples),  # C2: two roundings
        "running_max": (contract.running_max, [np.where(np.isnan(pairs[0]), np.float32(-np.inf), pairs[0]), pairs[1]]),
        "logits2": (contract.logits2, pairs[:1]),
        "pow2_weight": (contract.pow2_weight, [np.concatenate([np.arange(-300, 300).astype(np.float32), tops, np.rint(x[~np.isnan(x)])])]),
        "weight_p": (contract.weights_p, [np.tile(logits, 3), np.concatenate([tops, below, np.fmax(tops, np.roll(tops, 1))])]),
        "join_scalar_half": (lambda p, q, r: contract.fma(q, r, contract.mul(p, half)), triples),
        "lse": (contract.lse, [tops, np.abs(logits)]),
        "from_f32_f32": (lambda p: contract.from_f32(p, "f32"), pairs[:1]),
        "quantize_e4m3": (lambda p, q: contract.from_f32(contract.div(p, q), "e4m3").view(np.uint8), pairs),
        "dequantize_e4m3": (
            lambda p, q: contract.dequantize(p.view(np.uint32).astype(np.uint8).view(contract.STORAGE["e4m3"]), q),
            [np.repeat(codes, len(x)), np.tile(x, len(codes))],
        ),
    }


@pytest.mark.parametrize("name", list(cpp_cases()))
def test_the_cpp_text_gives_the_same_bits(name: str) -> None:
    function, operands = cpp_cases()[name]
    result = function(*operands)
    expected = np.array(canonical(result)) if result.dtype == np.float32 else result
    got = exhaustive.host_apply(exhaustive.built_library("host"), name, *operands)
    wrong = np.flatnonzero(got != expected)
    if wrong.size:
        i = wrong[0]
        shown = ", ".join(f"{bits(x[i])[0]:#010x}" for x in operands)
        pytest.fail(f"{name}({shown}): C++ {int(got[i]):#010x}, NumPy {int(expected[i]):#010x}; {wrong.size} of {len(got)} differ")
