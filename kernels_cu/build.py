"""Builds one specialisation of one kernel into one cached library, for the host emulator or for a GPU.

A library is built on first use and kept under a key of everything that can change its bytes: the source with all that it includes, the
constants, the flags and the compiler. The cache lies in ``.cache/builds`` of the project, or in ``$SAMEBITS_CACHE``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyref.spec import Kernel

SOURCES = Path(__file__).resolve().parent
#: nvcc's flags, each with its reason.
NVCC_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fmad=false",  # C2: no contraction but where fma is named
    "-ftz=false",  # C1: subnormals are kept
    "-prec-div=true",  # C5
    "-prec-sqrt=true",  # C5
)

#: Flags for the emulator beside its own: with -O2 builds take half as long again, and our kernels run as fast as with -O1. Vectors of 16
#: bytes are one access, as on a GPU, so that one at a wrong address fails.
HOST_FLAGS = ("-O1", "-ftree-slp-vectorize")
#: An include directive that names a file of the project's own.
QUOTED = r'^\s*#\s*include\s*"([^"]+)"'


class BuildError(RuntimeError):
    """A compiler refused a source; the text holds its messages."""


def stems() -> list[str]:
    """Every kernel of the project, in alphabetical order: a source in this folder each, .cpp where it runs on the CPU."""
    return sorted(path.stem for kind in ("*.cu", "*.cpp") for path in SOURCES.glob(kind))


def source(stem: str) -> Path:
    """The source of a kernel."""
    cuda = SOURCES / f"{stem}.cu"
    return cuda if cuda.exists() else cuda.with_suffix(".cpp")


@functools.cache
def _read(path: Path, changed: int) -> tuple[str, list[Path]]:
    """A file's text and the files that it includes with quotes; ``changed`` is its time of change."""
    text = path.read_text()
    return text, [(path.parent / name).resolve() for name in re.findall(QUOTED, text, re.M)]


def texts(path: Path) -> dict[Path, str]:
    """A source and, transitively, every file of this folder that it includes with quotes, each with its text."""
    found: dict[Path, str] = {}
    waiting = [path]
    for file in waiting:
        found[file], included = _read(file, file.stat().st_mtime_ns)
        waiting += [other for other in dict.fromkeys(included) if other not in waiting]
    return found


def sources(path: Path) -> list[Path]:
    """The files of ``texts``."""
    return list(texts(path))


_WORDS = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/", re.DOTALL)  # literals and comments


def code(text: str) -> str:
    """A C++ text without comments and empty lines, which decide no result."""
    bare = _WORDS.sub(lambda found: found[0] if found[0][0] in "\"'" else "", text)
    return "\n".join(line for line in map(str.rstrip, bare.splitlines()) if line)


def sources_digest(stem: str) -> str:
    """sha256 of a kernel's code and nvcc's flags: what a recording of its results depends on."""
    total = hashlib.sha256(" ".join(NVCC_FLAGS).encode())
    for file, text in sorted(texts(source(stem)).items(), key=lambda found: found[0].name):
        total.update(file.name.encode() + b"\0" + code(text).encode())
    return total.hexdigest()


def cache_folder() -> Path:
    """Where libraries are kept."""
    return Path(os.environ.get("SAMEBITS_CACHE") or SOURCES.parent / ".cache") / "builds"


def wheel_nvccs() -> list[str]:
    """Every nvcc that came in pip wheels: with the ``[cuda]`` extra, or into ``.cache/toolkit`` (``make compile-check`` puts it there)."""
    folders = [Path(sysconfig.get_paths()["purelib"]), SOURCES.parent / ".cache" / "toolkit"]
    return [str(path) for folder in folders for path in sorted((folder / "nvidia").glob("*/bin/nvcc")) if os.access(path, os.X_OK)]


