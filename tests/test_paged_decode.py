"""paged_decode: the cases on every leg."""

from __future__ import annotations

from collections.abc import Callable

from tests import harness
from tests.decode_cases import CASES
from tests.decode_inputs import inputs
from tools.cases import Case

STEM = "paged_decode"
__all__ = ["CASES", "inputs"]


@harness.each(CASES)
def test_every_leg_returns_the_same_bytes(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case(STEM, case)


def test_specialisations_are_few() -> None:
    """Each is a build of every leg that builds."""
    from pyref.paged_decode import SPEC

    assert len({tuple(sorted(SPEC.constants_of(case.dtypes, case.shape).items())) for case in CASES}) <= 56
    assert len(CASES) >= 300
