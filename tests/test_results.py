"""The README's figures are those of a committed result file, rendered by the benchmark itself."""

from __future__ import annotations

import json
import re

from tools import bench
from tools.cases import ROOT


def test_the_readme_shows_a_committed_result_file() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.search(r"bench --render (results/\S+\.json)`", text)
    assert named, "the README names no result file"
    shown = text.partition("<!-- results -->\n")[2].partition("<!-- end of results -->")[0]
    assert shown == bench.render(json.loads((ROOT / named[1]).read_text()))


def test_result_files_say_where_they_come_from() -> None:
    files = sorted((ROOT / "results").glob("*.json"))
    assert files
    for file in files:
        data = json.loads(file.read_text())
        assert {"machine", "date", "versions", "copy_gbs", "read_gbs", "rows"} <= set(data)
        assert all({"kernel", "cell", "dtype", "us", "gbs", "share", "peers"} <= set(row) for row in data["rows"])


def test_figures_of_the_emulator_say_where_they_come_from() -> None:
    """And reach what the emulator is for: a thousand times numba's stock simulator, small files within two seconds."""
    files = sorted((ROOT / "results" / "emulator").glob("*.json"))
    assert files
    for file in files:
        data = json.loads(file.read_text())
        assert {"machine", "date", "compiler", "plain", "checked", "check_cost", "stock_barrier_ns", "v1"} <= set(data)
        assert data["barrier_ratio"] == round(data["stock_barrier_ns"] / data["plain"]["barrier"]) > 1000
        assert data["compile_s"] < 2
