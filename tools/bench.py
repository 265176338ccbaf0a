"""``samebits bench``: builds, checks bytes, then times. On a GPU against the peers that are importable; without one, the CPU legs.

Method: inputs rotate so that L2 does not serve them, a CUDA graph is replayed, the median of seven; peers in the same run. Results are
``results/<machine>-<date>.json``: {machine, date, versions, copy_gbs, read_gbs, fma_gflops, rows: [{kernel, cell, dtype, us, spread, gbs,
share, peers}]}, ``share`` being the part of the measured read rate (attention), copy rate (copies) or memcmp's rate (compare_key).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
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
from tools import bench_copies, bench_cpu, bench_inputs, bench_plot, cases, device, peers, timing, verify

ATTENTION = ("paged_decode", "paged_attention_v1", "paged_attention_v2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("stem", nargs="*", help="kernels (default: all; of some the results are printed, and written where --json says)")
    parser.add_argument("--json", type=Path, help="where to write the results (default: results/<machine>-<date>.json)")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print the tables of a result file, and do nothing else")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a result file beside it (.svg), and do nothing else")


def attention_rows(stems: Sequence[str], read_gbs: float) -> Iterator[dict[str, Any]]:
    """Rows of decode attention over all cells on the GPU in use; peers stand in those of paged_decode."""
    import torch

    if stems:
        prepare(stems)
    for cell in bench_inputs.CELLS if stems else ():
        inputs = bench_inputs.sets(cell)
        for stem in stems:
            if stem == "paged_attention_v1" and cell.longest > 32768:
                continue  # its logits would not fit into shared memory
            spent = timing.graph_time(bench_inputs.checked_calls(stem, inputs))
            gbs = cell.bytes / spent.us * 1e-3
            row = {"kernel": stem, "cell": cell.name, "dtype": cell.dtype, "us": round(spent.us, 1), "spread": round(spent.spread, 1)}
            others = peer_times(inputs) if stem == "paged_decode" else {}
            yield {**row, "gbs": round(gbs), "share": round(gbs / read_gbs, 3), "peers": others}
        del inputs
        torch.cuda.empty_cache()


def prepare(stems: Sequence[str]) -> None:
    """Builds what the cells run, all cores busy: kernels, and of the cells beside the table also peers, which are built at their
    first use, for every dtype and head size anew."""

    def kernels(cell: bench_inputs.Cell) -> None:
        inputs = bench_inputs.Inputs(cell, 0)
        for stem in stems:
            bench_inputs.launch(stem, inputs.arguments(stem))

    def others(cell: bench_inputs.Cell) -> None:
        for make in peers.available().values():
            with contextlib.suppress(RuntimeError, TypeError, ValueError):  # seen again when it is timed
                make(bench_inputs.Inputs(cell, 0))()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(kernels, cell) for cell in dict.fromkeys(cell.least for cell in bench_inputs.CELLS)]
        if "paged_decode" in stems:  # no two of these cells share a build
            jobs += [pool.submit(others, cell) for cell in dict.fromkeys(cell.least for cell in bench_inputs.OTHERS)]
        for job in jobs:
            job.result()


def peer_times(inputs: Sequence[bench_inputs.Inputs]) -> dict[str, float | str]:
    """Microseconds of every peer that is importable; of one that cannot run the cell, why."""
    found: dict[str, float | str] = {}
    for name, make in peers.available().items():
        try:
            found[name] = round(timing.graph_time([make(one) for one in inputs]).us, 1)
        except (RuntimeError, TypeError, ValueError) as error:
            found[name] = f"not run: {str(error).splitlines()[0][:80]}"
    return found


def gpu_rows(stems: Sequence[str], read_gbs: float, copy_gbs: float) -> Iterator[dict[str, Any]]:
    """Rows of these kernels, on the GPU in use or on the CPU that they are of."""
    yield from attention_rows([stem for stem in ATTENTION if stem in stems], read_gbs)
    yield from bench_copies.rows(stems, copy_gbs)
    yield from key_rows(stems)
    if "paged_decode" in stems:
        yield from bench_cpu.call_rows("cuda")


def cpu_rows(stems: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of these kernels where there is no GPU."""
    yield from bench_cpu.leg_rows(stems)
    yield from key_rows(stems)
    if "paged_decode" in stems:
        yield from bench_cpu.call_rows("cpu")


