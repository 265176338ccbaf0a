"""Which tokens take part in paged_attention_v1 and _v2: the sliding window, the block-sparse pattern, and rows that they leave empty."""

from __future__ import annotations

import numpy as np
import pytest

from pyref import classic_tokens
from tests import harness, oracle, paged_inputs
from tests.paged_cases import pattern
from tests.test_paged_properties import BY_ID, V1, V2, assert_same, bits_are, results, stems
from tools import cases, compare
from tools.arena import place, sentinel_bits
from tools.cases import Case


@stems
def test_a_window_from_the_start_of_a_partition_is_what_is_left_of_the_sequence(stem: str) -> None:
    before = cases.inputs(stem, BY_ID["f16-window-76"])  # of 1,100 and of 77 tokens
    some = {**before, **{name: place(before[name].view[:1]) for name in ("q", "out", "lse")}}
    some |= {"block_tables": place(before["block_tables"].view[:1, 1024 // 16 :]), "seq_lens": place(np.int32([76]))}
    for name in ("tmp_out", "exp_sums", "max_logits", "window"):
        some.pop(name, None)
    assert_same(results(stem, some), {name: values[:1] for name, values in results(stem, before).items()})


@stems
@harness.each([BY_ID[name] for name in ("window-beyond-32-bits", "pattern-all-local", "pattern-of-stride-1")])
def test_what_admits_every_token_changes_no_byte(stem: str, case: Case) -> None:
    before = cases.inputs(stem, case)
    numbers = [name for name in before if name in oracle.NUMBERS]
    assert numbers
    assert_same(results(stem, {name: value for name, value in before.items() if name not in numbers}), results(stem, before))


PICTURE = {  # head sliding step, rank -> the blocks of four query heads and two kv heads, of ten, with a stride of 4 and one local block
    (0, 0): ["...#...#.#", "...#...#.#", "...#...#.#", "...#...#.#"],
    (1, 0): ["...#...#.#", "..#...#..#", ".#...#...#", "#...#...##"],
    (3, 0): ["...#...#.#", "#...#...##", ".#...#...#", "..#...#..#"],
    (-1, 0): ["...#...#.#", "...#...#.#", "..#...#..#", "..#...#..#"],
    (-1, 1): [".#...#...#", ".#...#...#", "#...#...##", "#...#...##"],
}


@pytest.mark.parametrize(("step", "rank"), PICTURE)
def test_the_pattern_as_a_picture(step: int, rank: int) -> None:
    shape = {**pattern(1, 4, 16, step, rank), "h": 4, "g": 2}
    before = cases.views(paged_inputs.inputs(V1, paged_inputs.case("picture", "", d=32, lens=(155,), **shape)))
    takes_part = classic_tokens.takes_part(cases.kernel(V1).bind(before), 0)
    drawn = [["#" if some.all() else "." for some in np.split(row, range(16, 155, 16))] for row in takes_part]
    assert ["".join(row) for row in drawn] == PICTURE[step, rank]
    assert (takes_part == oracle.seen(shape, 4, 2, 155)).all()
    assert (classic_tokens.pages(cases.kernel(V1).bind(before))[0, :10] == [any(row[i] == "#" for row in drawn) for i in range(10)]).all()


def test_heads_of_which_no_token_takes_part_are_empty() -> None:
    raw = harness.compute(V2, cases.inputs(V2, BY_ID["pattern-without-local-blocks"]))  # lengths 16, 0, 33, 100, one head after another
    empty = np.array([[True, True, True, False], [True] * 4, [True, False, False, False], [False] * 4])
    assert bits_are(raw["out"][empty], 0)
    assert bits_are(raw["lse"][empty], 0xFF800000)
    assert np.isfinite(raw["lse"][~empty]).all()
    assert (compare.bits(raw["exp_sums"][empty]) == sentinel_bits(raw["exp_sums"].dtype)).all()
