"""Orders of threads, warps and blocks in which a program is run, and the smallest difference from the usual one that makes it fail."""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

_MIXED = ("blocks", "warps", "lanes")
_ORDER = re.compile(
    r"forward|reverse|(first|last):(block|warp|lane):\d+|shuffle:\d+(:(blocks|warps|lanes)(\+(blocks|warps|lanes))*(:\d+-\d+)?)?"
)
_SEEDS = 4  # that are tried for each set of what is mixed
_ENOUGH = 16  # warps, lanes and blocks that are tried as the first and as the last


class Result(Protocol):
    """What shrink() has to know of a run."""

    @property
    def exit(self) -> int:
        """0: it ended well."""

    @property
    def decisions(self) -> int:
        """How often another thread than the usual one would have been taken by chance."""

    @property
    def last(self) -> str:
        """Which it was at the end of the order's window of decisions."""


@dataclass(frozen=True)
class Smallest:
    """An order that fails and has little of another order than forward; `last` is the last of its `changed` decisions, "" without."""

    order: str
    changed: int
    last: str

    def __str__(self) -> str:
        if self.order == "forward":
            return "it fails in forward order too"
        text = f"smallest: --order {self.order}"
        return text + (f"\n    changed decisions: {self.changed}, the last one: {self.last}" if self.last else "")


def parse(text: str) -> list[str]:
    """The orders that --order names: one, or N for the first N seeds. Raises ValueError."""
    if text.isdigit() and int(text) > 0:
        return [f"shuffle:{seed}" for seed in range(int(text))]
    if _ORDER.fullmatch(text):
        return [text]
    known = "forward, reverse, first:warp:N (or lane, block; or last), shuffle:SEED[:blocks+warps+lanes[:FROM-TO]] or a number of seeds"
    raise ValueError(f"--order is {text!r}, not {known}")


def differing(usual: Sequence[bytes], tried: Sequence[bytes]) -> str:
    """What the outputs of an order that was tried lack or add, line by line, against the usual order's; "" if nothing.

    Device code may print in any order: where a line stands does not count. Lines in which the usual outputs differ from each other, such
    as times, are left out.
    """
    first, *others = (Counter(output.splitlines()) for output in usual)
    found = [Counter(output.splitlines()) for output in tried]
    missing = functools.reduce(Counter.__and__, others, first) - functools.reduce(Counter.__or__, found)
    more = functools.reduce(Counter.__and__, found) - first if all(other == first for other in others) else Counter[bytes]()
    parts = [f"{what} {next(iter(lines)).decode(errors='replace')!r}" for what, lines in (("lacks", missing), ("has", more)) if lines]
    return "the output " + " and ".join(parts) if parts else ""


def shrink(failing: str, run: Callable[[str], Result], seconds: float = 60) -> Smallest:
    """An order that is simpler than the failing "shuffle:SEED" and fails too: one warp, lane or block before or after all others; else a
    seed that mixes less, with a window of its decisions outside of which all is in forward order. Looks for it for about `seconds`.
    """
    end = time.monotonic() + seconds
    for order in _simple():
        if run(order).exit:
            return Smallest(order, 0, "")
        if time.monotonic() > end:
            return Smallest(failing, 0, "")
    order, whole = next((order, result) for order in _candidates(failing) if (result := run(order)).exit)
    within = f"{order}:0-{whole.decisions}"
    if time.monotonic() > end or not run(within).exit or run(f"{order}:0-0").exit:  # it is the order of blocks, or not to be repeated
        return Smallest(order, 0, "")
    last = _least(0, whole.decisions, lambda n: bool(run(f"{order}:0-{n}").exit))
    count = _least(0, last, lambda n: bool(run(f"{order}:{last - n}-{last}").exit))
    order += f":{last - count}-{last}"
    return Smallest(order, count, run(order).last)


def _simple() -> Iterator[str]:
    yield "forward"
    for what in ("warp", "lane", "block"):
        yield from (f"{where}:{what}:{n}" for n in range(_ENOUGH) for where in ("first", "last"))
    yield "reverse"


def _candidates(failing: str) -> Iterator[str]:
    """Orders with fewer things mixed, the fewest first; at last the failing one."""
    own = int(failing.split(":")[1])
    for count in range(1, len(_MIXED)):
        for mixed in itertools.combinations(_MIXED, count):
            yield from (f"shuffle:{seed}:{'+'.join(mixed)}" for seed in (own, *(s for s in range(_SEEDS) if s != own)))
    yield f"{failing}:{'+'.join(_MIXED)}"


def _least(low: int, high: int, fails: Callable[[int], bool]) -> int:
    """A number that fails while the one below does not, given that `low` does not and `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high