def key_rows(stems: Sequence[str]) -> Iterator[dict[str, Any]]:
    """compare_key's rows."""
    yield from map(bench_cpu.keys, bench_cpu.TOKENS if "compare_key" in stems else ())


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
    """A row a kernel and cell."""
    if not rows:
        return
    yield "| kernel | cell | us | GB/s | share | peer |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        gbs, share = "-" if row["gbs"] is None else f"{row['gbs']:,}", "-" if row["share"] is None else f"{row['share']:.0%}"
        peers = ", ".join(f"{name} {us:,}" for name, us in row["peers"].items()) or "-"
        yield f"| `{row['kernel']}` | {row['cell']} | {row['us']:,} | {gbs} | {share} | {peers} |"


def render(data: Mapping[str, Any]) -> str:
    """A result file as Markdown tables: decode attention by cell, then everything else."""
    known = data["read_gbs"] is not None
    rates = f", reading {data['read_gbs']:,.0f} GB/s, copying {data['copy_gbs']:,.0f} GB/s" if known else ""
    cells = {row["cell"] for row in data["rows"] if row["kernel"] == "paged_decode" and row["gbs"] is not None}
    attention = [row for row in data["rows"] if row["kernel"] in ATTENTION and row["cell"] in cells]
    others = [row for row in data["rows"] if row not in attention]
    parts = [[f"{data['machine']}, {data['date']}{rates}; microseconds."], _attention(attention), _others(others)]
    return "\n\n".join(text for part in parts if (text := "\n".join(part))) + "\n"


def run(args: argparse.Namespace) -> int:
    """The command."""
    console = Console(width=160)
    if args.render:
        print(render(json.loads(args.render.read_text())), end="")
        return 0
    if args.plot:
        print(bench_plot.draw(args.plot))
        return 0
    stems = verify.kernels(args.stem)
    reason = device.missing()
    start = time.perf_counter()
    rates: dict[str, float | None] = dict.fromkeys(("copy_gbs", "read_gbs", "fma_gflops"))
    if reason:
        console.print(f"no GPU is timed: {reason}; timing the CPU legs", markup=False)
        machine, found = platform.processor() or platform.machine(), cpu_rows(stems)
    else:
        read_gbs, copy_gbs = timing.read_rate(), timing.copy_rate()
        rates = {"copy_gbs": round(copy_gbs), "read_gbs": round(read_gbs), "fma_gflops": round(timing.fma_rate())}
        machine, found = device.current().name, gpu_rows(stems, read_gbs, copy_gbs)
    rows = []
    for row in found:
        rows.append(row)
        console.print(f"{row['kernel']}, {row['cell']}: {row['us']:,} us", markup=False)
    today = datetime.date.today().isoformat()
    data = {"machine": machine, "date": today, "versions": versions(), **rates, "rows": rows}
    console.print(render(data), markup=False, soft_wrap=True)
    console.print(f"{len(rows)} rows in {time.perf_counter() - start:.0f} s", markup=False)
    if not args.json and args.stem:
        return 0
    name = re.sub("[^a-z0-9]+", "-", machine.lower()).strip("-")
    path = args.json or cases.ROOT / "results" / f"{name}-{today}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    console.print(str(path), markup=False)
    if not reason:
        try:
            console.print(str(bench_plot.draw(path)), markup=False)
        except ValueError as error:
            console.print(f"not drawn: {error}", markup=False)
    return 0
