"""`samebits run --check` on pairs of a faulty kernel and its clean twin: one is reported as its kind at its line, the other not."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tools.run import Outcome, execute, program

SPECIMENS = Path(__file__).parent / "specimens"
_KERNEL = re.compile(r"__global__ void (?:__cluster_dims__\(\d+\) )?(\w+)\(Args")
_EXPECT = re.compile(r"// expect: (.+)$")


def _expected() -> list[tuple[str, str, int, tuple[str, ...]]]:
    """File, kernel, line and kinds of every faulty kernel."""
    found = []
    for path in sorted(SPECIMENS.glob("*.cu")):
        kernel = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            kernel = match[1] if (match := _KERNEL.search(line)) else kernel
            if match := _EXPECT.search(line):
                found.append((path.name, kernel, number, tuple(match[1].split(" or "))))
    return found


EXPECTED = _expected()


@functools.cache
def _binary(file: str) -> Path:
    return program(SPECIMENS / file, check=True)


def _run(file: str, kernel: str, which: str, order: str) -> Outcome:
    return execute(_binary(file), [kernel, which], check=True, order=order, seconds=60, capture=True)


def test_there_are_forty_pairs() -> None:
    assert len({(file, kernel) for file, kernel, _, _ in EXPECTED}) == len(EXPECTED) >= 40


@pytest.mark.parametrize(("file", "kernel", "line", "kinds"), EXPECTED, ids=[kernel for _, kernel, _, _ in EXPECTED])
def test_specimen(file: str, kernel: str, line: int, kinds: tuple[str, ...]) -> None:
    for order in ("forward", "shuffle:1"):
        bad = _run(file, kernel, "bad", order)
        assert bad.exit == 1, (bad, bad.output)
        lines = [(r["kind"], {r["line"]} | ({r["other"]["line"]} if r["other"] else set())) for r in bad.reports]
        assert any(kind in kinds and line in at for kind, at in lines), (order, bad.reports)
        assert {r["kernel"] for r in bad.reports} == {kernel}, bad.reports
        assert all(Path(str(r["file"])).parent == SPECIMENS for r in bad.reports if r["line"]), bad.reports
    good = _run(file, kernel, "good", "forward")
    assert good.reports == [], good.reports
    assert good.exit == 0, good.output
