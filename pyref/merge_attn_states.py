"""Merges two attention states of every (token, head), each an output and a natural-log LSE, into one: the definition.

Used where the keys of a query were attended to in two parts, a prefix that many sequences share and a suffix of their own. The rule is the
contract's section Merge; the formula is the one of "FlashInfer: Efficient and Customizable Attention Engine for LLM Inference Serving"
(Ye et al. 2025, section 2.2, attention states) with natural logarithms.
"""

from __future__ import annotations

import numpy as np

from pyref import checks, contract
from pyref.spec import Call, Kernel, Tensor, reference

THREADS = 256


def _size(call: Call) -> None:
    checks.at_least_one(call, "prefix_out", "d")
    got, most = call.axes["n"] * call.axes["h"] * call.axes["d"], checks.GRID_X * THREADS
    if got > most:
        raise call.error(ValueError, "prefix_out", f"axis n: got {call.axes['n']}, expected n * h * d of at most {most}, not {got} (grid)")


def _memory(call: Call) -> None:
    # Each element of out is read and written by one thread, so out may be an input itself; an LSE is read by all threads of a row.
    inputs = ("prefix_out", "prefix_lse", "suffix_out", "suffix_lse")
    checks.separate(call, "out", (*inputs, "out_lse"), same=("prefix_out", "suffix_out"))
    checks.separate(call, "out_lse", inputs)


SPEC = Kernel(
    stem="merge_attn_states",
    does="merges two attention states of every (token, head), each an output and a natural-log LSE, into one",
    args={
        "out": Tensor("n h | d", "T", "merged output; may be prefix_out or suffix_out themselves, no other overlap", role="out"),
        "out_lse": Tensor("h n |", "f32", "merged natural-log LSE; computed only where it is given", role="out", optional=True),
        "prefix_out": Tensor("n h | d", "T", "output over the first part of the keys; not read where its LSE is infinite"),
        "prefix_lse": Tensor("h n |", "f32", "its natural-log LSE; +inf and -inf: the part is empty"),
        "suffix_out": Tensor("n h | d", "T", "output over the second part of the keys; not read where its LSE is infinite"),
        "suffix_lse": Tensor("h n |", "f32", "its natural-log LSE; +inf and -inf: the part is empty"),
    },
    dtypes={"T": ("f32", "f16", "bf16")},
    constants={"SB_T": "T"},
    checks=(_size, _memory),
    work=lambda call: 5 * call.axes["n"] * call.axes["h"] * (call.axes["d"] + 20),
)


@reference(SPEC)
def run(call: Call) -> None:
    """Merges ``prefix_out`` and ``suffix_out`` [n, h, d] by their LSE [h, n] into ``out`` [n, h, d] and, where given, ``out_lse`` [h, n].

    out and prefix_out, suffix_out: f32, f16 or bf16, all the same, rows dense, other strides free; LSE: f32, strides free. With both
    parts present: m = max(lse), e = exp(lse - m), s = e_a + e_b, w = e / s, out = o_a * w_a + o_b * w_b, lse = log(s) + m, each operation
    rounded. One part empty: the other's output and LSE as they are (NaN by C9). Both: +0 and -inf. A NaN LSE makes the row's output and
    LSE NaN whatever the other part is, an empty one too: nobody can know what it stands for.

    Returns out, or (out, out_lse). Raises TypeError or ValueError before anything is written: shapes, dtypes, strides, d < 1, outputs
    that overlap each other or an input (``out`` may be an input's very view), a grid beyond its limit.
    """
    prefix_lse, suffix_lse = call["prefix_lse"].T[..., None], call["suffix_lse"].T[..., None]  # [n, h, 1]
    unknown = np.isnan(prefix_lse) | np.isnan(suffix_lse)
    prefix = ~unknown & ~np.isinf(prefix_lse)
    suffix = ~unknown & ~np.isinf(suffix_lse)
    both = prefix & suffix
    a, b = (np.where(both, lse, np.float32(0)) for lse in (prefix_lse, suffix_lse))

    top = contract.running_max(a, b)
    e_prefix, e_suffix = contract.exp(contract.sub(a, top)), contract.exp(contract.sub(b, top))
    total = contract.add(e_prefix, e_suffix)
    o_prefix, o_suffix = contract.to_f32(call["prefix_out"]), contract.to_f32(call["suffix_out"])
    merged = contract.add(
        contract.mul(o_prefix, contract.div(e_prefix, total)),  # C5
        contract.mul(o_suffix, contract.div(e_suffix, total)),
    )

    nothing = np.where(unknown, np.float32(np.nan), np.float32(0))
    out = np.where(both, merged, np.where(prefix, o_prefix, np.where(suffix, o_suffix, nothing)))
    call["out"][...] = contract.from_f32(out, call.dtypes["T"])  # C9, C11
    if call["out_lse"] is not None:
        empty = np.where(unknown, np.float32(np.nan), np.float32(-np.inf))
        lse = contract.add(contract.log(total), top)
        lse = np.where(both, lse, np.where(prefix, prefix_lse, np.where(suffix, suffix_lse, empty)))
        call["out_lse"][...] = contract.canonical_nan(lse)[..., 0].T
