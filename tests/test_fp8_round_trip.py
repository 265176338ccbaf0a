"""fp8 caches from end to end: rows are written by reshape_and_cache, and attention over them is attention over what they mean (C11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyref import contract, layout
from tests import harness
from tools import legs
from tools.arena import Region, place, sentinel
from tools.compare import difference
from tools.data import Stream

V1, V2 = STEMS = ("paged_attention_v1", "paged_attention_v2")
LENGTHS = np.array([35, 0, 530, 16], np.int32)
H, G, D, PAGE = 4, 2, 32, 16
#: dtype of q, of the caches, scales of K and V. 16-bit caches hold the products with these powers of two exactly.
KINDS = [
    ("f32", "e4m3", [0.3, 1.7], [2.1]),
    ("f32", "e5m2", [1.3], [0.7, 1e-2]),
    ("f16", "e4m3", [0.5], [2.0, 0.25]),
    ("bf16", "e5m2", [0.5, 4.0], [2.0]),
]


def batch() -> tuple[np.ndarray, np.ndarray]:
    """A block table, poisoned past the lengths, and the slot of every token, one sequence after another."""
    counts = -(-LENGTHS // PAGE)
    table = np.full((LENGTHS.size, counts.max()), -1, np.int32)
    table[np.arange(table.shape[1]) < counts[:, None]] = Stream(5).permutation(int(counts.sum()))
    n = np.repeat(np.arange(LENGTHS.size), LENGTHS)
    t = np.concatenate([np.arange(length) for length in LENGTHS])
    return table, table[n, t // PAGE] * np.int64(PAGE) + t % PAGE


def attend(stem: str, leg: str, **arguments: Any) -> dict[str, np.ndarray]:
    """out and lse of a kernel on a leg."""
    q = arguments["q"].view
    given = {**arguments, "seq_lens": place(LENGTHS), "scale": D**-0.5, "out": sentinel(q.shape, q.dtype)}
    found = harness.compute(stem, {**given, "lse": sentinel(q.shape[:2], np.dtype(np.float32))}, leg)
    return {name: found[name] for name in ("out", "lse")}


@pytest.mark.parametrize("leg", ["ref", "host"])
@pytest.mark.parametrize(("dtype", "cache", "k_scale", "v_scale"), KINDS)
def test_attention_over_what_was_written_is_attention_over_what_it_means(
    leg: str, dtype: str, cache: str, k_scale: list[float], v_scale: list[float]
) -> None:
    if legs.leg(leg).missing():
        pytest.skip(legs.leg(leg).missing() or "")
    stream, (table, slots) = Stream(7), batch()
    q = place(stream.normal((LENGTHS.size, H, D), dtype))
    k, v = (place(stream.normal((slots.size, G, D), dtype, 3.0)) for _ in "kv")
    storage, pages = contract.STORAGE[cache], int(table.max()) + 1
    scales = {"k_scale": place(np.float32(k_scale)), "v_scale": place(np.float32(v_scale))}
    caches = {"k_cache": sentinel((pages, G, D // 16, PAGE, 16), storage), "v_cache": sentinel((pages, G, D, PAGE), storage)}
    written = harness.compute("reshape_and_cache", {"k": k, "v": v, **caches, "slots": place(slots), **scales}, leg)

    meant = {}
    for name, rows in (("k", k), ("v", v)):
        scale = scales[f"{name}_scale"].view[:, None]
        meant[name] = contract.from_f32(contract.dequantize(contract.quantize(contract.to_f32(rows.view), scale, cache), scale), dtype)
    k_meant, v_meant = layout.pack_classic(meant["k"], meant["v"], LENGTHS, table, page=PAGE, pages=pages)
    common: dict[str, Region] = {"q": q, "block_tables": place(table)}
    expected = attend(V1, "ref", **common, k_cache=place(k_meant), v_cache=place(v_meant))
    for stem in STEMS:
        got = attend(stem, leg, **common, **{name: place(written[name]) for name in caches}, **scales)
        for name, values in got.items():
            assert difference(name, values, expected[name]) is None, stem