@functools.cache
def find_nvcc() -> str | None:
    """nvcc of the machine ($NVCC, the path, $CUDA_HOME) or of the pip wheels; None where there is none."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    places = [os.environ.get("NVCC"), shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in homes)]
    places += wheel_nvccs()
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


@functools.cache
def nvcc_version(nvcc: str) -> str:
    """The release that ``nvcc --version`` prints, such as "13.0.88"."""
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    if not found:
        raise BuildError(f"{nvcc} --version names no release: {text!r}")
    return found[1]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def place(key_parts: list[str], name: str) -> Path:
    """Where the cache keeps the file ``name`` under the key of ``key_parts``, whether it is there or not."""
    key = hashlib.sha256("\0".join(key_parts).encode(errors="surrogateescape")).hexdigest()[:24]
    return cache_folder() / f"{key}-{name}"


def cached(key_parts: list[str], name: str, make: Callable[[Path], None]) -> Path:
    """The file ``name`` under the key of ``key_parts``, made by ``make(path)`` where it is absent.

    Processes that want the same file wait for the first; an interrupted build leaves nothing under the final name.
    """
    final = place(key_parts, name)
    if final.exists():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.with_name(final.name.partition("-")[0] + ".lock")):
        if not final.exists():
            with tempfile.TemporaryDirectory(dir=final.parent) as scratch:
                make(Path(scratch) / name)
                os.replace(Path(scratch) / name, final)
    return final


def wrapper(kernel: Kernel) -> str:
    """A translation unit: the kernel's source, then the proof that its parameter struct is the one SPEC declares."""
    return f'#include "{source(kernel.stem)}"\n{kernel.layout_asserts()}'


def _texts(kernel: Kernel, constants: Mapping[str, str]) -> list[str]:
    files = [file.name + "\0" + text for file, text in texts(source(kernel.stem)).items()]
    return [kernel.stem, *files, kernel.layout_asserts(), *(f"{name}={value}" for name, value in sorted(constants.items()))]


def host_library(kernel: Kernel, constants: Mapping[str, str], *, check: bool = False) -> Path:
    """The kernel built by g++ or clang++ for the emulator, with ``check`` so that it sees every access. Raises BuildError with the
    compiler's text."""
    from emu.host import build as host

    compiler = host.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler: neither $CXX nor g++ nor clang++ was found")

    def make(out: Path) -> None:
        options = {"defines": dict(constants), "include_dirs": [SOURCES], "footer": kernel.layout_asserts(), "extra": HOST_FLAGS}
        try:
            host.build(source(kernel.stem), out=out, check=check, **options)
        except (host.BuildError, host.TranslationError) as error:
            raise BuildError(str(error)) from error

    return cached([host.fingerprint(), f"check={check}", *HOST_FLAGS, *_texts(kernel, constants)], f"{kernel.stem}.so", make)


def nvcc_command(nvcc: str, constants: Mapping[str, str], *arguments: str) -> list[str]:
    """nvcc with the project's flags and a specialisation's constants."""
    return [nvcc, *NVCC_FLAGS, f"-I{SOURCES}", *(f"-D{name}={value}" for name, value in sorted(constants.items())), *arguments]


def run_nvcc(command: list[str]) -> str:
    """Runs an nvcc command and returns what it printed. Raises BuildError with that text where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def gpu_library(kernel: Kernel, constants: Mapping[str, str], arch: str) -> Path:
    """The kernel built by nvcc for one architecture ("sm_90"). Raises BuildError with nvcc's text."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise BuildError("no nvcc: neither $NVCC, the path, $CUDA_HOME nor the pip wheels have it")

    def make(out: Path) -> None:
        unit = out.with_suffix(".cu")
        unit.write_text(wrapper(kernel))
        run_nvcc(nvcc_command(nvcc, constants, f"-arch={arch}", "-shared", "-Xcompiler=-fPIC", "-o", str(out), str(unit)))

    return cached([nvcc_version(nvcc), arch, *NVCC_FLAGS, *_texts(kernel, constants)], f"{kernel.stem}.so", make)


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """The library, loaded once a process."""
    return ctypes.CDLL(str(path))
