"""Our own kernels under the emulator's checks: no access out of bounds, no race, no read of what nobody wrote, and the same bytes.

A checked build is a second one of the same source, so a few cases of every kernel, spread over its list, stand for all. Checks make an
access ten times as long: cases of many tokens are left out, but for one of few numbers a token.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tools import cases, legs, verify

MANY = 4000  # tokens
QUICK = ["d8-balanced-7", "f16-tiers-down-split1"]  # rows of many tiles, states that are stored and joined; warps that only copy


def picked(stem: str) -> list[cases.Case]:
    found, quick = [], []
    for case in cases.cases(stem):
        lens = case.shape.get("lens", ())
        tokens = sum(lens.values() if isinstance(lens, Mapping) else lens)
        (quick if case.id in QUICK else found if tokens <= MANY else []).append(case)
    return found[:: max(1, len(found) // 4)] + quick


PICKED = [(stem, case) for stem in cases.stems() for case in picked(stem)]


@pytest.mark.parametrize(("stem", "case"), PICKED, ids=[f"{stem}-{case.id}" for stem, case in PICKED])
def test_the_checks_find_nothing_and_the_bytes_are_equal(stem: str, case: cases.Case) -> None:
    results = verify.run_case(stem, case, [legs.HostCheck()])
    assert [(result.leg, result.equal) for result in results] == [("ref", True), ("host-check", True)], results
