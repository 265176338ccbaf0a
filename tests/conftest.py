"""Shared fixtures, and the count of what ran on which leg at the end of every run."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba: the ports run in its simulator

from tests import harness
from tools.cases import Case


@pytest.fixture
def check_case(record_property: Callable[[str, object], None]) -> Callable[[str, Case], None]:
    """``check_case(stem, case)``: every available leg returns the definition's bytes, in every order of threads; fails otherwise."""

    def check(stem: str, case: Case) -> None:
        results = harness.run(stem, case)
        for result in results:
            why = (result.reason or "").partition("(")[0].strip()
            record_property("leg", (result.leg, "ran" if result.equal is not None else f"not run: {why}"))
        for leg, reason in harness.missing().items():
            record_property("leg", (leg, f"not run: {reason}"))
        wrong = [result for result in results if result.equal is False]
        if wrong:
            lines = [f"{result.leg}: {result.reason}\n    again: {harness.reproduce(stem, case, result.leg)}" for result in wrong]
            pytest.fail(f"{stem}/{case.id} ({case.why})\n" + "\n".join(lines), pytrace=False)

    return check


def without_simulator(path: Path) -> str | None:
    """Why a test file about the simulator cannot be run on this machine; None where it can, and for every other file."""
    about = path.suffix == ".py" and path.name.startswith("test_") and "simt" in path.read_text()
    return harness.missing().get("sim") if about else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files about the simulator where it cannot run; the summary counts them."""
    return True if collection_path.is_file() and without_simulator(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of faults come last: where a source was edited, the first failure is that of a case, not of a fault that no longer fits."""
    items.sort(key=lambda item: item.get_closest_marker("faults") is not None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts cases a leg: a leg that did not run is counted as not run."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, value in getattr(report, "user_properties", []) if report.when == "call" else []:
            if name == "leg":
                counts[value[0]][value[1]] += 1
    left_out = [path.name for path in sorted(Path(__file__).parent.glob("test_*.py")) if without_simulator(path)]
    if left_out:
        terminalreporter.line(f"not run: {', '.join(left_out)} ({harness.missing()['sim']})")
    skipped = collections.Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", []))
    for reason, count in skipped.items():
        terminalreporter.line(f"skipped: {count} ({reason})")
    if counts:
        terminalreporter.section("cases a leg")
    for leg, outcomes in counts.items():
        terminalreporter.line(f"{leg:16} " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
