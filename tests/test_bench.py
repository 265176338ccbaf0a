"""What the benchmark makes of results: tables and drawings; and the rows that it measures on a CPU."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels_cu import build
from tools import bench, bench_cpu, bench_plot, cases, device, gpu_arrays, legs, peers
from tools.__main__ import main
from tools.bench_inputs import CELLS, OTHERS, TABLE, Cell, Inputs, bits
from tools.timing import Timing

ROW = {"spread": 0.1, "share": 0.9}


@pytest.fixture(autouse=True)
def _untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is timed is called once, and takes a microsecond."""
    monkeypatch.setattr(bench_cpu, "loop_time", lambda call: (call(), Timing(1.0, 0.0))[1])


def attention(kernel: str, cell: Any, us: float, **peers: Any) -> dict[str, Any]:
    return {"kernel": kernel, "cell": cell.name, "dtype": cell.dtype, "us": us, "gbs": cell.bytes / us * 1e-3, **ROW, "peers": peers}


def results() -> dict[str, Any]:
    rows = [row for i, cell in enumerate(CELLS) for row in (
        attention("paged_decode", cell, 10.0 + i, fast=5.0, broken="not run: no reason"), attention("paged_attention_v2", cell, 20.0))]
    more = {"dtype": "bf16", **ROW}
    rows.append({**more, "kernel": "swap_blocks", "cell": "8 pages to host", "us": 3.0, "gbs": 50, "share": None, "peers": {}})
    return {"machine": "A GPU", "date": "2026-01-01", "read_gbs": 4000, "copy_gbs": 3900, "fma_gflops": 50_000, "rows": rows}


def test_points_are_operations_a_byte_and_their_rate() -> None:
    found = bench_plot.points(results())
    assert len(found) == 3 * len(TABLE), "two kernels and one peer; a peer that did not run and cells beside the table have no point"
    for cell in TABLE:
        fast, ours = (next(p for p in found if p.name == name and (p.h, p.g, p.n, p.t) == (cell.h, cell.g, cell.n, cell.t))
                      for name in ("fast", "paged_decode"))  # fmt: skip
        operations = 4 * cell.h * cell.n * cell.t * cell.d  # a multiplication and an addition for each of q . k and p v
        assert ours.flops_a_byte == operations / cell.bytes
        assert ours.gflops == pytest.approx(operations / ours.us * 1e-3)
        assert fast.gflops == pytest.approx(operations / 5.0 * 1e-3)


def test_a_drawing_shows_every_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results()))
    drawing = bench_plot.draw(path).read_text()
    for text in ("A GPU, 2026-01-01", "roofline", "one sequence, 64/8 heads", "paged_decode", "fast", "4,000 GB/s", "50,000 GFLOP/s"):
        assert text in drawing


def test_a_drawing_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({**results(), "rows": []}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ValueError, match=r"cpu\.json: no row of decode attention"):
        bench_plot.draw(path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"matplotlib is not installed: pip install -e '\.\[bench\]'"):
        bench_plot.draw(path)


def test_a_table_has_every_row() -> None:
    text = bench.render(results())
    assert text.startswith("A GPU, 2026-01-01, reading 4,000 GB/s, copying 3,900 GB/s; microseconds.\n\n| heads, batch x tokens |")
    assert "| 32/8 1 x 1,024 | 10.0 | 419" in text
    assert "| 32/8 64 of the trace | 31.0 |" in text
    assert "| 32/8 128 x 4,096 e4m3 | 37.0 |" in text
    assert "| `swap_blocks` | 8 pages to host | 3.0 | 50 | - | - |" in text
    rows = [bench_cpu.keys(64), *bench_cpu.call_rows("cpu")]
    text = bench.render({"machine": "A CPU", "date": "2026-01-01", "read_gbs": None, "copy_gbs": None, "rows": rows})
    assert text.startswith("A CPU, 2026-01-01; microseconds.\n")
    for row in rows:
        assert f"| `{row['kernel']}` | {row['cell']} | {row['us']:,} |" in text
        assert list(row["peers"].values()) == [1.0]


def test_kernels_are_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "missing", lambda: "no GPU in this test")
    monkeypatch.setattr(bench_cpu, "TOKENS", (64,))
    monkeypatch.setattr(cases, "ROOT", tmp_path)
    monkeypatch.setattr(cases, "cases", lambda stem: cases.module(stem).CASES[:2])
    assert main(["bench", "compare_key"]) == 0
    out = capsys.readouterr().out
    assert "no GPU is timed: no GPU in this test" in out
    assert "| `compare_key` | 64 tokens |" in out
    assert "2 cases on host" in out
    assert not list(tmp_path.iterdir()), "results of some kernels were written as if they were of all"
    assert main(["bench", "compare_key", "--json", str(tmp_path / "some.json")]) == 0
    assert {row["kernel"] for row in json.loads((tmp_path / "some.json").read_text())["rows"]} == {"compare_key"}
    assert main(["bench", "compare_kex"]) == 2
    assert "no kernel 'compare_kex'" in capsys.readouterr().err


SMALL = dict.fromkeys(replace(cell, h=4, g=1, n=3, t=cell.t and 40) for cell in OTHERS)


@pytest.mark.parametrize("cell", SMALL, ids=lambda cell: cell.name)
def test_what_is_timed_is_compared_with_the_definition(cell: Cell) -> None:
    """On the CPU: every kernel over a small cell of each kind, unequal lengths and padded tables too."""
    inputs = Inputs(cell, 0, "cpu")
    for stem in bench.ATTENTION:
        given = inputs.arguments(stem)
        call = gpu_arrays.bind(cases.kernel(stem), **given)
        legs.Host().launch(build.load(build.host_library(call.kernel, call.constants())), call)
        assert (bits(given["out"]) == inputs.reference(stem, [0, 1, 2])).all(), stem


def test_peers_get_the_same_pages() -> None:
    inputs = Inputs(Cell(4, 1, 3, 0), 0, "cpu")
    begins, ids, last = peers.pages(inputs)
    for n, length in enumerate(inputs.cell.lens):
        mine = ids[begins[n] : begins[n + 1]]
        assert mine.tolist() == [page for page in inputs.tables[n].tolist() if page >= 0]
        assert (len(mine) - 1) * 16 + last[n] == length
    with pytest.raises(ValueError, match="unequal lengths"):
        peers.sdpa(inputs)
    inputs = Inputs(Cell(4, 2, 1, 32, cache="e4m3"), 0, "cpu")
    with pytest.raises(ValueError, match="no fp8"):
        peers.sdpa(inputs)
    k, v = (bits(cache) for cache in peers.nhd(inputs))  # [pages, slot, g, d]
    assert (k.transpose(0, 2, 3, 1).reshape(2, 2, 8, 16, 16).swapaxes(3, 4) == bits(inputs.k)).all()
    assert (v.transpose(0, 2, 3, 1) == bits(inputs.v)).all()
