"""Draws a result file of the benchmark: the roofline of decode attention, and its time against the context length."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyref.spec import itemsize

KERNELS = ("paged_decode", "paged_attention_v1", "paged_attention_v2")


@dataclass(frozen=True)
class Point:
    """A time of decode attention: h query heads, g kv heads, n sequences of t tokens; ``name`` of the kernel or peer."""

    name: str
    h: int
    g: int
    n: int
    t: int
    us: float
    flops_a_byte: float
    gflops: float


def points(data: Mapping[str, Any]) -> list[Point]:
    """Every time of the file's attention cells, those of peers too. Cells of other names (unequal lengths) have no single length."""
    found = []
    for row in data["rows"]:
        cell = re.fullmatch(r"(\d+)/(\d+) (\d+) x ([\d,]+)", row["cell"])
        if row["kernel"] not in KERNELS or not cell:
            continue
        h, g, n, t = (int(number.replace(",", "")) for number in cell.groups())
        intensity = 2 * h / (g * itemsize(row["dtype"]))  # 4 h t d operations over 2 g t d elements of K and V
        moved = row["gbs"] * row["us"]  # thousands of bytes
        times = {row["kernel"]: row["us"], **{name: us for name, us in row["peers"].items() if not isinstance(us, str)}}
        found += [Point(name, h, g, n, t, us, intensity, moved / us * intensity) for name, us in times.items()]
    return found


def _roofline(axes: Any, data: Mapping[str, Any], found: Sequence[Point], colors: Mapping[str, str]) -> None:
    low, high = min(point.flops_a_byte for point in found) / 2, max(point.flops_a_byte for point in found) * 4
    ends = [low, high]
    axes.plot(ends, [data["read_gbs"] * end for end in ends], color="black", label=f"reading, {data['read_gbs']:,} GB/s")
    if data.get("fma_gflops"):
        axes.axhline(data["fma_gflops"], color="black", linestyle="--", label=f"binary32, {data['fma_gflops']:,} GFLOP/s")
    for name in KERNELS:
        mine = [point for point in found if point.name == name]
        axes.scatter([point.flops_a_byte for point in mine], [point.gflops for point in mine], label=name, color=colors[name], s=18)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte of K and V", ylabel="GFLOP/s", title="roofline")


def _lengths(axes: Any, found: Sequence[Point], colors: Mapping[str, str]) -> None:
    for name in dict.fromkeys(point.name for point in found):
        mine = sorted((point.t, point.us) for point in found if point.name == name)
        style = {"marker": "o", "linestyle": "-"} if name in KERNELS else {"marker": "x", "linestyle": ":"}
        axes.plot(*zip(*mine, strict=True), label=name, color=colors[name], **style)
    heads = (found[0].h, found[0].g)
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="microseconds", title=f"one sequence, {heads[0]}/{heads[1]} heads")


def draw(path: Path) -> Path:
    """Writes the drawing of a result file beside it, as SVG, and returns its path. Raises ValueError where it cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("matplotlib is not installed: pip install -e '.[bench]'")
    data = json.loads(path.read_text())
    found = points(data)
    if not found:
        raise ValueError(f"{path}: no row of decode attention on a GPU")
    import matplotlib
    from matplotlib.figure import Figure

    colors = {name: f"C{i}" for i, name in enumerate(dict.fromkeys((*KERNELS, *(point.name for point in found))))}
    every = list(dict.fromkeys((point.h, point.g) for point in found if point.n == 1))
    figure = Figure(figsize=(5 * (1 + len(every)), 4.5), layout="constrained")
    axes = figure.subplots(1, 1 + len(every), squeeze=False)
    _roofline(axes[0, 0], data, found, colors)
    for place, heads in zip(axes[0, 1:], every, strict=True):
        _lengths(place, [point for point in found if (point.h, point.g) == heads and point.n == 1], colors)
    for place in axes[0]:
        place.legend(fontsize=7)
        place.grid(alpha=0.3)
    figure.suptitle(f"{data['machine']}, {data['date']}")
    out = path.with_suffix(".svg")
    with matplotlib.rc_context({"svg.hashsalt": "samebits", "svg.fonttype": "none"}):  # the same file from the same results, words as text
        figure.savefig(out, metadata={"Date": None})
    return out
