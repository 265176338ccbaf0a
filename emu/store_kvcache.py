"""Writes row i of K and V to slot slots[i] of paged caches [pages, g, slot, d]: the numba port of ``kernels_cu/store_kvcache.cu``."""

from __future__ import annotations

from emu import cache_rows
from pyref.spec import Call


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    caches = (call["k_cache"].swapaxes(1, 2), call["v_cache"].swapaxes(1, 2))
    cache_rows.write(call["k"], call["v"], caches, call["slots"], (None, None))
