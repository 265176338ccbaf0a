"""The host emulator: what it reports instead of hanging, crashing or guessing."""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emu.host import build as host
from emu.host.translate import TranslationError, translate
from kernels_cu import build
from tests.host_programs import (
    ASSERT,
    FORWARD,
    ILLEGAL_ADDRESS,
    INVALID_CONFIGURATION,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    MISALIGNED,
    PROGRAMS,
    SHUFFLE,
    at,
    compilers,
    load,
    reset,
    set_order,
    text,
)


@pytest.fixture(autouse=True)
def _as_loaded() -> Iterator[None]:
    yield
    reset(load("orders"))


# -- failures

DEADLOCK = [
    "kernel missing_lane",
    "deadlock",
    "warp 0 lanes 0-4,6-31 wait at __shfl*_sync() (",
    "faults.cu:17) with mask 0xffffffff for lanes 5",
    "warp 0 lanes 5 wait at __syncthreads() (",
    "faults.cu:18)",
    "warp 1 lanes 0-31 wait at __syncthreads()",
]
FAILURES = {
    0: (LAUNCH_FAILURE, ["kernel divergent", "block (0, 0, 0)", "divergent barrier", "faults.cu:9", "faults.cu:11"]),
    1: (LAUNCH_FAILURE, DEADLOCK),
    2: (LAUNCH_FAILURE, ["deadlock", "__ballot_sync()", "__any_sync()"]),
    3: (LAUNCH_FAILURE, ["mask 0xfffffffe does not name the calling lane 0"]),
    4: (LAUNCH_FAILURE, ["width 12"]),
    5: (ILLEGAL_ADDRESS, ["thread (33, 0, 0)", "address 0x0"]),
    7: (ILLEGAL_ADDRESS, ["kernel recursion", "stack of", "exhausted"]),
    9: (LAUNCH_FAILURE, ["no reason"]),
    10: (ASSERT, ["faults.cu:", "out[0] == 12345"]),
    11: (LAUNCH_FAILURE, ["launch from device code", "nested more than 24 deep"]),
    13: (LAUNCH_FAILURE, ["deadlock", "warp 1 lanes 0-31 wait at an mbarrier (", "lacks 1 of 2 arrivals"]),
    14: (LAUNCH_FAILURE, ["deadlock", "warp 0 lanes 0-31 wait at a numbered barrier (", "number 3, to which 32 of 64 threads have come"]),
    12: (INVALID_CONFIGURATION, ["kernel fine", "was called without <<<...>>>"]),
}
if platform.machine() in ("x86_64", "AMD64"):  # an arm64 CPU does both without a word
    FAILURES[6] = (MISALIGNED, ["kernel misaligned", "misaligned vector access"])
    FAILURES[8] = (LAUNCH_FAILURE, ["thread (3, 0, 0)", "integer division by zero"])


