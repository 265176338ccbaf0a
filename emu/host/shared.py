"""__shared__ declarations: each variable becomes a reference to memory of its own extent, fresh for every block."""

from __future__ import annotations

from emu.host.source import CLOSE, OPEN, Source

_PARENTHESISED = {"__attribute__", "__align__", "alignas", "decltype", "typeof", "__typeof__"}
_NOT_DECLARED = {"__attribute__", "__align__", "alignas", "const", "volatile"}
_INITIALISED = "initialised __shared__ variable"


def declaration(source: Source, i: int, outside: set[str], dropped: set[str]) -> int:
    """Translates the declaration with __shared__ at token i and returns its last token.

    The declaration becomes a typedef of every declarator, which C++ can put into words for any of them; a reference follows for each.
    Variables of namespace scope are added to `outside`: a function stands for each, and its uses have to become calls.
    """
    first, end = source.statement_start(i), i
    while not source.is_(end, ";"):
        end = source.match[end] + 1 if source.punct(end) in OPEN else end + 1
        if end >= len(source.tokens) or source.punct(end) in CLOSE:
            raise source.error(i, "__shared__", "the declaration has no end")
    external, aligned = _specifiers(source, first, end, i, dropped)
    at_namespace_scope = source.at_namespace_scope()
    for d in _declarators(source, first, end):
        name = source.tokens[d].text
        source.replace(d, d, f"samebits_type_{name}")
        if at_namespace_scope:
            if name not in outside:
                kind, pointer, before = _storage(name, aligned, external, source.tokens[d].line)
                accessor = f"static inline {kind}& samebits_shared_{name}()"
                source.insert_after(end, f" {accessor} {{ {before}return *static_cast<{kind}*>({pointer}); }}")
            outside.add(name)
        else:
            kind, pointer, before = _storage(name, aligned, external, source.tokens[d].line)
            source.insert_after(end, f" {before}{kind}& {name} = *static_cast<{kind}*>({pointer});")
    return end


def _specifiers(source: Source, first: int, end: int, i: int, dropped: set[str]) -> tuple[bool, str]:
    """Replaces the specifiers that a typedef cannot have; returns whether one was extern, and all alignas()."""
    external, aligned = False, ""
    k = first
    while k < end:
        text = source.tokens[k].text
        if source.punct(k) in OPEN:
            k = source.match[k]
        elif k == i:
            source.replace(k, k, "typedef")
        elif text in ("extern", "static") or text in dropped:
            external = external or text == "extern"
            source.replace(k, k, "")
        elif text == "alignas" and source.is_(k + 1, "("):
            aligned += " ".join(source.span(k, source.match[k + 1]).split()) + " "
            source.replace(k, source.match[k + 1], "")
            k = source.match[k + 1]
        elif text == "__align__" and source.is_(k + 1, "("):
            source.replace(k, k, "__attribute__((aligned")
            k = source.match[k + 1]
            source.insert_after(k, "))")
        k += 1
    return external, aligned


def _storage(name: str, aligned: str, external: bool, line: int) -> tuple[str, str, str]:
    """Type of a variable, an expression for its address, and the declarations that this needs."""
    kind, slot = f"samebits_type_{name}", f"samebits_slot_{name}"
    if external:
        return kind, "::samebits::dynamic_shared()", ""
    align, before = f"alignof({kind})", ""
    if aligned:
        holder = f"samebits_align_{name}"
        before = f"struct {aligned}{holder} {{}}; "
        align = f"(alignof({kind}) > alignof({holder}) ? alignof({kind}) : alignof({holder}))"
    before += f'static ::samebits::Slot {slot}{{sizeof({kind}), {align}, "{name}", __builtin_FILE(), {line}}}; '
    return kind, f"::samebits::shared(&{slot})", before


def _declarators(source: Source, first: int, end: int) -> list[int]:
    """Indices of the names that the declaration first..end (a semicolon) declares."""
    names: list[int] = []
    start, j, angles = first, first, 0
    while j <= end:
        text = source.punct(j)
        if text in OPEN:
            j = source.match[j]
        elif text == "<":
            angles += 1
        elif text == ">":
            angles -= 1
        elif (text == "," and angles == 0) or j == end:
            names.append(_declared_name(source, start, j))
            start = j + 1
        j += 1
    return names


def _declared_name(source: Source, start: int, end: int) -> int:
    """The name in the declarator start..end-1; the first declarator has the specifiers before it."""
    found, j = -1, start
    while j < end:
        text = source.punct(j)
        if text == "=":
            raise source.error(j, _INITIALISED, "CUDA has none")
        if text == "{":
            if not any(source.tokens[k].text in ("struct", "union", "class", "enum") for k in range(start, j)):
                raise source.error(j, _INITIALISED, "CUDA has none")
            j = source.match[j]
        elif text == "(":
            if source.tokens[j - 1].text not in _PARENTHESISED:  # T (*p)[4]
                inner = [k for k in range(j + 1, source.match[j]) if source.tokens[k].kind == "name"]
                if not inner:
                    raise source.error(j, "__shared__", "a declarator without a name")
                return inner[-1]
            j = source.match[j]
        elif text == "[":
            j = source.match[j]
        elif text == "<":
            j = _after_angles(source, j, end)
        elif source.tokens[j].kind == "name" and source.tokens[j].text not in _NOT_DECLARED:
            found = j
        j += 1
    if found < 0:
        raise source.error(start, "__shared__", "a declarator without a name")
    return found


def _after_angles(source: Source, j: int, end: int) -> int:
    """The > that closes the template arguments opened at j."""
    depth = 0
    while j < end:
        text = source.punct(j)
        depth += (text == "<") - (text == ">")
        if depth == 0:
            return j
        j = source.match[j] + 1 if text in OPEN else j + 1
    raise source.error(j, "__shared__", "template arguments have no end")
