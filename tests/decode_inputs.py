"""Inputs of the cases of paged_decode: the same tokens in any layout, with everything poisoned that must not be read (C15).

Poison: slots without a token, tokens and table entries before a window, pages that no sequence owns, table entries past a length, gaps
between rows, and the workspace, which begins as NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyref import contract
from pyref.decode_spec import SPAN, TILE, cache_views, choose_split
from pyref.spec import DTYPES
from tests import paged_inputs
from tests.decode_values import SPECIAL
from tools.arena import POISON, Region, place, sentinel
from tools.cases import Case
from tools.data import Stream

F32 = DTYPES["f32"][0]
LAYOUTS = ("classic", "nhd", "hnd")


def derived(shape: Mapping[str, Any]) -> dict[str, int]:
    """The derived axes that choose a case's specialisation."""
    _, _, v_layout = shape["layout"].rpartition("/")
    changed = [places for name, places in shape["places"].items() if name in ("k_cache", "v_cache")]
    inner = any(axis > 1 for places in changed for axis in (*places.get("pad", ()), *places.get("swap", ())))
    return {"group": shape["h"] // shape["g"], "rows": int(v_layout != "classic"), "dense": int(shape["layout"] == "classic" and not inner)}


def case(name: str, why: str, dtype: str = "f16", **rest: Any) -> Case:
    """A case. ``rest``: h, g, d, page; lens, the length of every sequence (or {sequence: length} and n); and where it matters

    layout ("classic", "nhd", "hnd", or K's and V's as "nhd/classic"); split (None: the launcher's choice); warps; scale; cap; window;
    slopes ("classic", "zero", "steep"); sinks (a key of SINKS); cache, the dtype of the caches, with scales (of K and V; a list: one a
    kv head) and patterns (a key of EVERY_PATTERN); values (a key of SPECIAL); tables ("descending", "repeated", "shared"); places
    (argument -> how ``place`` lays it out); columns (of the table, beyond what the longest sequence needs); max_seq_len; states (of the
    workspace, beyond what is needed); work (whether the workspace is given); lse (whether it is asked for).
    """
    shape = {
        "h": 2, "g": 1, "d": 64, "page": 16, "lens": (17, 35), "layout": "classic", "split": None, "places": {}, "columns": 1, "states": 0,
        "work": True, "lse": True, **rest,
    }  # fmt: skip
    shape |= derived(shape)
    return Case(name, why, {"T": dtype, "C": shape.get("cache", dtype)}, shape, seed=sum(name.encode()))


def mixed(h: int) -> np.ndarray:
    """Sinks as a model learns them: some weigh more than the tokens, some less."""
    return np.resize(np.float32([0.5, -1.25, 4.0, -0.0, 2.0, -7.5, 0.25, 1.0]), h)


SINKS = {
    "mixed": mixed,
    "strong": lambda h: np.full(h, 60.0, np.float32),
    "weak": lambda h: np.full(h, -1e4, np.float32),
    "minus-inf": lambda h: np.full(h, -np.inf, np.float32),
    "nan": lambda h: np.where(np.arange(h) % 2, np.float32(np.nan), np.float32(1)),
    "plus-inf": lambda h: np.where(np.arange(h) % 2, np.float32(np.inf), np.float32(1)),
    "huge": lambda h: np.full(h, -3e38, np.float32),
}


def arranged(layout: str, which: str, slots: np.ndarray, place_as: Mapping[str, Any]) -> Region:
    """A cache [pages, page, g, d] in a layout: memory laid out by it, and the view that the kernel takes for the argument ``which``."""
    if layout == "classic":
        x = 16 // slots.itemsize
        k = slots.reshape(*slots.shape[:3], -1, x).transpose(0, 2, 3, 1, 4)
        return place(k if which == "k_cache" else slots.transpose(0, 2, 3, 1), **place_as)
    region = place(slots if layout == "nhd" else slots.swapaxes(1, 2), **place_as)
    return Region(region.buffer, cache_views(layout.upper(), region.view, region.view)[which])


def caches(shape: Mapping[str, Any], table: np.ndarray, pages: int, lens: np.ndarray, k: np.ndarray, v: np.ndarray) -> dict[str, Region]:
    """k_cache and v_cache with the tokens' k and v [tokens, g, d] at their places, and poison everywhere else."""
    page, window = shape["page"], shape.get("window", 0)
    n = np.repeat(np.arange(lens.size), lens)
    t = np.arange(n.size) - np.repeat(np.cumsum(lens) - lens, lens)
    read = t >= lens[n].astype(np.int64) - window if window else t >= 0
    ids, slots = table[n[read], t[read] // page], t[read] % page
    k_layout, _, v_layout = shape["layout"].partition("/")
    found = {}
    for name, values, layout in (("k_cache", k, k_layout), ("v_cache", v, v_layout or k_layout)):
        bits = f"u{values.itemsize}"
        cache = np.full((pages, page, *values.shape[1:-1], values.shape[-1] * values.itemsize), POISON, np.uint8).view(bits)
        cache[ids, slots] = values.view(bits)[read]
        found[name] = arranged(layout, name, cache.view(values.dtype), shape["places"].get(name, {}))
    return found


def states(split: int, longest: int) -> int:
    """States of a row that the kernel may store."""
    tiles, spans = -(-longest // TILE), -(-longest // (TILE * SPAN))
    return tiles if split == 0 else spans if spans > max(split, 1) else 0


def workspace(shape: Mapping[str, Any], n: int, longest: int) -> dict[str, Region]:
    """The workspace, NaN."""
    h, d, split = shape["h"], shape["d"], shape["split"]
    split = choose_split(n, shape["g"], longest, h // shape["g"]) if split is None else split
    rows = (n, h, states(split, longest) + shape["states"])
    found = {"part_a": (*rows, d), "part_l": rows, "part_m": rows}
    return {name: place(np.full(size, np.nan, np.float32), **shape["places"].get(name, {})) for name, size in found.items()}


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    shape, dtype, stream = case.shape, case.dtypes["T"], Stream(case.seed)
    h, g, d, page, places = shape["h"], shape["g"], shape["d"], shape["page"], shape["places"]
    lens = paged_inputs.lengths(shape)
    n, tokens = lens.size, int(lens.sum())
    q, k, v = (stream.normal(size, dtype) for size in ((n, h, d), (tokens, g, d), (tokens, g, d)))  # the same in every layout
    table, pages = paged_inputs.tables(shape, lens, stream)
    if shape.get("window"):
        begins = np.maximum(lens.astype(np.int64) - shape["window"], 0)
        table[np.arange(table.shape[1]) < begins[:, None] // page] = -1
    if "values" in shape:
        t = np.arange(tokens) - np.repeat(np.cumsum(lens) - lens, lens)
        changed = [contract.to_f32(x).copy() for x in (q, k, v)]
        SPECIAL[shape["values"]](*changed, t, np.repeat(lens, lens))
        q, k, v = (contract.from_f32(x, dtype) for x in changed)
    scales, k, v = paged_inputs.stored(shape, k, v)
    arrays = {"q": q, "block_tables": table, "seq_lens": lens, **scales}
    if "slopes" in shape:
        arrays["alibi_slopes"] = paged_inputs.slopes(shape["slopes"], h)
    if "sinks" in shape:
        arrays["sinks"] = SINKS[shape["sinks"]](h)
    found: dict[str, Any] = {name: place(array, **places.get(name, {})) for name, array in arrays.items()}
    found |= caches(shape, table, pages, lens, k, v)
    outputs = {"out": ((n, h, d), DTYPES[dtype][0]), **({"lse": ((n, h), F32)} if shape["lse"] else {})}
    found |= {name: sentinel(size, storage, **places.get(name, {})) for name, (size, storage) in outputs.items()}
    longest = shape.get("max_seq_len", table.shape[1] * page)
    if shape["work"]:
        found |= workspace(shape, n, longest)
    found["scale"] = shape.get("scale", d**-0.5)
    numbers = {name: shape[name] for name in ("cap", "window", "max_seq_len", "warps") if name in shape}
    return found | numbers | ({"split": shape["split"]} if shape["split"] is not None else {})
