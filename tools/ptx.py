"""Reads what nvcc writes: PTX, for instructions whose rounding the contract does not name, and ptxas's account of every kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FLOATS = r"(?:f32|f32x2|f16|f16x2|bf16|bf16x2|tf32|e4m3x2|e5m2x2|e4m3x4|e5m2x4)"
#: (opcodes, clause, why they are forbidden): the first that matches an opcode names it.
RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), clause, why)
    for pattern, clause, why in (
        (r"\.f64(?:x2)?\b", "C1", "float64"),
        (r"\.approx\b|\.full\b", "C4, C5", "an approximation"),
        (r"^(?:ex2|lg2|sin|cos|tanh|rsqrt)\.", "C4", "an approximation"),
        (r"\.ftz\b", "C1", "flushes subnormals to zero"),
        (r"^(?:wgmma|wmma|mma|tcgen05)\b", "C1", "a tensor core's sum is not rounded operation by operation"),
        (rf"^(?:atom|red|redux|multimem)\b.*\.(?:add|min|max)\b.*\.{_FLOATS}\b", "C8", "an order of operations that no text fixes"),
        (rf"^(?:min|max)\b.*\.{_FLOATS}\b", "C6", "no stated rule for NaN and signed zeros"),
        (rf"\.(?:sat|relu)\b.*\.{_FLOATS}\b", "C1", "clamps, and makes zero of NaN"),
        (r"^(?:add|sub|mul|fma|mad|div)\b.*\.(?:f16|bf16)(?:x2)?$", "C1", "arithmetic in 16 bits"),
        (r"^(?:add|sub|mul|fma|mad|div|rcp|sqrt)\b.*\.(?:rz|rm|rp|rna|rs)\b", "C1", "not rounded to nearest even"),
        (rf"^cvt\.(?:rz|rm|rp|rna|rs)\b(?:\.satfinite)?\.{_FLOATS}\b", "C11", "a conversion that is not rounded to nearest even"),
        (r"^(?:add|sub|mul|fma|mad|div|rcp|sqrt)\b(?!.*\.rn\b).*\.f32(?:x2)?$", "C2", "no .rn: ptxas may fuse it with its neighbour"),
    )
)


@dataclass(frozen=True)
class Instruction:
    """One instruction: line of the PTX (from 1), ``entry`` the mangled function around it, ``source`` "file:line" where .loc is there."""

    line: int
    entry: str
    opcode: str
    text: str
    source: str | None


@dataclass(frozen=True)
class Finding:
    """Something that must not be: ``place`` is the source line where it is known, else the function; ``rule`` the clause and the reason."""

    place: str
    rule: str
    detail: str


def instructions(ptx: str) -> Iterator[Instruction]:
    """The instructions of a PTX text, those of inline assembly included; directives and labels are read for places alone."""
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), ptx, flags=re.S))
    files = {number: path.rpartition("/")[2] for number, path in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)}
    entry, source, line, position = "", None, 1, 0
    for piece in re.finditer(r"[^;{}]+", text):
        rest = piece[0]
        function = re.search(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$.]+)", rest)
        if function:
            entry, source = function[1], None
            continue
        start = piece.start()
        while prefix := re.match(r"\s+|[\w$]+:(?!:)|\.loc[^\n]*|\.file[^\n]*|@!?%?\w+", rest):
            if prefix[0].startswith(".loc"):
                source = _place(prefix[0], files)
            rest, start = rest[prefix.end() :], start + prefix.end()
        opcode = re.match(r"[a-z]\w*(?:(?:\.|::)\w+)*", rest)
        if opcode:
            line, position = line + text.count("\n", position, start), start
            yield Instruction(line, entry, opcode[0], " ".join(rest.split()), source)


def _place(loc: str, files: dict[str, str]) -> str:
    """ ".loc 2 30 5, function_name .., inlined_at 1 7 2" as "contract.cuh:30, inlined at kernel.cu:7"."""
    places = [f"{files.get(file, file)}:{line}" for file, line in re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", loc)]
    return ", inlined at ".join(places)


def audit(ptx: str) -> list[Finding]:
    """Every instruction of a PTX text that the contract forbids.

    Run it on the text of ``-fmad=true``: with ``=false`` nvcc itself writes ``.rn`` after operators that nothing protects (C2).
    """
    found = []
    for instruction in instructions(ptx):
        rule = next((f"{clause}: {why}" for opcodes, clause, why in RULES if opcodes.search(instruction.opcode)), None)
        if rule and not _is_compare(instruction):
            found.append(_finding(instruction, rule, f"`{instruction.text}`"))
    return found


def _is_compare(instruction: Instruction) -> bool:
    """C6: whether this is ``x > c ? x : c`` (or ``<``) of a number c that is not zero, of which compilers make max and min: a NaN
    gives c both ways, and no two zeros meet."""
    bits = re.fullmatch(r"(?:min|max)\.f32 .*, 0f([0-9A-F]{8})", instruction.text)
    return bits is not None and 0 < int(bits[1], 16) & 0x7FFFFFFF <= 0x7F800000


def _finding(instruction: Instruction, rule: str, shown: str) -> Finding:
    name = short_name(instruction.entry)
    return Finding(instruction.source or name, rule, f"{shown} (line {instruction.line} of the PTX, in {name})")


def normalised(ptx: str) -> list[str]:
    """The lines of a PTX text without comments and without the process ids that nvcc puts into names of internal linkage."""
    text = re.sub(r"\d+_INTERNAL_", "_INTERNAL_", re.sub(r"//[^\n]*", "", ptx))
    text = re.sub(r"_([0-9a-f]{8})_\d+", r"_\1_", text)
    return [stripped for line in text.splitlines() if (stripped := line.strip())]


def difference(fused: str, separate: str) -> Finding | None:
    """Where the PTX of ``-fmad=true`` and of ``=false`` first differ in an instruction; None where they are the same text (C2)."""
    if normalised(fused) == normalised(separate):
        return None
    rule = "C2: -fmad=true and -fmad=false give different PTX: a sum or product that no _rn names"
    for one, other in zip(instructions(fused), instructions(separate), strict=False):
        if one.opcode != other.opcode:
            return _finding(one, rule, f"`{one.text}` and `{other.text}`")
    return Finding("the whole text", rule, "the opcodes are the same")


@dataclass(frozen=True)
class Usage:
    """What ptxas gave one kernel entry for one architecture: registers a thread; bytes of stack, spill stores and spill loads a thread
    (functions that it calls included); bytes of static shared memory a block."""

    entry: str
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


def usages(text: str) -> list[Usage]:
    """Reads the output of ``ptxas -v``. Raises ValueError where an entry's lines are not as expected."""
    found = []
    for part in text.split("Compiling entry function '")[1:]:
        entry, arch = part.split("'")[0:3:2]
        memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        registers = re.search(r"Used (\d+) registers", part)
        if registers is None or not memory:
            raise ValueError(f"ptxas -v says nothing of {entry}: {part!r}")
        shared = re.search(r"(\d+) bytes smem", part)
        stack, stores, loads = (sum(map(int, column)) for column in zip(*memory, strict=True))
        found.append(Usage(entry, arch, int(registers[1]), stack, stores, loads, int(shared[1]) if shared else 0))
    return found


