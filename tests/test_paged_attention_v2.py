"""paged_attention_v2: the cases on every leg, and one that version 1 has no shared memory for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyref import classic_spec
from tests import harness, paged_cases, paged_inputs
from tests.paged_inputs import F32
from tools.arena import POISON, place, sentinel
from tools.cases import Case
from tools.data import Stream

STEM = "paged_attention_v2"
FAR = paged_inputs.case(
    "alibi-beyond-2-to-the-24",
    "distances around 2^24 + 128, of which binary32 has every second; a pattern leaves out all but the first and the last page",
    "f32", h=1, g=1, d=64, page=256, lens=(2**24 + 256,),
)  # fmt: skip
CASES = [*paged_cases.CASES, FAR]


def far_inputs() -> dict[str, Any]:
    """The arguments of FAR: biases near -1, one ulp apart."""
    (length,), d, page, stream = FAR.shape["lens"], FAR.shape["d"], FAR.shape["page"], Stream(FAR.seed)
    pages = -(-length // page)
    table = np.full((1, pages), -1, np.int32)
    table[0, [0, -1]] = 2, 0
    k_cache, v_cache = (np.full(shape, POISON, np.uint32).view(F32) for shape in ((3, 1, d // 4, page, 4), (3, 1, d, page)))
    for id_ in (2, 0):
        k_cache[id_], v_cache[id_] = stream.normal(k_cache.shape[1:], "f32"), stream.normal(v_cache.shape[1:], "f32")
    arrays = {
        "q": stream.normal((1, 1, d), "f32"), "k_cache": k_cache, "v_cache": v_cache, "block_tables": table,
        "seq_lens": np.int32([length]), "alibi_slopes": np.float32([2.0**-24]),
    }  # fmt: skip
    rows = (1, 1, classic_spec.partitions(length))
    outputs = {"out": (1, 1, d), "lse": (1, 1), "tmp_out": (*rows, d), "exp_sums": rows, "max_logits": rows}
    # Head 0 of rank 1 slides by stride - 1: block i is seen where i + stride is a multiple of the stride, and the last, local one.
    return {
        **{name: place(array) for name, array in arrays.items()},
        **{name: sentinel(shape, F32) for name, shape in outputs.items()},
        "scale": d**-0.5,
        **paged_cases.pattern(1, 2 * pages, page, 2 * pages - 1, 1),
    }


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    return far_inputs() if case.id == FAR.id else paged_inputs.inputs(STEM, case)


@harness.each(CASES)
def test_every_leg_returns_the_same_bytes(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)
