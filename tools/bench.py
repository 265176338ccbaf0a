"""``samebits bench``: builds, checks bytes, then times. On a GPU against the peers that are importable; without one, the CPU legs.

Method: inputs rotate so that L2 does not serve them, a CUDA graph is replayed, the median of seven; peers in the same run. Results are
``results/<machine>-<date>.json``: {machine, date, versions, copy_gbs, read_gbs, rows: [{kernel, cell, dtype, us, spread, gbs, share,
peers}]}, ``share`` being the part of the measured read rate (attention) or copy rate (copies).
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from kernels_cu import build
from tools import bench_inputs, cases, device, legs, peers, timing, verify

ATTENTION = ("paged_decode", "paged_attention_v1", "paged_attention_v2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", type=Path, help="where to write the results (default: results/<machine>-<date>.json)")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print the table of a result file, and do nothing else")


def gpu_rows(console: Console, read_gbs: float, copy_gbs: float) -> Iterable[dict[str, Any]]:
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
    for rows, width in ((1 << 18, 1024), (256, 1024)):
        ours, theirs, size = bench_inputs.copies(rows, width)
        spent, indexed = timing.graph_time(ours), timing.graph_time(theirs)
        gbs = size / spent.us * 1e-3
        row = {"kernel": "store_kv", "cell": f"{rows:,} x {width:,}", "dtype": "bf16", "us": round(spent.us, 1)}
        others = {"torch indexing": round(indexed.us, 1)}
        yield {**row, "spread": round(spent.spread, 1), "gbs": round(gbs), "share": round(gbs / copy_gbs, 3), "peers": others}


def cpu_rows() -> Iterable[dict[str, Any]]:
    """Seconds of every case summed for each CPU leg: what a laptop can compare its own runs with."""
    for stem in cases.stems():
        for leg in (legs.leg("ref"), legs.leg("sim"), legs.leg("host")):
            if leg.missing():
                continue
            spent, count = 0.0, 0
            for case in cases.cases(stem):
                got, _, seconds = verify.run_leg(stem, leg, cases.inputs(stem, case))
                spent, count = spent + seconds, count + (got is not None)
            yield {"kernel": stem, "cell": f"{count} cases on {leg.name}", "dtype": "all", "us": round(spent * 1e6), "spread": None,
                   "gbs": None, "share": None, "peers": {}}  # fmt: skip


def versions() -> dict[str, str | None]:
    """What the figures depend on besides the machine."""
    import torch

    nvcc = build.find_nvcc()
    found = {"python": platform.python_version(), "torch": torch.__version__, "nvcc": build.nvcc_version(nvcc) if nvcc else None}
    if not device.missing():
        found["driver"] = device.current().driver
    return found


def render(data: Mapping[str, Any]) -> str:
    """A result file as a Markdown table: attention by cell, every kernel and peer in its column; then the copies."""
    by_cell: dict[str, dict[str, Any]] = {}
    for row in data["rows"]:
        if row["kernel"] in ATTENTION:
            by_cell.setdefault(row["cell"], {})[row["kernel"]] = row
    names = list(next(iter(by_cell.values()))["paged_decode"]["peers"]) if by_cell else []
    rates = f"reading {data['read_gbs']:,.0f} GB/s, copying {data['copy_gbs']:,.0f} GB/s"
    lines = [f"{data['machine']}, {data['date']}, {rates}; microseconds.", ""]
    lines += ["| heads, batch x tokens | paged_decode | GB/s | v1 | v2 | " + " | ".join(names) + " |", "|---" * (5 + len(names)) + "|"]
    for cell, rows in by_cell.items():
        main = rows["paged_decode"]
        times = [rows[stem]["us"] if stem in rows else "-" for stem in ATTENTION[1:]] + [main["peers"][name] for name in names]
        shown = " | ".join(f"{value:,}" if not isinstance(value, str) else "-" for value in times)
        lines.append(f"| {cell} | {main['us']:,} | {main['gbs']:,} | {shown} |")
    for row in data["rows"]:
        if row["kernel"] == "store_kv":
            other = row["peers"]["torch indexing"]
            ours = f"{row['us']:,} us, {row['share']:.0%} of the copy rate"
            lines.append(f"\n`store_kv` {row['cell']}: {ours}; torch's indexing {other:,} us.")
    return "\n".join(lines) + "\n"


def run(args: argparse.Namespace) -> int:
    """The command."""
    console = Console(width=160)
    if args.render:
        print(render(json.loads(args.render.read_text())), end="")
        return 0
    reason = device.missing()
    start = time.perf_counter()
    if reason:
        console.print(f"no GPU is timed: {reason}; timing the CPU legs", markup=False)
        data = {"machine": platform.processor() or platform.machine(), "copy_gbs": None, "read_gbs": None, "rows": list(cpu_rows())}
    else:
        read_gbs, copy_gbs = timing.read_rate(), timing.copy_rate()
        rows = list(gpu_rows(console, read_gbs, copy_gbs))
        data = {"machine": device.current().name, "copy_gbs": round(copy_gbs), "read_gbs": round(read_gbs), "rows": rows}
    today = datetime.date.today().isoformat()
    data = {"machine": data.pop("machine"), "date": today, "versions": versions(), **data}
    name = re.sub("[^a-z0-9]+", "-", data["machine"].lower()).strip("-")
    path = args.json or cases.ROOT / "results" / f"{name}-{today}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    if not reason:
        console.print(render(data), markup=False, soft_wrap=True)
    console.print(f"{path}: {len(data['rows'])} rows in {time.perf_counter() - start:.0f} s", markup=False)
    return 0
