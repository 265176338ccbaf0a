"""Builds a .cu file into a shared library that runs on the CPU: preprocess, translate, compile, link to the emulator's runtime."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from emu.host import implicit, passes, refused
from emu.host.compiler import BuildError, find_compiler, flags, link, need_compiler, run, version
from emu.host.tokens import Region, regions, tokenize
from emu.host.translate import ASM, TranslationError, translate

__all__ = ["BuildError", "TranslationError", "build", "build_text", "find_compiler", "fingerprint", "flags"]
__all__ += ["need_compiler", "runtime_library", "to_cpp"]

_HERE = Path(__file__).resolve().parent
INCLUDE_DIR = _HERE / "include"
_BYTES = ("utf-8", "surrogateescape")  # sources in other encodings reach the compiler byte for byte
RUNTIME_DIR = _HERE / "runtime"


def build(
    source: Path,
    *,
    out: Path,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[Path] = (),
    footer: str = "",
    compiler: str | None = None,
    extra: Sequence[str] = (),
    arch: str = "sm_90",
    check: bool = False,
    program: bool = False,
) -> None:
    """Builds the shared library `out` from the CUDA source `source`; with `program`, an executable of a source that has a main().

    With `check` every access of the product is shown to the runtime, which reports faults once samebits_set_check() has been called.

    `defines` become -D options, `footer` is text after the source (static_asserts), `extra` further compiler flags, `arch` the value of
    __CUDA_ARCH__. The product may be moved; the runtime that all products share stays in runtime_folder() and is also looked for beside the
    product. Files appear at once or not at all, so that builds may run side by side. Raises BuildError with the compiler's text,
    TranslationError for a construct that is not modelled.
    """
    compiler = need_compiler(compiler)
    out.parent.mkdir(parents=True, exist_ok=True)
    text = to_cpp(source, defines=defines, include_dirs=include_dirs, footer=footer, compiler=compiler, extra=extra, arch=arch, check=check)
    build_text(text, out=out, compiler=compiler, extra=extra, check=check, program=program)


def build_text(
    text: str,
    *,
    out: Path,
    compiler: str,
    extra: Sequence[str] = (),
    check: bool = False,
    program: bool = False,
) -> None:
    """Compiles and links what to_cpp() gave, as build() does. Raises BuildError, TranslationError."""
    runtime = runtime_library(compiler)
    # A source that launches nothing needs none of the runtime's functions, and its library offers them all the same.
    options = ["-Wl,--no-as-needed", f"-Wl,-rpath,$ORIGIN:{runtime.parent}"]
    if sys.platform == "darwin":
        options = [f"-Wl,-rpath,@loader_path,-rpath,{runtime.parent}"]
    else:
        options += ["-Wl,-z,defs", *([] if program else [f"-Wl,--version-script={RUNTIME_DIR / 'exports.map'}"])]
    if check:
        copies = () if "clang" in version(compiler) else ("memcpy", "memmove", "memset")  # clang++ calls the hooks of these by itself
        heap = ("malloc", "free", "_Znwm", "_Znam", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm")
        options += [f"-Wl,--wrap={name}" for name in (*copies, *heap)]
    compile_it = [compiler, *flags(compiler, check), *extra, "-x", "c++-cpp-output", "-"]
    try:
        if not check:
            link([*compile_it, "-x", "none", *options, str(runtime)], out, text.encode(*_BYTES), program)
            return
        # In two steps: linked with that flag, a sanitizer's own library would come.
        with tempfile.TemporaryDirectory(prefix="samebits-") as scratch:
            item = str(Path(scratch) / "checked.o")
            run([*compile_it, "-c", "-o", item], text.encode(*_BYTES))
            link([compiler, *extra, item, *options, str(runtime)], out, program=program)
    except BuildError as error:
        raise refused.unknown(str(error)) or error from None


def to_cpp(
    source: Path,
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[Path] = (),
    footer: str = "",
    compiler: str | None = None,
    extra: Sequence[str] = (),
    arch: str = "sm_90",
    check: bool = False,
) -> str:
    """The preprocessed and translated text that build() compiles."""
    compiler = need_compiler(compiler)
    name = str(source).replace("\\", "\\\\").replace('"', '\\"')
    text = f'# 1 "{name}"\n{source.read_text("utf-8-sig", _BYTES[1])}\n'
    if footer:
        text += f'# 1 "{name} (footer)"\n{footer}\n'
    options = [f"-D{key}={value}" for key, value in (defines or {}).items()]
    options += ["-D__CUDACC__", "-D__NVCC__", "-D__SAMEBITS__"]
    options += [f"-D__CUDACC_VER_{part}__={number}" for part, number in (("MAJOR", 13), ("MINOR", 0), ("BUILD", 88))]
    options += [f"-I{INCLUDE_DIR}", f"-iquote{source.parent}", *(f"-I{directory}" for directory in include_dirs)]
    command = [compiler, *flags(compiler, check), *extra, *options, "-include", "samebits.h", "-E", "-x", "c++", "-"]
    on_device = [f"-D__CUDA_ARCH__={_arch_number(arch)}"]
    try:
        result = run([*command, *on_device], text.encode(*_BYTES)).decode(*_BYTES)
        two = _asks_for_arch(text, regions(result, str(source)))
        host = run(command, text.encode(*_BYTES)).decode(*_BYTES) if two else ""
    except BuildError as error:
        raise refused.library(str(error), str(INCLUDE_DIR)) or error from None
    refused.check_headers(regions(result, str(source)), str(INCLUDE_DIR))
    more = ["-DSAMEBITS_FULL_MATH"] if any(_needs_c_headers(part, str(source)) for part in (result, host)) else []
    more += ["-DSAMEBITS_PTX"] if _has_asm(result, str(source)) else []
    if more:
        result = run([*command, *on_device, *more], text.encode(*_BYTES)).decode(*_BYTES)
    if two:
        result = passes.merge(result, host, str(source), _verbatim)
    # To the compiler the text is what came from its input, not from the file that the markers name: debuggers and reports would show that.
    return translate(result.replace('"<stdin>"', f'"{name}"'), str(source), _verbatim)


def _arch_number(arch: str) -> int:
    named = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if named is None:
        raise ValueError(f"arch is {arch!r}, not sm_ and a number such as sm_90")
    return int(named[1]) * 10


def _verbatim(region: Region) -> bool:
    """Headers of the compiler, of the emulator, and what stands in no file."""
    return region.system or region.file.startswith((str(INCLUDE_DIR), "<"))


def _asks_for_arch(text: str, parts: Sequence[Region]) -> bool:
    """Whether the source, or a header of its own, does one thing on the device and another on the host."""
    headers = {Path(region.file) for region in parts if not _verbatim(region)}
    return "__CUDA_ARCH__" in text or any("__CUDA_ARCH__" in path.read_text(errors="replace") for path in headers if path.is_file())


def _needs_c_headers(text: str, path: str) -> bool:
    parts = regions(text, path)
    if any(region.file.endswith("/cmath") for region in parts):
        return True  # they are paid for already, and CUDA has the float overloads outside of std too
    own = (region for region in parts if not _verbatim(region) and implicit.may_use(text, region.start, region.end))
    return bool(implicit.used([token for region in own for token in tokenize(text, region)]))


def _has_asm(text: str, path: str) -> bool:
    """Whether a text has inline assembly: include/samebits/ptx.h is read only for it."""
    parts = (region for region in regions(text, path) if not _verbatim(region) and "asm" in text[region.start : region.end])
    return any(token.text in ASM for region in parts for token in tokenize(text, region))


def fingerprint(compiler: str | None = None) -> str:
    """Digest of everything here that a product depends on: compiler, flags, CPU, headers, translator, runtime and its place."""
    compiler = need_compiler(compiler)
    parts = [compiler, version(compiler), *flags(compiler), os.uname().machine, str(runtime_folder())]
    return _digest(*parts, python=True)


def runtime_folder() -> Path:
    """Where the emulator's runtime is kept: in $SAMEBITS_CACHE, else in .cache of the project."""
    return (Path(os.environ.get("SAMEBITS_CACHE") or _HERE.parents[1] / ".cache") / "runtime").resolve()


