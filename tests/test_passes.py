"""__CUDA_ARCH__: host code of a program is built without it, device code with it, though the emulator compiles once."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.host import build as host
from tests.host_programs import PROGRAMS, compilers
from tools.__main__ import main


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("check", [False, True])
def test_each_side_takes_its_own_path(
    compiler: str, check: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert main(["run", str(PROGRAMS / "passes.cu"), *(["--check"] if check else [])]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "main: host",
        "main: host 600 101 1 3",  # 100 * host_alone(5), 1 + 100, on_host(), relaxed(1)
        "constant: 4",
        "kernel: device 10 1 0 2",
        "lambda: device",
    ]


def _refused(tmp_path: Path, text: str) -> host.TranslationError:
    (tmp_path / "k.cu").write_text(text)
    with pytest.raises(host.TranslationError) as caught:
        host.to_cpp(tmp_path / "k.cu")
    return caught.value


BOTH = "{}#ifdef __CUDA_ARCH__\n{}#else\n{}#endif\n{}"


def test_two_declarations_at_one_place_are_refused(tmp_path: Path) -> None:
    found = _refused(tmp_path, BOTH.format("int x;\n", "const int width = 32;\n", "const int width = 1;\n", "int y;\n"))
    assert (found.construct, found.line, Path(found.file).name) == ("__CUDA_ARCH__", 3, "k.cu")
    found = _refused(tmp_path, BOTH.format("struct S {\n", "  int a;\n", "  float b;\n", "};\n"))
    assert (found.construct, found.line) == ("__CUDA_ARCH__", 3)


def test_device_code_in_a_statement_of_its_own_is_refused(tmp_path: Path) -> None:
    lambdas = "  f([] __device__() { return 1; });\n", "  g([] __device__() { return 2; });\n"
    found = _refused(tmp_path, BOTH.format("int main() {\n", *lambdas, "}\n"))
    assert (found.construct, found.line) == ("__CUDA_ARCH__", 5)


@pytest.mark.parametrize("qualifiers", ["", "__host__ __device__ ", "__device__ "])
def test_lines_behind_a_difference_are_the_users(tmp_path: Path, qualifiers: str) -> None:
    body = BOTH.format(f"{qualifiers}int f(int x) {{\n", "  x += 1;\n  x *= 2;\n", "  x += 2;\n", "  return x;\n}\n")
    found = _refused(tmp_path, f'{body}__device__ void g() {{\n  asm("wgmma.fence;");\n}}\n')
    assert (found.construct.startswith("inline asm"), found.line) == (True, 11)


def test_the_same_function_may_be_written_for_each_side(tmp_path: Path) -> None:
    functions = "__device__ inline int f() { return 1; }\n", "inline int f() { return 2; }\n"
    (tmp_path / "k.cu").write_text(BOTH.format("", *functions, "int main() {\n  return f() - 2;\n}\n"))
    assert main(["run", str(tmp_path / "k.cu")]) == 0
