"""The one test body for every case of every kernel: all available legs, several orders of threads, bytes compared."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools import cases, legs, verify
from tools.arena import Region

reproduce = verify.reproduce
#: A race or a missing barrier shows under another order of threads, warps and blocks.
ORDERS = ("reverse", "shuffle:1")


@functools.cache
def available() -> tuple[legs.Leg, ...]:
    """The legs that every case runs on, beside ``ref``. ``SAMEBITS_LEGS`` (names with commas) narrows them."""
    named = os.environ.get("SAMEBITS_LEGS")
    wanted = [legs.leg(name) for name in named.split(",")] if named else list(legs.all_legs())
    found = [leg for leg in wanted if leg.name != "ref" and not leg.missing()]
    orders = [legs.Host(order) for order in ORDERS] if any(leg.name == "host" for leg in found) else []
    return (*found, *orders)


@functools.cache
def missing() -> Mapping[str, str]:
    """Legs that cannot run here, and why."""
    return {leg.name: reason for leg in legs.all_legs() if (reason := leg.missing())}


def run(stem: str, case: cases.Case) -> list[verify.Result]:
    """Runs one case everywhere; on the simulator once for all runs in which its sources are the same."""
    return verify.run_case(stem, case, available(), once=True)


def each(found: list[cases.Case]) -> pytest.MarkDecorator:
    """Parametrises a test over cases, with their ids."""
    return pytest.mark.parametrize("case", found, ids=[case.id for case in found])


def compute(stem: str, arguments: Mapping[str, Any], leg: str = "ref") -> dict[str, np.ndarray]:
    """Outputs of a kernel on a leg over a copy of the arguments, for tests of properties; the test is skipped where the leg cannot run."""
    reason = legs.leg(leg).missing()
    if reason:
        pytest.skip(f"{leg}: {reason}")
    got, declined, _ = verify.run_leg(stem, legs.leg(leg), arguments)
    assert got is not None, declined
    return {name: got[name].view for name in cases.kernel(stem).outputs if isinstance(got.get(name), Region)}


def refuses(stem: str, arguments: Mapping[str, Any], kind: type[Exception], *texts: str, call: Callable[..., Any] | None = None) -> None:
    """The call is refused with an error of that kind whose text holds the kernel's name and all ``texts``, and no byte changed."""
    mine = cases.copies(arguments)
    kernel = cases.kernel(stem)
    with pytest.raises(kind) as caught:
        (call or (lambda **given: kernel.bind(given, checked=True)))(**cases.views(mine))
    for text in (stem, *texts):
        assert text in str(caught.value), f"{text!r} is missing in: {caught.value}"
    for name, value in mine.items():
        if isinstance(value, Region):
            assert np.array_equal(value.buffer, arguments[name].buffer), f"{name} changed although the call was refused"


def with_fault(file: Path, right: str, wrong: str) -> str:
    """The text of a source in which ``right`` has become ``wrong``; the test fails where ``right`` does not stand there exactly once."""
    text = file.read_text()
    if text.count(right) != 1:
        pytest.fail(
            f"{file.name} was edited where this test puts a fault in: {right!r} stands there {text.count(right)} times, not once.\n"
            "Where other tests fail too, look at those first. Else the fault must be written anew for the edited text.",
            pytrace=False,
        )
    return text.replace(right, wrong)
