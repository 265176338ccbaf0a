"""Tests as linters: every kernel has its four texts, imports point one way, files can be read in a sitting."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools import cases

ROOT = cases.ROOT
PYTHON = [path for folder in ("pyref", "emu", "kernels_cu", "tools", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
SUFFIXES = (".cu", ".cuh", ".h", ".cpp", ".cc")
CPLUSPLUS = [path for folder in ("kernels_cu", "emu") for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
TEXTS = PYTHON + CPLUSPLUS
WITH_ALIBI = [path for path in TEXTS if path.parts[-2] in ("kernels_cu", "emu") and "alibi_slopes[" in path.read_text()]


def rank(path: Path) -> int:
    """The layer of a file: a file may import from its own layer and those below."""
    folder, stem = path.relative_to(ROOT).parts[0], path.stem
    if folder == "pyref":
        return 0 if stem.startswith("contract") or stem == "__init__" else 1 if stem == "spec" else 2
    return {"emu": 3, "kernels_cu": 3, "tools": 4, "tests": 5}[folder]


def imported(path: Path) -> set[Path]:
    """Files of this project that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    files = [ROOT / (name.replace(".", "/") + ".py") for name in names]
    return {file for file in files if file.exists()}


def test_there_are_kernels() -> None:
    assert cases.stems(), "no sources were found: every test below would pass on nothing"


@pytest.mark.parametrize("stem", cases.stems())
def test_a_kernel_has_four_texts_and_one_name(stem: str) -> None:
    for folder, suffix in (("pyref", ".py"), ("emu", ".py"), ("kernels_cu", ".cpp" if cases.kernel(stem).cpu else ".cu")):
        assert (ROOT / folder / f"{stem}{suffix}").exists(), f"{stem} has no {folder}/{stem}{suffix}"
    assert (ROOT / "tests" / f"test_{stem}.py").exists()
    assert cases.kernel(stem).stem == stem
    assert cases.cases(stem), f"{stem} has no cases"
    assert all(case.why for case in cases.cases(stem)), "every case says why it exists"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    wrong = [str(file.relative_to(ROOT)) for file in imported(path) if rank(file) > rank(path)]
    assert not wrong, f"{path.relative_to(ROOT)} imports from a layer above it: {wrong}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_can_be_read_in_a_sitting(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= 400, f"{path.relative_to(ROOT)} has {lines} lines; aim at 300"


@pytest.mark.parametrize("path", [path for path in PYTHON if path.parts[-2] in ("pyref",)], ids=lambda path: path.name)
def test_the_definition_needs_numpy_alone(path: Path) -> None:
    outside = {"numba", "torch", "greenlet", "rich", "ctypes.util", "tools", "emu", "tests"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not outside & {name.split(".")[0] for name in names}, f"{path.name} imports {names}"


@pytest.mark.parametrize("path", WITH_ALIBI, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_alibi_distance_is_rounded_once(path: Path) -> None:
    """A difference of integers, then binary32. Beyond 2^24 a difference of rounded numbers is another one: paged_attention_v2 has a case,
    but in paged_decode 2^24 tokens would have to take part."""
    text = path.read_text()
    assert re.search(r"(static_cast<float>|np\.float32)\(\w+ - ", text), f"{path.name}: no float of a difference"
    assert not re.search(r"(static_cast<float>|np\.float32)\([^()]*\) - ", text), f"{path.name}: a difference of floats"


def test_faults_are_put_in_after_all_other_tests(request: pytest.FixtureRequest) -> None:
    """Where a source was edited, -x then stops at a case of its kernel and not at a fault that no longer fits."""
    of_faults = [item.get_closest_marker("faults") is not None for item in request.session.items]
    assert of_faults == sorted(of_faults)
