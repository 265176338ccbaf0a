"""Our own kernels in 64 orders of threads, warps and blocks: the bytes of the definition in each of them."""

from __future__ import annotations

import pytest

from tools import cases, legs, verify

SEEDS = 64
MOST = 50_000  # steps of the case: 64 runs of it take less than a second


def _case(stem: str) -> cases.Case:
    """Of two dozen cases spread over the list the one with most work, within the limit."""
    found = cases.cases(stem)
    kernel = cases.kernel(stem)
    some = found[:: max(1, len(found) // 24)]
    work = [kernel.work(kernel.bind(cases.views(cases.inputs(stem, case)))) for case in some]
    return some[max((i for i in range(len(some)) if work[i] <= MOST), key=work.__getitem__)]


@pytest.mark.parametrize("stem", cases.stems())
def test_every_seed_gives_the_same_bytes(stem: str) -> None:
    case = _case(stem)
    results = verify.run_case(stem, case, [legs.Host(f"shuffle:{seed}") for seed in range(SEEDS)])
    wrong = [(result.leg, result.reason) for result in results if result.equal is not True]
    assert (case.id, wrong, len(results)) == (case.id, [], SEEDS + 1)
