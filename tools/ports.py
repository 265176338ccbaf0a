"""The texts of the ports: what their bytes depend on, and which of them have a kernel."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def _imported(text: str) -> list[Path]:
    """The files of ``emu`` and ``pyref`` that a text imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    own = sorted(name.replace(".", "/") for name in names if name.partition(".")[0] in ("emu", "pyref"))
    return [path for name in own for path in (ROOT / f"{name}.py", ROOT / name / "__init__.py") if path.exists()]


@functools.cache
def code(text: str) -> str:
    """A Python text without comments, docstrings and empty lines, which decide no result; the same on every version of Python."""
    lines = [line.rstrip() for line in text.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno
            if isinstance(node, ast.Module) or first > node.lineno:
                lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line for line in lines if line)


@functools.cache
def texts(stem: str) -> dict[str, str]:
    """A port and, transitively, every file of ``emu`` and ``pyref`` that it imports, but not the scheduler behind ``emu.simt``, which a GPU
    does without: path from the root -> text."""
    found: dict[str, str] = {}
    waiting = [ROOT / "emu" / f"{stem}.py"]
    for path in waiting:
        found[str(path.relative_to(ROOT))] = text = path.read_text()
        if path.parent.name != "simt":
            waiting += [other for other in _imported(text) if other not in waiting]
    return found


def has_kernel(stem: str) -> bool:
    """Whether a port, or what it imports, defines a kernel (that of compare_key has none)."""
    return any("@cuda.jit" in text for path, text in texts(stem).items() if Path(path).parent == Path("emu"))


@functools.cache
def digest(stem: str, simulated: bool) -> str:
    """sha256 of what a port's results depend on: its code, and on the simulator the scheduler and what it is built on."""
    found = {name: code(text) for name, text in texts(stem).items()}
    if simulated:
        found |= {str(path.relative_to(ROOT)): code(path.read_text()) for path in (ROOT / "emu" / "simt").glob("*.py")}
        found |= {name: importlib.metadata.version(name) for name in ("numba", "numpy", "greenlet")}
    return hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in sorted(found.items())).encode()).hexdigest()
