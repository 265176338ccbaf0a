"""Our own kernels under the emulator's checks: no access out of bounds, no race, no read of what nobody wrote, and the same bytes.

A checked build is a second one of the same source, so a few cases of every kernel, spread over its list, stand for all.
"""

from __future__ import annotations

import pytest

from tools import cases, legs, verify

PICKED = [(stem, case) for stem in cases.stems() for case in cases.cases(stem)[:: max(1, len(cases.cases(stem)) // 4)]]


@pytest.mark.parametrize(("stem", "case"), PICKED, ids=[f"{stem}-{case.id}" for stem, case in PICKED])
def test_the_checks_find_nothing_and_the_bytes_are_equal(stem: str, case: cases.Case) -> None:
    results = verify.run_case(stem, case, [legs.HostCheck()])
    assert [(result.leg, result.equal) for result in results] == [("ref", True), ("host-check", True)], results
