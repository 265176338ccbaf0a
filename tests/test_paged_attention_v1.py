"""paged_attention_v1: the cases on every leg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import harness, paged_inputs
from tests.paged_cases import CASES
from tools.cases import Case

STEM = "paged_attention_v1"


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    return paged_inputs.inputs(STEM, case)


@harness.each(CASES)
def test_every_leg_returns_the_same_bytes(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)
