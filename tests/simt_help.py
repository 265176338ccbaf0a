"""What the tests of the numba scheduler share: launches with options, and checks that must fire and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda

from emu import simt

simt.install()
FULL = 0xFFFFFFFF


@cuda.jit
def fill(out):  # noqa: ANN001, ANN201
    out[cuda.threadIdx.x] = cuda.threadIdx.x


def launch(kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any) -> None:
    """Runs a kernel under the scheduler with options of `simt.running`."""
    with simt.running(**options):
        kernel[grid, block, 0, shared](*args)


def fires(
    kind: type[simt.SimtError], *texts: str, kernel: Any, grid: Any = 1, block: Any = 32, args: tuple[Any, ...] = (), **options: Any
) -> simt.Report:
    """The launch raises this kind, and its text names the kernel and all `texts`."""
    options = {"check": True, **options}
    with pytest.raises(kind) as caught:
        launch(kernel, grid, block, *args, **options)
    for text in (kernel.fn.__name__, *texts):
        assert text in str(caught.value), f"{text!r} is missing in: {caught.value}"
    assert caught.value.report.kind == kind.kind
    assert Path(caught.value.report.file).name.startswith("test_simt")
    assert caught.value.report.line > 0
    launch(fill, 1, 32, np.zeros(32, np.int32))  # the next launch works
    return caught.value.report
