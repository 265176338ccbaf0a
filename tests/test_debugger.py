"""gdb stops at a line of the user's file and reads the thread's indices and variables."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.run import debugger, program

_SOURCE = """#include <cuda_runtime.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0;
  x[i] = 2 * v;  // here
  x[i] += 1;
}
int main() {
  float* x;
  cudaMallocManaged(&x, 96 * sizeof(float));
  for (int i = 0; i < 96; ++i) x[i] = i;
  twice<<<3, 32>>>(x, 96);
  return cudaDeviceSynchronize();
}
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_breakpoint_in_a_kernel(tmp_path: Path) -> None:
    source = tmp_path / "twice.cu"
    source.write_text(_SOURCE)
    line = next(number for number, text in enumerate(_SOURCE.splitlines(), 1) if "// here" in text)
    commands = ["set disable-randomization off", f"break twice.cu:{line} if blockIdx.x == 2 && threadIdx.x == 7", "run"]
    commands += ["print threadIdx", "print blockIdx.x", "print blockDim.x * gridDim.x", "print v", "print i", "next", "print x[i]", "kill"]
    found = subprocess.run(
        debugger(program(source, check=False, debug=True), commands=["set confirm off", *commands, "quit"]),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "Operation not permitted" in found.stderr:
        pytest.skip("processes may not be traced here")
    printed = [text.split(" = ", 1)[1] for text in found.stdout.splitlines() if text.startswith("$")]
    assert printed == ["{x = 7, y = 0, z = 0}", "2", "96", "71", "71", "142"], found.stdout + found.stderr
    assert f"twice.cu:{line}" in found.stdout