def runtime_library(compiler: str | None = None) -> Path:
    """The emulator's runtime as a shared library in runtime_folder(), built if it is not there; who wants it meanwhile waits."""
    compiler = need_compiler(compiler)
    digest = _digest(compiler, version(compiler), *flags(compiler), python=False)
    library = runtime_folder() / f"libsamebits-{digest[:16]}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    named = f"-Wl,-install_name,@rpath/{library.name}" if sys.platform == "darwin" else f"-Wl,-Bsymbolic,-soname,{library.name}"
    # A distribution's hardening takes switches of stacks and jumps between them for attacks.
    plain = ["-U_FORTIFY_SOURCE", *(["-fcf-protection=none"] if os.uname().machine == "x86_64" else [])]
    command = [compiler, *flags(compiler), *plain, f"-I{INCLUDE_DIR}", "-x", "c++", str(RUNTIME_DIR / "runtime.cpp"), "-x", "none"]
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            link([*command, "-pthread", "-ldl", named], library)
    return library


@functools.cache
def _digest(*parts: str, python: bool) -> str:
    """Digest of texts, of the emulator's headers and runtime, and of its Python if wanted; read once a process."""
    digest = hashlib.sha256(json.dumps(parts).encode())
    for path in sorted([*INCLUDE_DIR.rglob("*"), *RUNTIME_DIR.iterdir(), *(_HERE.glob("*.py") if python else ())]):
        if path.is_file():
            digest.update(path.relative_to(_HERE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