@pytest.mark.parametrize("which", FAILURES)
@pytest.mark.parametrize("order", [FORWARD, SHUFFLE])
def test_failures_are_reported_and_survived(which: int, order: int) -> None:
    library = load("faults")
    set_order(library, order, which)
    memory = np.zeros(64 * 4 + 4, np.int32)
    out = memory[(-memory.ctypes.data // 4) % 4 :]  # aligned to 16
    code, words = FAILURES[which]
    assert library.fail(which, at(out)) == code, text(library)
    if order == FORWARD or which != 0:  # in another order another block or thread comes first
        assert [word for word in words if word not in text(library)] == [], text(library)
    assert "faults.cu:" in text(library)
    assert library.fail(99, at(out)) == 0  # the next launch is a good one
    assert out[:64].tolist() == list(range(64))


# Kind, value, code, as in limits.cu: grid x, y, z, block x, z, __launch_bounds__. Recorded on an H200 with toolkit 13.0.
LIMITS = [
    (0, 0, INVALID_VALUE), (0, 70000, 0), (0, 2**31, INVALID_VALUE),
    (1, 0, INVALID_VALUE), (1, 65535, 0), (1, 65536, INVALID_VALUE),
    (2, 65535, 0), (2, 65536, INVALID_VALUE),
    (3, 0, INVALID_VALUE), (3, 1024, 0), (3, 1025, INVALID_VALUE),
    (4, 64, 0), (4, 65, INVALID_VALUE),
    (5, 128, 0), (5, 129, INVALID_VALUE),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "code"), LIMITS)
def test_launch_limits(kind: int, value: int, code: int) -> None:
    library = load("limits")
    out = np.zeros(1, np.int32)
    assert library.limits(kind, ctypes.c_longlong(value), at(out)) == code, text(library)
    assert (text(library) == "") == (code == 0)
    assert out[0] == (code == 0)


@pytest.mark.parametrize(("arch", "most"), [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_90", 227), ("sm_100", 227), ("sm_120", 99)])
def test_shared_memory_beyond_48_kib_needs_an_opt_in(arch: str, most: int) -> None:
    calls = [(6, 48, 0), (6, 48, 1), (7, most, 1), (7, most, 0), (6, most, 0), (6, most, 1)]
    calls += [(8, 44, 0), (8, 44, 1), (9, most - 4, 1), (9, most - 4, 0), (8, most - 4, 0)]  # with 4 KiB of static shared memory
    script = f"""
import ctypes
library = ctypes.CDLL({load("limits")._name!r})
library.samebits_set_arch({arch!r}.encode())
out = ctypes.c_int()
for kind, kib, more in {calls}:
    library.samebits_clear_error()
    print(library.limits(kind, ctypes.c_longlong(kib * 1024 + more), ctypes.byref(out)), end=" ")
"""  # in a process of its own: an opt-in stays with the kernel
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "1", "0", "0", "1", "0", "1", "1", "0", "0"]  # an H200 printed this for sm_90


def test_a_refused_call_stays_the_last_error_until_it_is_read() -> None:
    library = load("limits")
    out = np.zeros(1, np.int32)
    assert library.limits(7, ctypes.c_longlong(2**20), at(out)) == INVALID_VALUE
    assert library.limits(0, ctypes.c_longlong(1), at(out)) == INVALID_VALUE  # of the call before: as on a GPU
    assert library.limits(0, ctypes.c_longlong(1), at(out)) == 0


def test_unknown_architecture() -> None:
    library = load("limits")
    assert library.samebits_set_arch(b"sm_42") == INVALID_VALUE
    assert "sm_42" in text(library)
    assert "sm_90" in text(library)


# -- what is refused

REFUSED = [
    ('__device__ int f() {\n  int r;\n  asm volatile("wgmma.fence.sync.aligned;" : "=r"(r));\n  return r;\n}', 3, "inline asm"),
    ('void f() {\n  asm("{.reg .pred p;\\n"\n    "tcgen05.ld.sync.aligned.16x64b.x1.b32 {%0}, [%1]; }" :: "r"(1));\n}', 2, "inline asm"),
    ('void f() {\n  asm("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" :: "l"(0));\n}', 2, "inline asm"),
    ('void f() {\n  asm("bar.red.popc.u32 %0, 1, 64, p;" : "=r"(x));\n}', 2, "inline asm"),
    ("\n__global__ void k(cudaTextureObject_t t) {}", 2, "cudaTextureObject_t"),
    ("int i;\ntexture<float, 2> t;", 2, "texture"),
    ("__device__ float f() {\n  return tex2D<float>(0, 1, 2);\n}", 2, "tex2D"),
    ("\n\n__global__ void k(const __grid_constant__ CUtensorMap map) {}", 3, "CUtensorMap"),
    ("void f() {\n\n  k<<<1, 2>>>;\n}", 3, "<<<"),
    ("void f() {\n  k<<<1, 2(x);\n}", 2, "<<<"),
    ("void f() {\n  (1 + 2) * <<<1, 1>>>(x);\n}", 2, "<<<"),
    ("void f() {\n  a > b>> <<<1, 1>>>(x);\n}", 2, "<<<"),
    ("__global__ void k() {\n  __shared__ int x = 3;\n}", 2, "initialised __shared__"),
    ("__global__ void k() {\n  __shared__ int a[2], x{3};\n}", 2, "initialised __shared__"),
    ("__global__ void k() {\n  __shared__ int a[2]\n}", 2, "__shared__"),
    ("__global__ void k() {\n  int a[3;\n}\n", 2, "unbalanced ["),
    ("int x;\n}\n", 2, "unbalanced }"),
    ("#define L(k) k<<<1, 1>>>()\n", 1, "#define"),
    ("int x;\n__global__ void __block_size__((128, 1, 1), (2, 1, 1)) k() {}", 2, "__block_size__"),
]


@pytest.mark.parametrize(("source", "line", "words"), REFUSED)
def test_what_is_not_modelled_is_an_error_with_its_line(source: str, line: int, words: str) -> None:
    with pytest.raises(TranslationError) as caught:
        translate(source, "kernel.cu")
    assert (caught.value.file, caught.value.line) == ("kernel.cu", line), caught.value
    assert words in caught.value.construct


@pytest.mark.parametrize("header", ["cub/cub.cuh", "thrust/device_vector.h", "cublas_v2.h", "cuda/std/mdspan", "nvrtc.h"])
@pytest.mark.parametrize("there", ["missing", "empty", "refuses"])
def test_libraries_are_refused_by_name(tmp_path: Path, header: str, there: str) -> None:
    folder = tmp_path / "cccl"
    if there != "missing":
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / "nv").mkdir()
        (folder / "nv/target").write_text("#error no such compiler\n" if there == "refuses" else "int x;\n")
        (folder / header).write_text("#pragma once\n#include <nv/target>\n")
    (tmp_path / "k.cu").write_text(f"#include <cuda_runtime.h>\n\n#include <{header}>\nint main() {{}}\n")
    with pytest.raises(TranslationError) as caught:
        host.to_cpp(tmp_path / "k.cu", include_dirs=[folder])
    assert (Path(caught.value.file).name, caught.value.line, caught.value.construct) == ("k.cu", 3, f"#include <{header}>")


UNKNOWN = [
    ("#include <cuda.h>\nint main() {\n  cuInit(0);\n}", 3, "cuInit", "driver API"),
    ("CUcontext context;", 1, "CUcontext", "driver API"),
    ("int main() {\n  cudaGraphNode_t n;\n  cudaGraphAddKernelNode(&n, 0, 0, 0, 0);\n}", 3, "cudaGraphAddKernelNode", "not modelled"),
    ("void f() { ::cudaMemPrefetchBatchAsync(0); }", 1, "cudaMemPrefetchBatchAsync", "not modelled"),
    ("__global__ void k(int* p) {\n  *p = __shfl_down(*p, 1);\n}", 2, "__shfl_down", "__shfl_down_sync"),
    ("template <class T>\n__device__ bool f(T x) {\n  return __any(3);\n}", 3, "__any", "__any_sync"),
    ("__device__ int f() {\n  return __nv_some_intrinsic(1);\n}", 2, "__nv_some_intrinsic", "not modelled"),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(("source", "line", "name", "words"), UNKNOWN)
def test_what_cuda_has_and_the_emulator_has_not_is_named(
    tmp_path: Path, source: str, line: int, name: str, words: str, compiler: str
) -> None:
    (tmp_path / "k.cu").write_text(source + "\n")
    with pytest.raises(TranslationError) as caught:
        host.build(tmp_path / "k.cu", out=tmp_path / "k.so", compiler=compiler)
    assert (caught.value.construct, caught.value.line, Path(caught.value.file).name) == (name, line, "k.cu")
    assert words in caught.value.detail


def test_what_looks_like_a_construct_and_is_none_stays() -> None:
    source = """// k<<<1, 1>>>(x); asm("")
struct P { float tex2D, texture; }; bool less(P p) { float texture = p.tex2D; return texture < 1; }
/* __shared__ int x; */ const char* a = "k<<<1, 1>>>(x)"; char b = '\\''; auto c = R"x(__global__ asm(")x";
int d = 1 << 2 >> 1, e = a < b > c, asmx = 3; bool operator<<<int>(int);
"""
    assert translate(source, "k.cu") == f'# 1 "k.cu"\n{source}'


def test_lines_of_macros_and_includes_are_the_users(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "device.cuh").write_text('#pragma once\n\n__device__ void f() {\n  asm("exit;");\n}\n')
    (tmp_path / "k.cu").write_text('#include "parts/device.cuh"\n__global__ void k() { f(); }\n')
    with pytest.raises(TranslationError) as caught:
        host.build(tmp_path / "k.cu", out=tmp_path / "k.so")
    assert caught.value.file.endswith("parts/device.cuh")
    assert caught.value.line == 4
    assert not (tmp_path / "k.so").exists()


WRONG = """#define RUN(k, ...) \\
  k<<<1,\\
  1>>>(__VA_ARGS__)
__global__ void k(int* p) {
  __shared__ int a[4],
    b[4];
  a[0] = b[0] = *p;
  undeclared = 1;  // line 8
}
void f(int* p) {
  RUN(k, p);
  k<<<1,
      1>>>(
      p);
  unknown();  // line 15
}
"""


@pytest.mark.parametrize("compiler", compilers(), ids=lambda path: Path(path).name)
def test_compile_errors_point_to_the_users_line(tmp_path: Path, compiler: str) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text(WRONG)
    with pytest.raises(host.BuildError) as caught:
        host.build(source, out=tmp_path / "wrong.so", compiler=compiler)
    assert "wrong.cu:8:" in str(caught.value), caught.value
    assert "wrong.cu:15:" in str(caught.value), caught.value
    source.write_text("\n#include <no_such_header.h>\n")
    with pytest.raises(host.BuildError, match=r"wrong\.cu:2:.*\n?.*no_such_header"):
        host.build(source, out=tmp_path / "wrong.so", compiler=compiler)


# -- the build


def test_footer_defines_and_include_dirs(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "answer.cuh").write_text("#define ANSWER (BASE + 2)\n")
    source = tmp_path / "a.cu"
    source.write_text('#include "answer.cuh"\nextern "C" int answer() { return ANSWER; }\n')
    build = functools.partial(host.build, source, defines={"BASE": "40"}, include_dirs=[tmp_path / "inc"])
    build(out=tmp_path / "a.so", footer='static_assert(ANSWER == 42, "footer");')
    assert ctypes.CDLL(str(tmp_path / "a.so")).answer() == 42
    with pytest.raises(host.BuildError, match="not that"):
        build(out=tmp_path / "b.so", footer='static_assert(ANSWER == 43, "not that");')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cu", "a.so", "inc"]
    with pytest.raises(ValueError, match="'90'"):
        build(out=tmp_path / "b.so", arch="90")


def test_compiler_is_found_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    prints = {host.fingerprint(compiler) for compiler in compilers()}
    assert len(prints) == len(compilers())
    assert host.fingerprint() in prints
    for compiler in compilers():
        assert "-ffp-contract=off" in host.flags(compiler)
        assert not [flag for flag in host.flags(compiler) if "fast" in flag]
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path))
    assert host.fingerprint() not in prints  # products hold the place of the runtime
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert host.find_compiler() is None
    with pytest.raises(host.BuildError, match="no-such-compiler"):
        host.build(PROGRAMS / "arithmetic.cu", out=tmp_path / "x.so")


