"""The length of the common prefix of two token sequences: the port of ``kernels_cu/compare_key.cpp``, for the CPU like that."""

from __future__ import annotations

import numpy as np

from pyref.spec import Call

BLOCK = 2048  # bytes that are compared at once


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, in the steps of the C++ source."""
    a, b = call["a"], call["b"]
    n, block = min(a.size, b.size), BLOCK // a.itemsize
    i = 0
    while i + block <= n and np.array_equal(a[i : i + block], b[i : i + block]):
        i += block
    while i < n and a[i] == b[i]:
        i += 1
    call["length"][0] = i
