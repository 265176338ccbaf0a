"""Several specialisations of a kernel in one run of nvcc: CUDA's headers, most of the work for a small kernel, are read once for all."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernels_cu import build
from pyref.spec import Kernel
from tools import toolkit
from tools.toolkit import Inspection


def unit(kernel: Kernel, found: Sequence[Mapping[str, str]]) -> str:
    """A translation unit of specialisations, each in a namespace of its own: s0, s1 and so on."""
    source = build.source(kernel.stem)
    headers = {line for text in build.texts(source).values() for line in re.findall(r"^\s*#\s*include\s*<.+>", text, re.M)}
    parts = sorted(headers)
    for number, constants in enumerate(found):
        macros = {**constants, kernel.stem: f"{kernel.stem}_{number}"}  # a C function is the same one in all namespaces
        parts += [f"#define {name} {value}" for name, value in macros.items()]
        parts += [f"namespace s{number} {{", _flat(source, set()), kernel.layout_asserts(), "}"]
        parts += [f"#undef {name}" for name in macros]
    return "\n".join(parts) + "\n"


def _flat(file: Path, seen: set[Path]) -> str:
    """A file's text, with the files that it includes with quotes in their places, each once, and without other headers."""
    seen.add(file)
    lines = [f'#line 1 "{file}"']
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if included := re.match(build.QUOTED, line):
            other = (file.parent / included[1]).resolve()
            lines += [*([] if other in seen else [_flat(other, seen)]), f'#line {number + 1} "{file}"']
        else:
            lines.append("" if re.match(r"\s*#\s*(pragma\s+once|include\s*<)", line) else line)
    return "\n".join(lines)


def _number(entry: str) -> int | None:
    """Of the namespace around a mangled function; None where there is none."""
    named = re.match(r"_ZN(\d)s", entry)
    return int(entry[named.end() :][: int(named[1]) - 1]) if named else None


def inspect(
    nvcc: str, kernel: Kernel, found: Sequence[Mapping[str, str]], arches: Sequence[str], compare: bool
) -> list[Inspection | build.BuildError]:
    """`toolkit.inspect` of every specialisation, or why it does not compile.

    Where the unit of all of them shows anything wrong each is built alone, from the source as it stands: that tells which, and where.
    """
    if len(found) > 1:
        try:
            every = _inspect(nvcc, kernel.stem, unit(kernel, found), {}, arches, compare)
            numbers = [_number(entry.entry) for entry in every.entries]
            if not every.findings and None not in numbers:
                own = [[entry for entry, of in zip(every.entries, numbers, strict=True) if of == number] for number in range(len(found))]
                return [Inspection(every.seconds / len(found), entries, [], every.warnings) for entries in own]
        except build.BuildError:
            pass
    alone: list[Inspection | build.BuildError] = []
    for constants in found:
        try:
            alone.append(_inspect(nvcc, kernel.stem, build.wrapper(kernel), constants, arches, compare))
        except build.BuildError as error:
            alone.append(error)
    return alone


def _inspect(nvcc: str, stem: str, text: str, constants: Mapping[str, str], arches: Sequence[str], compare: bool) -> Inspection:
    with tempfile.TemporaryDirectory(prefix="samebits-") as folder:
        file = Path(folder) / f"{stem}.cu"
        file.write_text(text)
        return toolkit.inspect(nvcc, file, constants, arches, Path(folder), compare)
