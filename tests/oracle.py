"""The judge of whole attention kernels: float64 attention, and how far a kernel may be from it.

``|out - exact| <= 0.5 ulp(out) + 16 * 2^-24 * sum(p |v|) / l``: half a unit of the output type for the last rounding, and sixteen
rounding errors of binary32 relative to what is summed up. A clause that both languages of this project share and that is wrong fails here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyref import contract

#: dtype -> (bits of fraction, exponent of the least normal number)
_FORMATS = {"f32": (23, -126), "f16": (10, -14), "bf16": (7, -126)}


@dataclass(frozen=True)
class Exact:
    """Attention in float64: out [..., d], the natural-log lse [...], and size = sum(p |v|) / l [..., d]."""

    out: np.ndarray
    lse: np.ndarray
    size: np.ndarray


#: The arguments that say which tokens take part.
NUMBERS = (
    "window",
    "tp_rank",
    "blocksparse_local_blocks",
    "blocksparse_vert_stride",
    "blocksparse_block_size",
    "blocksparse_head_sliding_step",
)


def sees(numbers: Mapping[str, Any], h: int, g: int, head: int, length: int, t: int) -> bool:
    """Whether token t takes part for a query head, told of a single one. ``numbers``: those of NUMBERS that are given."""
    window, rank, local, stride, size, step = (numbers.get(name, 0) for name in NUMBERS)
    if window and length - t > window:
        return False
    if stride <= 1:
        return True
    block, last = t // size, (length - 1) // size
    number = rank * h + head if step >= 0 else rank * g + head // (h // g)
    return last - block < local or (block + 1 + number * abs(step)) % stride == 0


def seen(numbers: Mapping[str, Any], h: int, g: int, length: int) -> np.ndarray:
    """[h, length] of bool: which tokens take part."""
    return np.array([[sees(numbers, h, g, head, length, t) for t in range(length)] for head in range(h)], bool).reshape(h, length)


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    slopes: np.ndarray | None = None,
    cap: float = 0,
    seen: np.ndarray | None = None,
) -> Exact:
    """One query token: q [h, d], k and v [len, g, d] with len >= 1, of any float dtype; query head i uses kv head i // (h/g). ``seen``
    [h, len]: which tokens take part, at least one for every head."""
    q, k, v = (contract.to_f32(x).astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[0] // x.shape[1], axis=1) for x in (k, v))
    s = np.einsum("hd,thd->ht", q, k) * np.float64(np.float32(scale))
    if cap:
        s = np.float64(np.float32(cap)) * np.tanh(s / np.float64(np.float32(cap)))
    if slopes is not None:
        s += slopes.astype(np.float64)[:, None] * (np.arange(len(k)) - (len(k) - 1))
    if seen is not None:
        s = np.where(seen, s, -np.inf)
        v = np.where(seen.T[..., None], v, 0)
    top = s.max(axis=1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(axis=1, keepdims=True)
    mean, size = (np.einsum("ht,thd->hd", p, x) / total for x in (v, np.abs(v)))
    return Exact(mean, (np.log(total) + top)[:, 0], size)


def gather(arguments: Mapping[str, Any], n: int) -> tuple[np.ndarray, np.ndarray]:
    """K and V [len, g, d] of sequence n out of the classic paged caches among the arguments, as they are stored."""
    k_cache, v_cache = arguments["k_cache"], arguments["v_cache"]
    page = v_cache.shape[3]
    t = np.arange(int(arguments["seq_lens"][n]))
    ids, slots = arguments["block_tables"][n, t // page], t % page
    k = k_cache[ids, :, :, slots]  # [len, g, d/x, x]
    return k.reshape(*k.shape[:2], -1), v_cache[ids, :, :, slots]


def paged(arguments: Mapping[str, Any], n: int) -> Exact:
    """Float64 attention of sequence n (not empty) of a call of the classic kernels."""
    k, v = gather(arguments, n)
    if "k_scale" in arguments:
        k, v = (contract.to_f32(x) * arguments[name][:, None] for x, name in ((k, "k_scale"), (v, "v_scale")))
    visible = seen(arguments, arguments["q"].shape[1], k.shape[1], len(k)) if any(name in arguments for name in NUMBERS) else None
    return attention(arguments["q"][n], k, v, arguments["scale"], arguments.get("alibi_slopes"), arguments.get("cap", 0), visible)


def ulp(x: np.ndarray, dtype: str) -> np.ndarray:
    """The distance of neighbouring numbers of the dtype around x, as float64."""
    fraction, least = _FORMATS[dtype]
    _, exponent = np.frexp(np.asarray(x, np.float64))  # |x| in [2^(exponent - 1), 2^exponent)
    return np.ldexp(1.0, np.maximum(np.where(x == 0, least, exponent - 1), least) - fraction)


def allowed(exact: Exact, dtype: str) -> np.ndarray:
    """How far an output of the dtype may lie from ``exact.out``."""
    return 0.5 * ulp(exact.out, dtype) + 16 * 2.0**-24 * exact.size


def worst(out: np.ndarray, exact: Exact, dtype: str) -> float:
    """The greatest error of an output as a share of what is allowed; 1 is the limit."""
    error = np.abs(contract.to_f32(out).astype(np.float64) - exact.out)
    return float((error / allowed(exact, dtype)).max())
