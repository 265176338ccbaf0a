"""paged_attention_v1 and _v2 with every access of the CUDA source watched: bounds, bytes nobody wrote, races, barriers."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import pytest

from kernels_cu import build
from tests.paged_cases import CASES
from tools import cases
from tools.arena import GUARD, Region
from tools.cases import Case

IDS = ("exact-max-seq-len", "f16-page1-length-600", "f32-page256-length-770", "bf16-d112-page8")
CHOSEN = [case for case in CASES if case.id in IDS]
ORDERS = 3  # forward, reverse, shuffled


@functools.cache
def library(stem: str, constants: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    """The kernel's check build."""
    from emu.host import build as host

    kernel, source = cases.kernel(stem), build.source(stem)
    texts = [file.read_text() for file in build.sources(source)]

    def make(out: Path) -> None:
        options = {"include_dirs": [build.SOURCES], "footer": kernel.layout_asserts(), "runtime_dir": build.cache_folder()}
        host.build(source, out=out, defines=dict(constants), check=True, **options)

    key = ["checked", host.fingerprint(), *texts, str(constants), kernel.layout_asserts()]
    return build.load(build.cached(key, f"{stem}.checked.so", make))


@pytest.mark.parametrize("stem", ["paged_attention_v1", "paged_attention_v2"])
@pytest.mark.parametrize("case", CHOSEN, ids=[case.id for case in CHOSEN])
@pytest.mark.parametrize("order", range(ORDERS))
def test_no_access_is_at_fault(stem: str, case: Case, order: int) -> None:
    from emu.host import build as host
    from emu.host import checks

    if host.find_compiler() is None:
        pytest.skip("no C++ compiler (g++ or clang++)")
    kernel, arguments = cases.kernel(stem), cases.inputs(stem, case)
    checked = library(stem, tuple(sorted(kernel.constants_of(case.dtypes, case.shape).items())))
    checked.samebits_set_order(order, ctypes.c_uint64(1))
    call = kernel.bind(cases.views(arguments), checked=True)
    params = call.params(lambda array: array.ctypes.data)
    memory = {
        name: checks.Memory(region.buffer.ctypes.data + GUARD, region.buffer.size - 2 * GUARD)
        for name, region in arguments.items()
        if isinstance(region, Region)
    }
    with checks.watching(checked, memory) as reports:
        code = getattr(checked, stem)(ctypes.byref(params), None)
    assert code == 0
    assert not reports, "\n".join(checks.describe(report) for report in reports)
