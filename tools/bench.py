"""``samebits bench``: builds, checks bytes, then times. On a GPU against the peers that are importable; without one, the CPU legs.

Method: inputs rotate so that L2 does not serve them, a CUDA graph is replayed, the median of seven; peers in the same run. Results are
``results/<machine>-<date>.json``: {machine, date, versions, copy_gbs, read_gbs, fma_gflops, rows: [{kernel, cell, dtype, us, spread, gbs,
share, peers}]}, ``share`` being the part of the measured read rate (attention), copy rate (copies) or memcmp's rate (compare_key).
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from kernels_cu import build
from tools import bench_copies, bench_cpu, bench_inputs, bench_plot, cases, device, peers, timing

ATTENTION = ("paged_decode", "paged_attention_v1", "paged_attention_v2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", type=Path, help="where to write the results (default: results/<machine>-<date>.json)")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print the tables of a result file, and do nothing else")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a result file beside it (.svg), and do nothing else")


def gpu_rows(console: Console, read_gbs: float, copy_gbs: float) -> Iterator[dict[str, Any]]:
    """Rows of all cells on the GPU in use."""
    import torch

    for cell in bench_inputs.CELLS:
        inputs = bench_inputs.sets(cell)
        others: dict[str, float | str] = {}
        for name, make in peers.available().items():
            try:
                others[name] = round(timing.graph_time([make(one) for one in inputs]).us, 1)
            except (RuntimeError, TypeError, ValueError) as error:  # a peer that cannot run this cell is said to, and not timed
                others[name] = f"not run: {str(error).splitlines()[0][:80]}"
        for stem in ATTENTION:
            if stem == "paged_attention_v1" and cell.t > 32768:
                continue  # its logits would not fit into shared memory
            spent = timing.graph_time(bench_inputs.checked_calls(stem, inputs))
            gbs = cell.bytes / spent.us * 1e-3
            row = {"kernel": stem, "cell": cell.name, "dtype": cell.dtype, "us": round(spent.us, 1), "spread": round(spent.spread, 1)}
            yield {**row, "gbs": round(gbs), "share": round(gbs / read_gbs, 3), "peers": others if stem == "paged_decode" else {}}
        del inputs
        torch.cuda.empty_cache()
        console.print(f"{cell.name} done", markup=False)
    for row in bench_copies.rows(copy_gbs):
        yield row
        console.print(f"{row['kernel']} {row['cell']} done", markup=False)


def versions() -> dict[str, str | None]:
    """What the figures depend on besides the machine."""
    import torch

    nvcc = build.find_nvcc()
    found = {"python": platform.python_version(), "torch": torch.__version__, "nvcc": build.nvcc_version(nvcc) if nvcc else None}
    if not device.missing():
        found["driver"] = device.current().driver
    return found


def _attention(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Attention by cell, every kernel and peer in its column."""
    by_cell: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["kernel"] in ATTENTION:
            by_cell.setdefault(row["cell"], {})[row["kernel"]] = row
    if not by_cell:
        return
    names = list(dict.fromkeys(name for kernels in by_cell.values() for name in kernels["paged_decode"]["peers"]))
    yield "| heads, batch x tokens | paged_decode | GB/s | v1 | v2 | " + " | ".join(names) + " |"
    yield "|---" * (5 + len(names)) + "|"
    for cell, kernels in by_cell.items():
        main = kernels["paged_decode"]
        times = [kernels[stem]["us"] if stem in kernels else "-" for stem in ATTENTION[1:]]
        times += [main["peers"].get(name, "-") for name in names]
        shown = " | ".join(f"{value:,}" if not isinstance(value, str) else "-" for value in times)
        yield f"| {cell} | {main['us']:,} | {main['gbs']:,} | {shown} |"


def _others(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every other kernel, a row a cell."""
    found = [row for row in rows if row["kernel"] not in ATTENTION]
    if not found:
        return
    yield ""
    yield "| kernel | cell | us | GB/s | share | peer |"
    yield "|---|---|---|---|---|---|"
    for row in found:
        gbs, share = "-" if row["gbs"] is None else f"{row['gbs']:,}", "-" if row["share"] is None else f"{row['share']:.0%}"
        peers = ", ".join(f"{name} {us:,}" for name, us in row["peers"].items()) or "-"
        yield f"| `{row['kernel']}` | {row['cell']} | {row['us']:,} | {gbs} | {share} | {peers} |"


def render(data: Mapping[str, Any]) -> str:
    """A result file as Markdown tables."""
    known = data["read_gbs"] is not None
    rates = f", reading {data['read_gbs']:,.0f} GB/s, copying {data['copy_gbs']:,.0f} GB/s" if known else ""
    lines = [f"{data['machine']}, {data['date']}{rates}; microseconds.", "", *_attention(data["rows"]), *_others(data["rows"])]
    return "\n".join(lines) + "\n"


def run(args: argparse.Namespace) -> int:
    """The command."""
    console = Console(width=160)
    if args.render:
        print(render(json.loads(args.render.read_text())), end="")
        return 0
    if args.plot:
        print(bench_plot.draw(args.plot))
        return 0
    reason = device.missing()
    start = time.perf_counter()
    if reason:
        console.print(f"no GPU is timed: {reason}; timing the CPU legs", markup=False)
        rates: dict[str, Any] = {"copy_gbs": None, "read_gbs": None, "fma_gflops": None}
        rows = [*bench_cpu.leg_rows(), *map(bench_cpu.keys, bench_cpu.TOKENS), *bench_cpu.call_rows("cpu")]
        data = {"machine": platform.processor() or platform.machine(), **rates, "rows": rows}
    else:
        read_gbs, copy_gbs, fma_gflops = timing.read_rate(), timing.copy_rate(), timing.fma_rate()
        rates = {"copy_gbs": round(copy_gbs), "read_gbs": round(read_gbs), "fma_gflops": round(fma_gflops)}
        rows = [*gpu_rows(console, read_gbs, copy_gbs), *map(bench_cpu.keys, bench_cpu.TOKENS), *bench_cpu.call_rows("cuda")]
        data = {"machine": device.current().name, **rates, "rows": rows}
    today = datetime.date.today().isoformat()
    data = {"machine": data.pop("machine"), "date": today, "versions": versions(), **data}
    name = re.sub("[^a-z0-9]+", "-", data["machine"].lower()).strip("-")
    path = args.json or cases.ROOT / "results" / f"{name}-{today}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    console.print(render(data), markup=False, soft_wrap=True)
    if not reason:
        try:
            console.print(f"{bench_plot.draw(path)}: drawn", markup=False)
        except ValueError as error:
            console.print(f"not drawn: {error}", markup=False)
    console.print(f"{path}: {len(data['rows'])} rows in {time.perf_counter() - start:.0f} s", markup=False)
    return 0
