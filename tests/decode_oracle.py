"""The float64 judge of paged_decode: attention with a soft cap, ALiBi, a window and sinks, over caches in any layout and of fp8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyref import contract
from tests.oracle import Exact


def gather(arguments: Mapping[str, Any], n: int) -> tuple[np.ndarray, np.ndarray]:
    """K and V [tokens, g, d] of those tokens of sequence n that take part, as they are stored."""
    length, window, page = int(arguments["seq_lens"][n]), arguments.get("window", 0), arguments["v_cache"].shape[3]
    t = np.arange(max(0, length - window) if window else 0, length)
    ids, slots = arguments["block_tables"][n, t // page], t % page
    k = arguments["k_cache"][ids, :, :, slots]  # [tokens, g, d/x, x]
    return k.reshape(*k.shape[:2], -1), arguments["v_cache"][ids, :, :, slots]


def decode(arguments: Mapping[str, Any], n: int) -> Exact:
    """Float64 attention of sequence n (not empty) of a call of paged_decode."""
    k, v = (contract.to_f32(x).astype(np.float64) for x in gather(arguments, n))
    if "k_scale" in arguments:
        k, v = (x * arguments[name].astype(np.float64)[:, None] for x, name in ((k, "k_scale"), (v, "v_scale")))
    return attention(arguments, n, k, v)


def attention(arguments: Mapping[str, Any], n: int, k: np.ndarray, v: np.ndarray) -> Exact:
    """The same with K and V [tokens, g, d] in float64 given."""
    q = contract.to_f32(arguments["q"][n]).astype(np.float64)
    k, v = (np.repeat(x, q.shape[0] // x.shape[1], axis=1) for x in (k, v))
    s = np.einsum("hd,thd->ht", q, k) * np.float64(np.float32(arguments["scale"]))
    cap, slopes, sinks = np.float64(np.float32(arguments.get("cap", 0))), arguments.get("alibi_slopes"), arguments.get("sinks")
    if cap:
        s = cap * np.tanh(s / cap)
    if slopes is not None:
        s += slopes.astype(np.float64)[:, None] * (np.arange(len(k)) - (len(k) - 1))
    sink = np.full((len(q), 1), -np.inf) if sinks is None else sinks.astype(np.float64)[:, None]
    top = np.maximum(s.max(axis=1, keepdims=True), sink)
    p = np.exp(s - top)
    total = p.sum(axis=1, keepdims=True) + np.exp(sink - top)
    mean, size = (np.einsum("ht,thd->hd", p, x) / total for x in (v, np.abs(v)))
    return Exact(mean, (np.log(total) + top)[:, 0], size)
