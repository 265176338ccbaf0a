"""Inline PTX: an asm statement becomes a block of C++, instruction by instruction, from a table. What is not in it is an error.

Registers are 64 bits wide; every instruction reads and writes as many of them as its type has.
"""

from __future__ import annotations

import re

from emu.host.ptx_table import TABLE, Block, Unknown
from emu.host.source import OPEN, Source
from emu.host.tokens import Token

_PTX = "::samebits::ptx::"
_LABEL = re.compile(r"([$\w]+) ?:(?!:) ?")
# What is called, or made, by a name of ptx.h in the table's C++: the program may have its own of that name.
_WORDS = r"if|auto|bool|sizeof|float|double|unsigned|u?int\d*_t|\w+_cast"
_OURS = re.compile(rf"(?<![\w:.])(?!__|atomic|samebits_|(?:{_WORDS})\b)[A-Za-z]\w*(?=[(<{{]|::)")


def statements(template: str, block: Block) -> list[str]:
    """C++ statements for the text of an asm template. Raises Unknown."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL).replace("%=", "")
    for piece in _without_scopes(text).split(";"):
        line = " ".join(piece.split())
        while label := _LABEL.match(line):
            block.labels.append(_label(label[1]))
            block.lines.append(f"{_label(label[1])}:;")
            line = line[label.end() :]
        if line.startswith("."):
            _declare(block, line)
        elif line:
            _instruction(block, line)
    labels = f"__label__ {', '.join(block.labels)}; " if block.labels else ""
    registers = [f"unsigned long long r_{name} = 0; (void)r_{name};" for name in sorted(block.registers)]
    return ["{ " + labels, *registers, *block.lines, "}"]


def _label(name: str) -> str:
    return "l_" + re.sub(r"\W", "_", name)


def _declare(block: Block, line: str) -> None:
    """Registers, before the first instruction: branches must not jump into their scope."""
    declared = re.fullmatch(r"\.reg \.(\w+) (.+)", line)
    if declared is None:
        raise Unknown(line)
    for name in declared[2].split(","):
        count = re.fullmatch(r"%?(\w+)<(\d+)>", name.strip())
        names = [f"{count[1]}{i}" for i in range(int(count[2]))] if count else [name.strip().lstrip("%")]
        block.registers.update(names)
        block.predicates.update(names if declared[1] == "pred" else [])


def _instruction(block: Block, line: str) -> None:
    guard = re.match(r"@(!?)%*(\w+) ", line)
    if guard is not None:
        line = line[guard.end() :]
    opcode, _, rest = line.partition(" ")
    name, *mods = opcode.split(".")
    operands = [part.strip() for part in _split(rest)] if rest else []
    inner = len(block.lines)
    if name == "bra" and len(operands) == 1:
        block.lines.append(f"goto {_label(operands[0])};")
    elif name not in TABLE:
        raise Unknown(opcode)
    else:
        try:
            TABLE[name](block, mods, operands)
        except (IndexError, KeyError, ValueError) as error:
            raise Unknown(line) from error
    body = " ".join(block.lines[inner:])
    if guard is None:
        block.lines[inner:] = [f"{{ {body} }}"]
    elif guard[2] in block.registers:
        block.lines[inner:] = [f"if ({guard[1]}r_{guard[2]}) {{ {body} }}"]
    else:
        raise Unknown(f"@{guard[2]}")


def _without_scopes(text: str) -> str:
    """The text without braces that enclose instructions; those of vectors stay."""
    out, stack = [], []
    for i, c in enumerate(text):
        if c == "{":
            before = text[:i].rstrip()
            scope = not before or before[-1] in ";{}\n"
            stack.append(scope)
            out.append(";" if scope else c)
        elif c == "}":
            out.append(";" if stack and stack.pop() else c)
        else:
            out.append(c)
    return "".join(out)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def asm(source: Source, i: int) -> int:
    """Translates the asm statement at token i and returns its last token, the closing parenthesis."""
    opened = i + 1
    while source.tokens[opened].text in ("volatile", "__volatile__", "goto", "inline"):
        opened += 1
    if not source.is_(opened, "("):
        raise source.error(i, "inline asm", "no parenthesis follows")
    close = source.match[opened]
    sections: list[list[int]] = [[]]
    j = opened + 1
    while j < close:
        if source.punct(j) in OPEN:
            sections[-1] += range(j, source.match[j] + 1)
            j = source.match[j] + 1
            continue
        if source.punct(j) in (":", "::"):
            sections += [[] for _ in source.punct(j)[1:]] + [[]]
        else:
            sections[-1].append(j)
        j += 1
    template = "".join(_text(source.tokens[k]) for k in sections[0])
    before, after, number = [], [], 0
    for section, output in ((sections[1:2], True), (sections[2:3], False)):
        for constraint, expression in _operands(source, section[0] if section else []):
            if not re.fullmatch(r"[=+]?[rlhfdnqC]", constraint):
                raise source.error(i, "inline asm", f"constraint {constraint!r} is not modelled")
            if output:
                before.append(f"auto& samebits_o{number} = {expression};")
                start = f"{_PTX}bits(samebits_o{number})" if constraint.startswith("+") else "0"
                before.append(f"unsigned long long samebits_p{number} = {start};")
                after.append(f"{_PTX}put(samebits_o{number}, samebits_p{number});")
            else:
                before.append(f"unsigned long long samebits_p{number} = {_PTX}bits{expression}; (void)samebits_p{number};")
            number += 1
    block = Block()
    try:
        body = statements(template, block)
    except Unknown as unknown:
        raise source.error(i, "inline asm", f"{unknown} is not modelled by the host emulator") from None
    body = [_OURS.sub(_PTX + r"\g<0>", line) for line in body]
    source.replace(i, close, "do { " + " ".join([*before, *body, *after]) + " } while (0)")
    return close


def _text(token: Token) -> str:
    if token.kind != "string":
        return ""
    escapes = {"n": "\n", "t": " ", "r": "", '"': '"', "\\": "\\"}
    return re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), token.text[1:-1])


def _operands(source: Source, section: list[int]) -> list[tuple[str, str]]:
    """Constraint and parenthesised expression of each operand of a section."""
    found, j = [], 0
    while j < len(section):
        token = source.tokens[section[j]]
        if token.kind == "string":
            opened, constraint = section[j], ""
            while source.tokens[opened].kind == "string":  # neighbours are one
                constraint += _text(source.tokens[opened])
                opened += 1
            if not source.is_(opened, "("):
                break  # clobbers
            found.append((constraint, " ".join(source.span(opened, source.match[opened]).split())))
            while j < len(section) and section[j] <= source.match[opened]:
                j += 1
        else:
            j += 1
    return found
