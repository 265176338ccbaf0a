"""BUGS: stream ignored. Read in the sources: whatever a kernel's entry point starts, it starts on the caller's stream."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernels_cu import build

SOURCES = sorted(path for kind in ("*.cu", "*.cuh") for path in Path(build.SOURCES).glob(kind))
#: Calls of the runtime that take a stream, and the place of it among their arguments.
ASYNC = {"cudaMemcpyAsync": 4, "cudaMemsetAsync": 3, "cudaStreamSynchronize": 0, "cudaMallocAsync": 2, "cudaFreeAsync": 1}


def arguments(text: str) -> list[str]:
    """The arguments in a text that stands between an opening and its closing bracket, split at commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [argument.strip() for argument in found]


def inside(text: str, start: int) -> str:
    """What stands between the bracket at ``start`` and its partner."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if not depth:
            return text[start + 1 : end]
    raise AssertionError(f"no closing bracket after {text[start : start + 60]!r}")


def streams(text: str) -> list[tuple[int, str, str]]:
    """(line, call, the argument that is its stream, "" where there is none) of every launch and every asynchronous call."""
    code = re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), text)
    found = []
    for launch in re.finditer(r"([\w:<>]+)\s*<<<(.*?)>>>\s*\(", code, re.S):
        given = arguments(launch[2])
        found.append((launch.start(), launch[1], given[3] if len(given) > 3 else ""))
    for call in re.finditer(rf"\b({'|'.join(ASYNC)})\(", code):
        given = arguments(inside(code, call.end() - 1))
        found.append((call.start(), call[1], given[ASYNC[call[1]]] if len(given) > ASYNC[call[1]] else ""))
    return [(code.count("\n", 0, start) + 1, call, stream) for start, call, stream in found]


def is_callers(stream: str, text: str) -> bool:
    """Whether the argument is ``stream``, or a name that the source gives to it."""
    named = re.search(rf"\b{re.escape(stream)}\s*=\s*([^;]+);", text) if re.fullmatch(r"\w+", stream) and stream != "stream" else None
    return bool(re.search(r"\bstream\b", named[1] if named else stream))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_everything_starts_on_the_callers_stream(path: Path) -> None:
    text = path.read_text()
    wrong = [(line, call, stream or "no stream") for line, call, stream in streams(text) if not is_callers(stream, text)]
    assert not wrong, f"{path.name}: expected the caller's stream, got (line, call, stream): {wrong}"


def test_there_are_launches() -> None:
    assert sum(len(streams(path.read_text())) for path in SOURCES) >= 5


@pytest.mark.parametrize(
    "text",
    [
        "k<<<grid, 32>>>(p);",
        "k<<<grid, 32, 0>>>(p);",
        "k<<<grid, dim3(32, 1), 0, 0>>>(stream);",
        "k<4><<<grid, 32, bytes, cudaStreamPerThread>>>(p);",
        "cudaMemcpyAsync(to, from, f(a, b), cudaMemcpyDefault);",
        "cudaMemcpyAsync(to, from, 4, cudaMemcpyDefault, other);",
        "cudaStreamSynchronize(0);",
    ],
)
def test_the_reader_finds_what_is_wrong(text: str) -> None:
    assert [is_callers(stream, text) for _, _, stream in streams(text)] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "k<<<grid, 32, 0, static_cast<cudaStream_t>(stream)>>>(p);",
        "k<4, T><<<dim3(a, b), 32,\n 0, (cudaStream_t)stream>>>(p, q);",
        "const cudaStream_t on = static_cast<cudaStream_t>(stream); cudaMemcpyAsync(to, from, f(a, b), cudaMemcpyDefault, on);",
    ],
)
def test_the_reader_accepts_what_is_right(text: str) -> None:
    assert [is_callers(stream, text) for _, _, stream in streams(text)] == [True]
