"""Writes row i of K and V to slot slots[i] of paged caches: the numba port of ``kernels_cu/reshape_and_cache_flash.cu``."""

from __future__ import annotations

from emu import cache_rows
from pyref.spec import Call


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    caches = (call["k_cache"], call["v_cache"])
    cache_rows.write(call["k"], call["v"], caches, call["slots"], (call["k_scale"], call["v_scale"]))