_BUILTIN = {"h": "uint8_t", "t": "uint16_t", "i": "int", "j": "uint32_t", "l": "int64_t", "m": "uint64_t", "f": "float"}


def short_name(mangled: str) -> str:
    """The last name in a mangled function name with plain template arguments: ``rows<uint4, 4>`` of ``_ZN2sb4rowsI5uint4Li4EEEv6Params``.

    Arguments that are not numbers or plain types are left out; a name that is not mangled stays as it is.
    """
    if not mangled.startswith("_Z"):
        return mangled or "no function"
    nested, text, last = mangled.startswith("_ZN"), re.sub(r"^_ZN?", "", mangled), ""
    while (not last or nested) and (name := _name(text.removeprefix("L"))):
        last, text = name
    values = []
    if text.startswith("I"):
        text = text[1:]
        while text and text[0] != "E":
            number = re.match(r"L[a-z](\d+)E", text)
            if number:
                value, text = number[1], text[number.end() :]
            elif name := _name(text):
                value, text = name[0], name[1]
            elif text[0] in _BUILTIN:
                value, text = _BUILTIN[text[0]], text[1:]
            else:
                break
            values.append(value)
    return (last or mangled) + (f"<{', '.join(values)}>" if values else "")


def _name(text: str) -> tuple[str, str] | None:
    """A mangled identifier at the start of a text ("5uint4...") and what follows it."""
    length = re.match(r"\d+", text)
    end = length.end() + int(length[0]) if length else 0
    return (text[length.end() : end], text[end:]) if length else None
