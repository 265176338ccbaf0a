"""Tokens of C++ source, with file and line: what translate.py and build.py work on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<raw>(?:u8|[uUL])?R"(?P<delim>[^()\\\s]{0,16})\(.*?\)(?P=delim)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\/]|\\.|/\*.*?\*/|/(?!\*))*)
  | (?P<name>[A-Za-z_$\u0080-\U0010ffff][\w$]*)
  | (?P<number>\.?\d(?:[eEpP][+-]|'[\w]|[\w.])*)
  | (?P<space>\n|(?:[^\S\n]|\\\n)+)
  | (?P<punct><<<|<<=|<<|<=>|<=|->\*|->|::|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_LINEMARKER = re.compile(r'[ \t]*#(?:[ \t]*line)?[ \t]+(\d+)(?:[ \t]+"((?:[^"\\]|\\.)*)"([ \t\d]*))?')


class Token(NamedTuple):
    """One token: `start` and `end` are offsets into the text, `line` counts within `file` as line markers say."""

    kind: str  # name, number, string, char, punct, directive
    text: str
    start: int
    end: int
    file: str
    line: int


@dataclass(frozen=True)
class Region:
    """A stretch of preprocessed text that came from one file; `system` marks headers of the compiler."""

    start: int
    end: int
    file: str
    line: int
    system: bool


def regions(text: str, path: str) -> list[Region]:
    """Splits preprocessed text at its line markers; text without any is one region of `path`."""
    found: list[Region] = []
    start, file, line, system = 0, path, 1, False
    for match in re.finditer(r"^[ \t]*#[^\n]*\n?", text, re.MULTILINE):
        marker = _LINEMARKER.match(match.group())
        if marker is None:
            continue
        if match.start() > start:
            found.append(Region(start, match.start(), file, line, system))
        line = int(marker.group(1))
        if marker.group(2) is not None:
            file = re.sub(r"\\(.)", r"\1", marker.group(2))
            system = "3" in (marker.group(3) or "").split()
        start = match.end()
    if start < len(text):
        found.append(Region(start, len(text), file, line, system))
    return found


def tokenize(text: str, region: Region) -> list[Token]:
    """Tokens of one region, without white space and comments."""
    tokens: list[Token] = []
    file, line = region.file, region.line
    for match in _TOKEN.finditer(text, region.start, region.end):
        kind = match.lastgroup or ""
        if kind in ("name", "punct", "number"):
            tokens.append(Token(kind, match[0], *match.span(), file, line))
            continue
        if kind not in ("space", "comment"):
            tokens.append(Token("string" if kind == "delim" else kind, match[0], *match.span(), file, line))
        line += match[0].count("\n")
    return tokens
