"""Whole programs with a check of their own: right under `samebits run --check` in three orders, and nothing is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.run import execute, program

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.cu"))


def test_there_are_a_dozen() -> None:
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_program_is_clean_in_every_order(source: Path) -> None:
    binary = program(source, check=True)
    for order in ("forward", "reverse", "shuffle:5"):
        outcome = execute(binary, check=True, order=order, seconds=60, capture=True)
        assert outcome.reports == [], (order, outcome.reports)
        assert outcome.code == 0, (order, outcome.output, outcome.failure)
        assert outcome.output.decode().splitlines()[-1] == "PASS", order
