"""The C++ compiler of the host leg: which one, with which flags."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

OLDEST = {"g++": 11, "clang++": 12}


_SANITIZE = "-fsanitize=thread,alignment,signed-integer-overflow,bounds"
_GCC_CHECK = [
    "-g1",  # lines of reports
    _SANITIZE,
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-tree-sra",  # a float4 stays one access of 16 bytes
    "-fno-tree-vectorize",  # and neighbours stay several
    "-fno-store-merging",
    "-fno-tree-loop-distribute-patterns",
    "-fno-optimize-sibling-calls",  # free() at the end of a kernel has a place
    "-DSAMEBITS_CHECK",
]
_CLANG_CHECK = [
    "-g1",
    _SANITIZE,
    *(part for option in ("-tsan-distinguish-volatile", "-tsan-instrument-func-entry-exit=0") for part in ("-mllvm", option)),
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fno-optimize-sibling-calls",  # free() at the end of a kernel has a place
    "-DSAMEBITS_CHECK",
]


class BuildError(RuntimeError):
    """A compiler refused the source or is missing; the text is what the compiler said, at the lines of the user's file."""


def find_compiler() -> str | None:
    """Path of $CXX, else of the first of g++ and clang++ (or one of their numbered names) that is new enough; None without any."""
    named = os.environ.get("CXX")
    if named:
        return shutil.which(named)
    names = ["g++", "clang++"]
    names += [f"g++-{number}" for number in range(16, OLDEST["g++"] - 1, -1)]
    names += [f"clang++-{number}" for number in range(22, OLDEST["clang++"] - 1, -1)]
    return next((path for path in map(shutil.which, names) if path is not None and _new_enough(path)), None)


def need_compiler(compiler: str | None) -> str:
    """`compiler` itself, else the one that find_compiler() finds. Raises BuildError without any."""
    found = compiler if compiler is not None else find_compiler()
    if found is not None:
        return found
    named = os.environ.get("CXX")
    if named:
        raise BuildError(f"no C++ compiler: CXX names {named!r}, which is not to be found")
    raise BuildError(f"no C++ compiler: g++ (at least {OLDEST['g++']}) or clang++ (at least {OLDEST['clang++']}) is needed")


def _new_enough(compiler: str) -> bool:
    try:
        macros = _macros(compiler)
    except (BuildError, OSError):
        return False
    if "__clang_major__" in macros:
        return int(macros["__clang_major__"]) >= OLDEST["clang++"]
    return int(macros.get("__GNUC__", "0")) >= OLDEST["g++"]


@functools.cache
def _macros(compiler: str) -> dict[str, str]:
    """What the compiler predefines when it may use all that this machine's CPU has."""
    probe = [compiler, "-dM", "-E", "-x", "c++", "-"]
    native = subprocess.run([*probe, "-march=native"], input=b"", capture_output=True, check=False)
    text = native.stdout if native.returncode == 0 else run(probe)
    return dict(match.groups() for match in re.finditer(r"^#define (\w+) (.*)$", text.decode(), re.MULTILINE))


@functools.cache
def version(compiler: str) -> str:
    """What the compiler says of itself."""
    return run([compiler, "--version"]).decode(errors="replace").strip()


@functools.cache
def flags(compiler: str, check: bool = False) -> tuple[str, ...]:
    """Flags that every build has; none of them lets a compiler change a result.

    With -mfma and -mf16c, taken where the CPU has them, an fma is one instruction instead of a call that computes the same bits.
    With `check`, every access calls the runtime (runtime/hooks.cpp) and keeps the size that the source gave it.
    """
    macros = _macros(compiler)
    chosen = [
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-ffp-contract=off",  # C2
        "-fno-math-errno",  # sqrtf is one instruction; no result depends on it
        "-fno-strict-aliasing",  # CUDA sources read float arrays through float4
        "-fwrapv",  # as GPUs do
        "-fno-finite-loops",  # a loop that never ends must not be taken out
        "-fno-semantic-interposition",
        "-fno-plt",
    ]
    if "__clang__" not in macros:
        chosen.append("-fno-gnu-unique")  # static variables of templates must not be shared between libraries
    chosen += [flag for flag, macro in (("-mfma", "__FMA__"), ("-mf16c", "__F16C__")) if macro in macros]
    if check:
        chosen.remove("-fwrapv")  # with it no overflow is seen
        chosen += _CLANG_CHECK if "__clang__" in macros else _GCC_CHECK
    return tuple(chosen)


def run(command: Sequence[str], text: bytes = b"") -> bytes:
    """Runs a compiler with `text` as its input and returns its output. Raises BuildError with what it said."""
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise BuildError(f"{Path(command[0]).name} failed:\n" + "\n".join(line[:300] for line in said.splitlines()[:80]))
    return done.stdout


def link(command: Sequence[str], out: Path, text: bytes = b"", program: bool = False) -> None:
    """Runs a compiler that writes a shared library or a program, which appears under its name when it is whole."""
    handle, partial = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    os.close(handle)
    try:
        run([*command, *([] if program else ["-shared"]), "-o", partial], text)
        os.chmod(partial, 0o755)
        os.replace(partial, out)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
