"""Inputs of the cases of paged_attention_v1 and paged_attention_v2. Both kernels have the same cases (``tests.paged_cases``).

Whatever a kernel must not read is poisoned (C15): slots that no token has, tokens that take no part for any query head of a kv head, pages
that no sequence owns, table entries of pages without a token that takes part, the gaps between rows. Outputs and the workspace begin as
sentinels, so that partitions in which no token takes part must stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyref import classic_spec, contract
from pyref.spec import DTYPES
from tests import oracle
from tests.paged_values import EVERY_PATTERN, SPECIAL
from tools.arena import POISON, place, sentinel
from tools.cases import Case
from tools.data import Stream

SPARE = 3  # pages that no sequence owns
NUMBERS = ("cap", "max_seq_len", *oracle.NUMBERS)
F32 = DTYPES["f32"][0]


def case(name: str, why: str, dtype: str = "f16", **rest: Any) -> Case:
    """A case. ``rest``: h, g, d, page; lens, the length of every sequence (or {sequence: length} and n); and where it matters

    cache, the dtype of the caches, with scales (of K and V; a list: one a head) and patterns (a key of EVERY_PATTERN); those of NUMBERS;
    scale; slopes ("classic", "zero", "steep"); values (a key of SPECIAL); tables ("descending", "repeated", "shared"); places (argument
    -> how ``place`` lays it out); columns (of the table, beyond what the longest sequence needs); parts (of the workspace, beyond what
    is needed); lse (whether it is asked for).
    """
    shape = {"h": 4, "g": 2, "d": 64, "page": 16, "lens": (17, 35), "places": {}, "columns": 1, "parts": 0, "lse": True, **rest}
    return Case(name, why, {"T": dtype, "C": shape.get("cache", dtype)}, shape, seed=sum(name.encode()))


def lengths(shape: Mapping[str, Any]) -> np.ndarray:
    """seq_lens of a case."""
    lens = shape["lens"]
    if not isinstance(lens, dict):
        return np.array(lens, np.int32)
    found = np.zeros(shape["n"], np.int32)
    found[list(lens)] = list(lens.values())
    return found


def tables(shape: Mapping[str, Any], lens: np.ndarray, stream: Stream) -> tuple[np.ndarray, int]:
    """block_tables of a case, poisoned past the lengths, and the number of pages."""
    counts = -(-lens // shape["page"])
    total = int(counts.sum())
    table = np.full((lens.size, int(counts.max(initial=0)) + shape["columns"]), -1, np.int32)
    table[np.arange(table.shape[1]) < counts[:, None]] = stream.permutation(total + SPARE)[:total]
    kind = shape.get("tables")
    for n, count in enumerate(counts if kind else ()):
        if kind == "descending":
            table[n, :count] = np.sort(table[n, :count])[::-1]
        elif kind == "repeated":
            table[n, :count] = table[n, 0]
        elif kind == "shared":
            common = min(count, counts[0]) // 2
            table[n, :common] = table[0, :common]
    return table, total + SPARE


def slopes(kind: str, h: int) -> np.ndarray:
    """ALiBi slopes [h]."""
    classic = np.ldexp(1.0, -np.arange(1, h + 1)).astype(np.float32)
    return {"classic": classic, "zero": np.zeros(h, np.float32), "steep": classic * np.float32(-37.5)}[kind]


def stored(shape: Mapping[str, Any], k: np.ndarray, v: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The scales of a case by argument name, and what its caches hold of k and v [tokens, g, d]: themselves where it has none."""
    if "cache" not in shape:
        return {}, k, v
    scales = [np.atleast_1d(np.float32(scale)) for scale in shape["scales"]]
    k, v = (contract.quantize(contract.to_f32(x), scale[:, None], shape["cache"]) for x, scale in zip((k, v), scales, strict=True))
    if "patterns" in shape:
        EVERY_PATTERN[shape["patterns"]](v.view(np.uint8))
    return dict(zip(("k_scale", "v_scale"), scales, strict=True)), k, v