def test_without_assembly(tmp_path: Path) -> None:
    """The switch by ucontext, for machines without one of ours: the same results."""
    compiler = host.find_compiler()
    assert compiler is not None
    usual = host.runtime_library(compiler)
    command = [compiler, "-std=c++17", "-O0", "-fPIC", "-shared", "-pthread", "-DSAMEBITS_UCONTEXT", f"-I{host.INCLUDE_DIR}"]

    def make(out: Path) -> None:
        subprocess.run([*command, str(host.RUNTIME_DIR / "runtime.cpp"), f"-Wl,-soname,{usual.name}", "-o", str(out)], check=True)

    slow = shutil.copy(build.cached([host.fingerprint(), *command], "runtime.so", make), tmp_path / usual.name)
    script = f"""
import ctypes, sys
ctypes.CDLL(sys.argv[1])  # before the program, which then finds a library of that name loaded
library = ctypes.CDLL({load("warp")._name!r})
out = (ctypes.c_int * 100)()
print({{line.split()[-1] for line in open("/proc/self/maps") if {usual.name!r} in line}} == {{sys.argv[1]}})
print(library.barriers_with_votes(out), set(out), library.half_warps(out), list(out[:32]))
"""
    printed = [
        subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True).stdout
        for path in (usual, slow)
    ]
    assert printed[0] == printed[1]
    assert printed[0].startswith("True\n0 {554} 0 ")
