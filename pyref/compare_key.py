"""The length of the common prefix of two token sequences, on the CPU: the definition. A radix tree of cached prefixes asks for it."""

from __future__ import annotations

import numpy as np

from pyref import checks
from pyref.cache_write import INDEX
from pyref.spec import Call, Kernel, Tensor, reference


def _memory(call: Call) -> None:
    checks.separate(call, "length", ("a", "b"))


SPEC = Kernel(
    stem="compare_key",
    does="the length of the common prefix of two token sequences, on the CPU",
    args={
        "length": Tensor("1", "i64", "number of elements that are equal before the first that are not", role="out", where="host"),
        "a": Tensor("n_a", "T", "a sequence; may be b itself", where="host"),
        "b": Tensor("n_b", "T", "another, of any length", where="host"),
    },
    dtypes={"T": INDEX},
    constants={"SB_T": "T"},
    checks=(_memory,),
    work=lambda call: min(call.axes["n_a"], call.axes["n_b"]) // 64 + 20,
)


@reference(SPEC)
def run(call: Call) -> None:
    """``length[0]`` = the greatest n with a[i] == b[i] for all i < n.

    a: [n_a], b: [n_b], both int32 or both int64, dense, of any lengths, 0 too; length: [1], int64.

    Returns length. Raises TypeError or ValueError before anything is written: shapes, dtypes, strides, a length that overlaps a or b.
    """
    n = min(call.axes["n_a"], call.axes["n_b"])
    differs = np.flatnonzero(call["a"][:n] != call["b"][:n])
    call["length"][0] = differs[0] if differs.size else n