def caches(
    shape: Mapping[str, Any], table: np.ndarray, pages: int, lens: np.ndarray, k: np.ndarray, v: np.ndarray
) -> dict[str, np.ndarray]:
    """k_cache and v_cache with the tokens' k and v [tokens, g, d] at their places and poison everywhere else; where tokens take no part,
    they and their table entries are poisoned too."""
    g, d, page, storage = shape["g"], shape["d"], shape["page"], k.dtype
    x = 16 // storage.itemsize
    n = np.repeat(np.arange(lens.size), lens)
    t = np.arange(n.size) - np.repeat(np.cumsum(lens) - lens, lens)
    ids, slots = table[n, t // page], t % page
    bits = f"u{storage.itemsize}"
    if any(name in shape for name in oracle.NUMBERS):
        seen = np.concatenate([oracle.seen(shape, shape["h"], g, length) for length in lens], axis=1)  # [h, tokens]
        seen = seen.reshape(g, -1, n.size).any(axis=1).T  # [tokens, g]
        for values in (k, v):
            values.view(bits)[~seen] = np.iinfo(bits).max
        table[...] = -1
        where = seen.any(axis=1)
        table[n[where], t[where] // page] = ids[where]
    k_cache = np.full((pages, g, d // x, page, x * storage.itemsize), POISON, np.uint8).view(bits)
    v_cache = np.full((pages, g, d, page * storage.itemsize), POISON, np.uint8).view(bits)
    k_cache[ids, :, :, slots] = k.view(bits).reshape(n.size, g, d // x, x)
    v_cache[ids, :, :, slots] = v.view(bits)
    return {"k_cache": k_cache.view(storage), "v_cache": v_cache.view(storage)}


def inputs(stem: str, case: Case) -> dict[str, Any]:
    """The arguments of a case for one of the two kernels."""
    shape, dtype, stream = case.shape, case.dtypes["T"], Stream(case.seed)
    h, g, d, places = shape["h"], shape["g"], shape["d"], shape["places"]
    lens = lengths(shape)
    table, pages = tables(shape, lens, stream)
    n, tokens = lens.size, int(lens.sum())
    q, k, v = (stream.normal(size, dtype) for size in ((n, h, d), (tokens, g, d), (tokens, g, d)))
    if "values" in shape:
        t = np.arange(tokens) - np.repeat(np.cumsum(lens) - lens, lens)
        changed = [contract.to_f32(x).copy() for x in (q, k, v)]
        SPECIAL[shape["values"]](*changed, t, np.repeat(lens, lens))
        q, k, v = (contract.from_f32(x, dtype) for x in changed)
    scales, k, v = stored(shape, k, v)
    arrays = {"q": q, **scales, **caches(shape, table, pages, lens, k, v), "block_tables": table, "seq_lens": lens}
    if "slopes" in shape:
        arrays["alibi_slopes"] = slopes(shape["slopes"], h)
    found: dict[str, Any] = {name: place(array, **places.get(name, {})) for name, array in arrays.items()}
    outputs = {"out": ((n, h, d), DTYPES[dtype][0]), **({"lse": ((n, h), F32)} if shape["lse"] else {})}
    longest = shape.get("max_seq_len", table.shape[1] * shape["page"])
    if stem == "paged_attention_v2":
        parts = classic_spec.partitions(longest) + shape["parts"]
        outputs |= {"tmp_out": ((n, h, parts, d), F32), "exp_sums": ((n, h, parts), F32), "max_logits": ((n, h, parts), F32)}
    found |= {name: sentinel(size, storage, **places.get(name, {})) for name, (size, storage) in outputs.items()}
    found["scale"] = shape.get("scale", d**-0.5)
    return found | {name: shape[name] for name in NUMBERS if name in shape}
