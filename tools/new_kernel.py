"""``samebits new-kernel NAME``: writes the four files of a new kernel. They hang together and fail honestly until they are filled in."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from tools.cases import ROOT

PYREF = '''"""{stem}: TODO one sentence: what it computes."""

from __future__ import annotations

from pyref.spec import Call, Kernel, Tensor, reference

SPEC = Kernel(
    stem="{stem}",
    does="TODO the same sentence.",
    args={{
        "out": Tensor("n | d", "T", "result", role="out"),
        "x": Tensor("n | d", "T", "input"),
    }},
    dtypes={{"T": ("f32", "f16", "bf16")}},
    constants={{"SB_T": "T"}},
)


@reference(SPEC)
def run(call: Call) -> None:
    """out[n,d] = TODO, with every rounding named by pyref.contract."""
    raise NotImplementedError("{stem}: the definition is not written")
'''
EMU = '''"""{stem}: the numba port. TODO the same sentence."""

from __future__ import annotations

from pyref.spec import Call


def launch(call: Call) -> None:
    """Runs the port over the call's arrays, with the geometry of the CUDA source."""
    raise NotImplementedError("{stem}: the numba port is not written")
'''
CUDA = """// {stem}: TODO the same sentence.
#include <cuda_runtime.h>
#include <stdint.h>

#include "contract.cuh"
#include "dtypes.cuh"

using T = SB_T;

struct {struct} {{
  T* out;  // [n, d]
  int64_t out_stride[1];
  const T* x;  // [n, d]
  int64_t x_stride[1];
  int64_t n, d;
}};

extern "C" int {stem}(const {struct}* p, void* stream) {{
  return cudaErrorNotSupported;  // TODO launch a kernel on `stream`; the first error is returned
}}
"""
TEST = '''"""{stem}: cases and properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness import each
from tools.arena import place, sentinel
from tools.cases import Case
from tools.data import Stream

CASES = [Case("f32-small", "TODO why this case exists", {{"T": "f32"}}, {{"n": 3, "d": 5}}, seed=1)]


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of a case."""
    x = Stream(case.seed).normal((case.shape["n"], case.shape["d"]), case.dtypes["T"])
    return {{"out": sentinel(x.shape, x.dtype), "x": place(x)}}


@each(CASES)
def test_same_bytes_on_every_leg(case: Case, check_case: Callable[[str, Case], None]) -> None:
    check_case("{stem}", case)
'''


def write(stem: str, root: Path = ROOT) -> list[Path]:
    """Writes the four files under ``root`` and returns them. Raises ValueError for a bad name or a file that exists, and writes none."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", stem) or keyword.iskeyword(stem):
        raise ValueError(f"{stem!r} is no kernel name: use lower-case words joined by underscores, no keyword of Python")
    struct = "".join(part.capitalize() for part in stem.split("_")) + "Params"
    files = {
        root / "pyref" / f"{stem}.py": PYREF,
        root / "emu" / f"{stem}.py": EMU,
        root / "kernels_cu" / f"{stem}.cu": CUDA,
        root / "tests" / f"test_{stem}.py": TEST,
    }
    for path in files:
        if path.exists():
            raise ValueError(f"{path.relative_to(root)} exists already")
    for path, text in files.items():
        path.write_text(text.format(stem=stem, struct=struct))
    return list(files)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("name", help="the kernel's name (its stem), such as rms_norm")


def run(args: argparse.Namespace) -> int:
    """The command."""
    for path in write(args.name):
        print(path.relative_to(ROOT))
    return 0
