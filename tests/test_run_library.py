"""Libraries under watch: kernels that ctypes calls, with the memory that they may touch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from emu.host import build as host
from emu.host import checks
from tests.host_programs import PROGRAMS, SHUFFLE, at, compilers, set_order, text

N, ROUNDS = 128, 4


@functools.cache
def _library(compiler: str, folder: str) -> ctypes.CDLL:
    out = Path(folder) / f"orders-{Path(compiler).name}.so"
    host.build(PROGRAMS / "orders.cu", out=out, compiler=compiler, check=True)
    library = ctypes.CDLL(str(out))
    library.samebits_last_error.restype = ctypes.c_char_p
    return library


def _memory(**arrays: np.ndarray) -> Mapping[str, checks.Memory]:
    return {name: checks.Memory(array.ctypes.data, array.nbytes) for name, array in arrays.items()}


@pytest.mark.parametrize("compiler", compilers(), ids=lambda path: Path(path).name)
def test_watched_library(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    library = _library(compiler, str(tmp_path_factory.getbasetemp()))
    data = np.random.default_rng(1).standard_normal(3 * ROUNDS * N).astype(np.float32)
    out = np.zeros((3, N), np.float32)
    unwatched = np.zeros((3, N), np.float32)
    assert library.block_sums(1, 3, ROUNDS, at(data), at(unwatched)) == 0, text(library)
    with checks.watching(library, _memory(data=data, out=out)) as found:
        assert library.block_sums(1, 3, ROUNDS, at(data), at(out)) == 0, text(library)
    assert found == []
    assert out.tobytes() == unwatched.tobytes()  # watching changes no byte

    with checks.watching(library, _memory(data=data, out=out)) as found:  # without its barrier
        assert library.block_sums(0, 3, ROUNDS, at(data), at(out)) == 0, text(library)
    assert {report["kind"] for report in found} >= {"shared race"}, found
    assert all(str(report["file"]).endswith("orders.cu") for report in found), found
    assert "orders.cu:" in checks.describe(found[0])

    short = {**_memory(data=data), "out": checks.Memory(out.ctypes.data, out.nbytes - 4)}
    out[2, N - 1] = 7
    with checks.watching(library, short) as found:
        assert library.block_sums(1, 3, ROUNDS, at(data), at(out)) == 700  # cudaErrorIllegalAddress
    assert out[2, N - 1] == 7  # behind it could lie anything of the process
    assert "4 bytes behind the end of out" in text(library)
    assert [(report["kind"], report["block"], report["thread"]) for report in found] == [("out of bounds", [2, 0, 0], [127, 0, 0])]
    assert "4 bytes behind the end of out" in str(found[0]["message"])

    fresh = {**_memory(out=out), "data": checks.Memory(data.ctypes.data, data.nbytes, initialised=False)}
    with checks.watching(library, fresh) as found:
        assert library.block_sums(1, 3, ROUNDS, at(data), at(out)) == 0, text(library)
    assert [report["kind"] for report in found] == ["uninitialised read"]


def test_blocks_that_hand_over_by_fences_are_clean_in_every_order(tmp_path_factory: pytest.TempPathFactory) -> None:
    compiler = host.find_compiler()
    assert compiler is not None
    library = _library(compiler, str(tmp_path_factory.getbasetemp()))
    data = np.arange(40 * 64, dtype=np.uint32)
    for seed in range(4):
        partial, out = np.zeros(40, np.uint32), np.zeros(1, np.uint32)
        set_order(library, SHUFFLE if seed else 0, seed)
        with checks.watching(library, {"memory": checks.Memory(0, 0), **_memory(data=data, partial=partial, out=out)}) as found:
            code = library.grid_sum(40, at(data), at(partial), at(out))
        set_order(library, 0)
        assert code == 0, text(library)
        assert found == []
        assert out[0] == data.sum(dtype=np.uint32)


def test_memory_that_overlaps_is_watched_as_one() -> None:
    apart = checks._apart
    parts = apart({"k": checks.Memory(0, 100), "v": checks.Memory(50, 100), "q": checks.Memory(200, 8), "none": checks.Memory(300, 0)})
    assert parts == {"k, v": checks.Memory(0, 150), "q": checks.Memory(200, 8)}
