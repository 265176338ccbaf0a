"""What counts as an access: every way to an element is checked, and reports stand at the kernel's own line, with the view's shape."""

# ruff: noqa: ANN001, ANN201, ANN202  kernels carry no annotations

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda, float32

from emu import simt
from emu.simt import shadow
from tests.simt_help import FULL, fires, launch

WAYS = ("element", "slice", "iteration", "unpacked", "enumerate", "item", "flat", "ravel", "hint", "math")


@cuda.jit
def reads(out, way, written):
    s = cuda.shared.array((32, 1), float32)
    i = cuda.threadIdx.x
    if written:
        s[i, 0] = i
    mine = s[31 - i]
    if way == "element":
        out[i, 0] = mine[0]
    elif way == "slice":
        out[i, :] = mine
    elif way == "iteration":
        for v in mine:
            out[i, 0] = v
    elif way == "unpacked":
        (out[i, 0],) = mine
    elif way == "enumerate":
        for k, v in enumerate(mine):
            out[i, k] = v
    elif way == "item":
        out[i, 0] = mine.item()
    elif way == "flat":
        out[i, 0] = s.flat[31 - i]
    elif way == "ravel":
        out[i, 0] = s.ravel()[31 - i]
    elif way == "hint":
        out[i, 0] = cuda.ldcg(s, (31 - i, 0))
    elif way == "math":
        out[i, 0] = np.sqrt(mine[0] * mine[0])


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_an_element_is_seen(way: str) -> None:
    first = reads.fn.__code__.co_firstlineno
    fires(simt.UninitialisedRead, "shared array 's'", kernel=reads, args=(np.zeros((32, 1)), way, False))
    report = fires(simt.DataRace, "shared array 's'", kernel=reads, args=(np.zeros((32, 1)), way, True))
    places = {report.line, int(report.other.rpartition(":")[2])}
    assert first + 5 in places, "the write, s[i, 0] = i"
    assert max(places) > first + 6
    assert "emu" not in report.other


@cuda.jit
def writes(out, way):
    i = cuda.threadIdx.x
    if way == "flat":
        out.flat[0] = i
    elif way == "hint":
        cuda.stcg(out, (0, 0), i)
    elif way == "fill":
        out.fill(i)
    elif way == "slice":
        out[0, :] = i
    elif way == "row":
        out[0][0] = i


@pytest.mark.parametrize("way", ["flat", "hint", "fill", "slice", "row"])
def test_every_way_to_write_an_element_is_seen(way: str) -> None:
    fires(simt.DataRace, "write of out", "and a write by", kernel=writes, args=(np.zeros((2, 1)), way))


@pytest.mark.parametrize("check", [False, True])
def test_what_they_do(check: bool) -> None:
    @cuda.jit
    def kernel(x, out):
        s = cuda.shared.array((2, 3), float32)
        s.fill(1.5)
        s.flat[4] = 2
        cuda.stwt(x, 0, 300)
        cuda.stcs(x, (1,), cuda.ldcv(x, 0) + 1)
        out[0], out[1], out[2] = s[1, 1], s.T[0, 1], s[1:, 2].item()
        for v in s[1]:
            out[3] += v

    x, out = np.zeros(2, np.uint8), np.zeros(4)
    launch(kernel, 1, 1, x, out, check=check)
    assert (x.tolist(), out.tolist()) == ([44, 45], [2, 1.5, 1.5, 5])


def test_views_are_told_from_their_array() -> None:
    @cuda.jit
    def kernel(x, way):
        if way == "row":
            x[1][5] = 0
        elif way == "part":
            x[1:, 2:][1:][1, 0] = 0
        elif way == "wide":
            x.view(np.float64)[0, 2] = 0

    x = np.zeros((3, 4), np.float32)
    for way, text in (("row", "index [5] of x[...], shape (4,)"), ("part", "index [1, 0] of x[...], shape (1, 2)"),
                      ("wide", "index [0, 2] of x[...], shape (3, 2)")):  # fmt: skip
        fires(simt.OutOfBounds, text, kernel=kernel, block=1, args=(x, way))


@pytest.mark.parametrize("collective", ["shuffle", "vote", "match", "syncwarp"])
def test_of_the_collectives_only_syncwarp_orders_memory(collective: str) -> None:
    """CUDA C++ guide, warp shuffle and vote functions: they do not imply a memory barrier."""

    @cuda.jit
    def kernel(x, collective):
        s = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        s[i] = x[i]
        if collective == "shuffle":
            cuda.shfl_xor_sync(FULL, i, 1)
        elif collective == "vote":
            cuda.ballot_sync(FULL, i > 3)
        elif collective == "match":
            cuda.match_any_sync(FULL, i)
        else:
            cuda.syncwarp()
        x[i] = s[i ^ 1]

    args: tuple[Any, ...] = (np.arange(32.0), collective)
    if collective == "syncwarp":
        launch(kernel, 1, 32, *args, check=True)
    else:
        fires(simt.DataRace, "shared array 's'", kernel=kernel, args=args)


def test_one_long_block_does_not_remember_every_read(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    @cuda.jit
    def kernel(x, out):
        for _ in range(50):
            out[cuda.threadIdx.x] = x[cuda.threadIdx.x]
            cuda.syncthreads()
            note(x)

    def note(x: Any) -> None:
        nonlocal longest
        longest = max(longest, len(x.region.log or ()))

    monkeypatch.setattr(shadow, "LONGEST_LOG", 200)
    launch(kernel, 1, 8, np.zeros(8), np.zeros(8), check=True)
    assert 0 < longest <= 200 + 2 * 5 * 8
