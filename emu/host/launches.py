"""Kernel definitions and launches: what they become stands in include/samebits/launch.h."""

from __future__ import annotations

from emu.host.source import CLOSE, OPEN, Source

NOT_CALLED = {"return", "else", "do", "case", "throw", "co_return", "co_yield", "new", "delete", "sizeof", "and", "or", "not"}
_CONDITIONS = {"if", "while", "for", "switch"}
_NOT_KERNELS = {"alignas", "decltype", "noexcept"}


def kernel(source: Source, i: int) -> None:
    """`__global__ void k(P p) {B}` with __global__ at token i: the body becomes a closure that every CUDA thread gets a copy of."""
    source.replace(i, i, "")
    j, name = i + 1, ""
    while source.punct(j) != "{":
        if source.punct(j) in (";", "=", "}"):
            return  # a declaration
        if source.punct(j) in OPEN:
            before = source.tokens[j - 1]
            if not name and before.kind == "name" and not before.text.startswith("__") and before.text not in _NOT_KERNELS:
                name = before.text
            j = source.match[j]
        j += 1
        if j >= len(source.tokens):
            raise source.error(i, "__global__", "the text ends inside the declaration")
    said = {"__launch_bounds__": "::samebits::launch_bounds()", "__cluster_dims__": "dim3(0)"}
    for k in range(source.statement_start(i), j):
        attribute = source.tokens[k].text
        if attribute in said and source.is_(k + 1, "("):
            function = "dim3" if attribute == "__cluster_dims__" else "::samebits::launch_bounds"
            said[attribute] = function + " ".join(source.span(k + 1, source.match[k + 1]).split())
    limits = ", ".join(said.values())
    described = f'{{"{name or "kernel"}", __PRETTY_FUNCTION__, __builtin_FILE(), {source.tokens[i].line}, {limits}}}'
    source.replace(
        j, j, f"{{ static ::samebits::Kernel samebits_kernel{described}; "
        "if (::samebits::enter(&samebits_kernel)) ::samebits::launch(&samebits_kernel, [=]() mutable {",
    )  # fmt: skip
    source.replace(source.match[j], source.match[j], "}); }")


def launch(source: Source, i: int) -> None:
    """`k<<<g, b, s, st>>>(args)` with <<< at token i: a plain call of k behind a note of its configuration."""
    first = _postfix_start(source, i)
    close = _configuration_end(source, i)
    callee = " ".join(source.span(first, i - 1).split())
    source.replace(first, i - 1, "(::samebits::configure(")
    source.replace(i, i, "")
    source.replace(close, close + 2, f"), {callee}")
    source.insert_after(source.match[close + 3], ", ::samebits::launched())")


def _postfix_start(source: Source, i: int) -> int:
    """First token of the postfix expression before token i: a name with its scopes, template arguments, calls and subscripts."""
    j = i - 1
    while j >= 0:
        token = source.tokens[j]
        if source.punct(j) in (")", "]"):
            j = source.match[j]
            if source.punct(j) == "(" and not _is_callee(source, j - 1):
                return j  # (expression)<<<
            j -= 1
        elif source.punct(j) == ">":
            j = _angle_open(source, j, i) - 1
        elif token.kind != "name" or token.text in NOT_CALLED:
            raise source.error(i, "<<<", f"no kernel ends with {token.text!r}")
        else:
            j -= source.is_(j - 1, "template")
            if source.is_(j - 1, ".") or source.is_(j - 1, "->"):
                j -= 2
            elif source.is_(j - 1, "::"):
                if not _is_callee(source, j - 2) or source.punct(j - 2) in (")", "]"):
                    return j - 1  # ::k
                j -= 2
            else:
                return j
    raise source.error(i, "<<<", "no kernel stands before it")


def _is_callee(source: Source, j: int) -> bool:
    """Whether token j can end what a following parenthesis calls."""
    if j < 0:
        return False
    if source.punct(j) == ")":  # if (...) (k)<<<: the condition is no function
        before = source.match[j] - 1
        return not (before >= 0 and source.tokens[before].text in _CONDITIONS)
    if source.tokens[j].kind == "name":
        return source.tokens[j].text not in NOT_CALLED | _CONDITIONS
    return source.punct(j) in ("]", ">")


def _angle_open(source: Source, j: int, launched: int) -> int:
    """The < that belongs to the > at j."""
    depth = 0
    while j >= 0:
        text = source.punct(j)
        if text in CLOSE and text != "}":
            j = source.match[j]
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if depth == 0:
                return j
        elif text in (";", "{", "}", "(", "["):
            break
        j -= 1
    raise source.error(launched, "<<<", "the template arguments before it have no beginning")


def _configuration_end(source: Source, i: int) -> int:
    """The first > of the >>> that ends the configuration opened at i."""
    candidates: list[int] = []
    angles, j = 0, i + 1
    while j < len(source.tokens) and source.punct(j) not in CLOSE and source.punct(j) not in (";", "<<<"):
        text = source.punct(j)
        if text in OPEN:
            j = source.match[j]
        elif text == "<":
            angles += 1
        elif text == ">":
            ends = source.tokens[j : j + 4]
            if [token.text for token in ends] == [">", ">", ">", "("] and ends[0].end == ends[1].start and ends[1].end == ends[2].start:
                candidates.append(j)
                if angles == 0:
                    return j
            angles -= 1
        j += 1
    if len(candidates) == 1:  # a comparison stands in it: the number of < and > does not tell
        return candidates[0]
    raise source.error(i, "<<<", "several >>> could end the configuration" if candidates else "no >>> with arguments follows")
