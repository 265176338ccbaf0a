"""cp.async and __pipeline_*: bytes are there after the wait for their group, and poison before it, whatever stood there."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from emu.host import build as host
from emu.host import checks
from tests.host_programs import FORWARD, LAUNCH_FAILURE, PROGRAMS, SHUFFLE, at, load, reset, set_order, text

FORMS = {"pipeline": 0, "ca": 1, "cg": 2, "ignore": 3}
SIZES = [("pipeline", 4), ("pipeline", 8), ("pipeline", 16), ("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16), ("ignore", 8)]
GROUPS, THREADS = 4, 64


def _copied(library: ctypes.CDLL, form: str, size: int, left: int, valid: int) -> tuple[np.ndarray, np.ndarray]:
    """Input and output [GROUPS, THREADS, size] where all groups but `left` were waited for (none if it is -1)."""
    x = np.random.default_rng(size).integers(10, 250, (GROUPS, THREADS, size), dtype=np.uint8)
    out = np.zeros_like(x)
    assert library.run_groups(FORMS[form], size, left, at(x), at(out), valid) == 0, text(library)
    return x, out


@pytest.mark.parametrize(("form", "size"), SIZES)
@pytest.mark.parametrize("left", [-1, 0, 1, 3])
@pytest.mark.parametrize("order", [FORWARD, SHUFFLE])
def test_bytes_come_with_the_wait_for_their_group(form: str, size: int, left: int, order: int) -> None:
    library = load("async")
    set_order(library, order, 3)
    x, out = _copied(library, form, size, left, size)
    reset(library)
    landed = 0 if left < 0 else GROUPS - left
    assert (out[:landed] == x[:landed]).all()
    assert (out[landed:] == 0xFF).all()


@pytest.mark.parametrize(("form", "size"), SIZES)
def test_bytes_beyond_the_source_are_zero(form: str, size: int) -> None:
    for valid in (0, size // 2, size - 1) if form != "ignore" else (0,):
        x, out = _copied(load("async"), form, size, 0, valid)
        assert (out[:, :, :valid] == x[:, :, :valid]).all()
        assert (out[:, :, valid:] == 0).all()


@pytest.mark.parametrize(("form", "size", "said"), [("ca", 12, "12 bytes, not 4, 8 or 16"), ("cg", 8, "by .cg of 8 bytes, not 16")])
def test_sizes_that_hardware_has_not(form: str, size: int, said: str) -> None:
    library = load("async")
    x = np.zeros(GROUPS * THREADS * size + 16, np.uint8)
    assert library.run_groups(FORMS[form], size, 0, at(x), at(x.copy()), size) == LAUNCH_FAILURE
    assert said in text(library)
    assert library.run_groups(FORMS["ca"], 8, 0, at(x), at(x.copy()), 9) == LAUNCH_FAILURE
    assert "9 bytes to 8" in text(library)
    library.samebits_clear_error()


def test_the_checks_see_every_form(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each form is clean with all its waits, reported with one too few, and reads no more of the source than it says."""
    out_path = tmp_path_factory.mktemp("async") / "async.so"
    host.build(PROGRAMS / "async.cu", out=out_path, check=True)
    library = ctypes.CDLL(str(out_path))
    for form, size in SIZES:
        x, out = np.ones(GROUPS * THREADS * size, np.uint8), np.zeros(GROUPS * THREADS * size, np.uint8)
        kinds = []
        for left, valid, present in ((0, size, x.nbytes), (1, size, x.nbytes), (0, size, x.nbytes - 1), (0, 0, 1)):
            memory = {"x": checks.Memory(x.ctypes.data, present), "out": checks.Memory(out.ctypes.data, out.nbytes)}
            with checks.watching(library, memory) as found:
                assert library.run_groups(FORMS[form], size, left, at(x), at(out), valid) == 0
            kinds.append({report["kind"] for report in found})
        assert kinds == [set(), {"async copy"}, {"out of bounds"}, set()], (form, size)
