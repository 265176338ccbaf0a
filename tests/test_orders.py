"""`samebits run --orders N`: a failing seed is found, and made small enough to say which warp, lane or block came too early."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.host_programs import PROGRAMS
from tools import orders
from tools.__main__ import main
from tools.run import execute, program

SOURCE = PROGRAMS / "order_dependent.cu"


@pytest.mark.parametrize(
    ("which", "smallest"),
    [("w", {"first:warp:3", "last:warp:1"}), ("l", {"first:lane:9", "last:lane:3"}), ("b", {"first:block:3", "last:block:1"})]
)
def test_one_that_comes_first_or_last_is_named(which: str, smallest: set[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(SOURCE), "--orders", "30", which]) == 1
    said = capfd.readouterr().err
    assert "fails; smallest: --order " in said
    order = said.split("smallest: --order ")[1].split()[0]
    assert order in smallest
    assert main(["run", str(SOURCE), "--order", order, which]) == 1
    assert main(["run", str(SOURCE), "--order", "forward", which]) == 0


def test_a_window_of_decisions_is_left_where_nothing_simpler_fails() -> None:
    one = functools.partial(execute, program(SOURCE, check=False), ["s"], capture=True)
    failing = next(order for order in orders.parse("64") if one(order=order).exit)
    found = orders.shrink(failing, lambda order: one(order=order))
    window = found.order.split(":")[3]
    low, high = map(int, window.split("-"))
    assert 0 < found.changed == high - low
    assert one(order=found.order).exit == 1
    assert one(order=found.order.replace(window, f"{low}-{high - 1}")).exit == 0  # the last of them is needed
    assert found.last.startswith("both_ways, block (0, 0, 0): thread (")
    assert found.last in str(found)


def test_what_is_printed_is_compared(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A program that never fails: its result differs in one order, its prints come in any and its time differs always."""
    found = tmp_path / "reports.json"
    assert main(["run", str(SOURCE), "--orders", "30", "--json", str(found), "w", "print"]) == 1
    said = capfd.readouterr().err
    assert said.split("smallest: --order ")[1].split()[0] in {"first:warp:3", "last:warp:1"}
    assert "order: the output lacks '5'" in said
    assert [report["kind"] for report in json.loads(found.read_text())] == ["order"]
    assert main(["run", str(SOURCE), "--orders", "5", "nothing", "print"]) == 0


def test_lines_that_differ_for_another_reason_are_not_compared() -> None:
    usual = [b"5\ntook 1 s\n", b"5\ntook 2 s\n"]
    assert orders.differing(usual, [b"took 3 s\n5\n"]) == ""
    assert orders.differing(usual, [b"6\ntook 3 s\n"]) == "the output lacks '5'"
    assert orders.differing([b"1\n2\n"] * 2, [b"2\n1\n"]) == ""
    assert orders.differing([b"1\n2\n"] * 2, [b"2\n1\n1\n"]) == "the output has '1'"
    assert orders.differing([b"0 s\n"] * 2, [b"1 s\n"]) != ""
    assert orders.differing([b"0 s\n"] * 2, [b"1 s\n", b"0 s\n"]) == ""  # a coarse clock: not so in the second run


@dataclass(frozen=True)
class _Run:
    exit: int
    decisions: int = 100
    last: str = "that one"


def test_shrinking() -> None:
    """Over runs that fail where they are told to."""
    assert orders.shrink("shuffle:3", lambda order: _Run(1)).order == "forward"
    assert "in forward order too" in str(orders.shrink("shuffle:3", lambda order: _Run(1)))
    assert orders.shrink("shuffle:3", lambda order: _Run(int(order == "reverse"))).order == "reverse"

    def narrow(order: str) -> _Run:  # decision 41 of seed 3, with warps mixed
        kind, *rest = order.split(":")
        low, high = map(int, rest[2].split("-")) if len(rest) == 3 else (0, 100)
        return _Run(int(kind == "shuffle" and rest[0] == "3" and "warps" in rest[1] and low <= 41 < high))

    assert orders.shrink("shuffle:3", narrow) == orders.Smallest("shuffle:3:warps:41-42", 1, "that one")
    blocks = orders.shrink("shuffle:3", lambda order: _Run(int(order.startswith("shuffle") and "blocks" in order)))
    assert blocks == orders.Smallest("shuffle:3:blocks", 0, "")
    assert orders.shrink("shuffle:3", lambda order: _Run(0), seconds=0).order == "shuffle:3"


def test_names_of_orders(capfd: pytest.CaptureFixture[str]) -> None:
    assert orders.parse("3") == ["shuffle:0", "shuffle:1", "shuffle:2"]
    for good in ("forward", "reverse", "first:warp:2", "last:block:10", "shuffle:7", "shuffle:7:lanes", "shuffle:7:blocks+warps:3-9"):
        assert orders.parse(good) == [good]
    for bad in ("0", "-1", "sideways", "shuffle", "shuffle:x", "shuffle:7:threads", "first:warp", "shuffle:7:lanes:3"):
        with pytest.raises(ValueError, match="number of seeds"):
            orders.parse(bad)
