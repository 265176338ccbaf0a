"""threadIdx, blockIdx, blockDim, gridDim: names of the running thread, until a program declares one itself, as host code often does."""

from __future__ import annotations

from emu.host.launches import NOT_CALLED
from emu.host.source import CLOSE, OPEN, Source

NAMES = {
    "threadIdx": "(::samebits::thread_index())",
    "blockIdx": "(::samebits::block_index())",
    "blockDim": "(::samebits::block_dim())",
    "gridDim": "(::samebits::grid_dim())",
}
_TYPES = {"dim3", "uint3", "int3", "auto", "int", "unsigned", "size_t", "long"}
_QUALIFIERS = {"static", "const", "constexpr"}


def declared_until(source: Source, i: int, name: str) -> tuple[str, int]:
    """The name and the last token of its scope if token i declares it, else -1."""
    opened = i - 1  # what encloses the declarator: a bracket, a brace, or the end of the statement before
    while opened >= 0 and source.punct(opened) not in (*OPEN, ";", "}"):
        opened = source.match[opened] - 1 if source.punct(opened) in CLOSE else opened - 1
    if not _declares(source, i, opened):
        return name, -1
    if source.punct(opened) != "(":
        return name, source.match[source.scopes[-1]] if source.scopes else len(source.tokens)
    body = source.match[opened] + 1  # a parameter
    while body < len(source.tokens) and source.punct(body) not in ("{", ";"):
        body = source.match[body] + 1 if source.punct(body) in OPEN else body + 1
    return name, source.match[body] if source.is_(body, "{") else i


def _declares(source: Source, i: int, opened: int) -> bool:
    before = source.tokens[i - 1]
    if before.kind == "name":
        return before.text not in NOT_CALLED
    if source.punct(i - 1) in ("&", "*"):
        return source.tokens[i - 2].text in _TYPES
    if source.punct(i - 1) != "," or source.punct(opened) == "(":
        return False
    first = opened + 1
    while source.tokens[first].text in _QUALIFIERS:
        first += 1
    return source.tokens[first].text in _TYPES
