"""A source text as tokens with matched brackets, and the edits that turn it into C++."""

from __future__ import annotations

import bisect

from emu.host.tokens import Token

OPEN = {"(": ")", "[": "]", "{": "}"}
CLOSE = {")", "]", "}"}


class TranslationError(ValueError):
    """A construct that the emulator does not model, or cannot read; `construct`, `file` and `line` say which and where."""

    def __init__(self, construct: str, file: str, line: int, detail: str = "") -> None:
        self.construct, self.file, self.line, self.detail = construct, file, line, detail
        super().__init__(f"{file}:{line}: {construct}: {detail or 'not modelled by the host emulator'}")


class Source:
    """Tokens of a preprocessed text, which bracket closes which, and replacements collected so far.

    Replacements keep the number of line breaks of what they replace: every line of the result has the number it had.
    """

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.edits: list[tuple[int, int, str]] = []
        self.renamed: dict[int, str] = {}  # names that stand for something else, also in what is copied by span()
        self.match = self._match_brackets()  # index of an opening bracket -> of its closing one, and back
        self.scopes: list[int] = []  # braces that are open where the translation has arrived

    def edited(self) -> str:
        """The text with all edits made."""
        out: list[str] = []
        at = 0
        for start, end, text in sorted([*self.edits, *self._renames()], key=lambda edit: edit[:2]):
            if start < at:
                token = next(token for token in self.tokens if token.end > start)
                raise TranslationError(token.text, token.file, token.line, "two constructs overlap here")
            out += [self.text[at:start], text]
            at = end
        return "".join(out) + self.text[at:]

    def _renames(self) -> list[tuple[int, int, str]]:
        """Edits for the renamed tokens that no other edit has taken in."""
        taken = sorted((start, end) for start, end, _ in self.edits if start < end)
        found = []
        for i, text in self.renamed.items():
            token = self.tokens[i]
            before = bisect.bisect(taken, (token.start, len(self.text))) - 1
            if before < 0 or taken[before][1] <= token.start:
                found.append((token.start, token.end, text))
        return found

    def is_(self, i: int, text: str) -> bool:
        """Whether token i is the name or punctuator `text`; False outside of the text."""
        return 0 <= i < len(self.tokens) and self.tokens[i].text == text and self.tokens[i].kind in ("name", "punct")

    def punct(self, i: int) -> str:
        """The punctuator at i, "" where something else stands."""
        return self.tokens[i].text if self.tokens[i].kind == "punct" else ""

    def error(self, i: int, construct: str, detail: str = "") -> TranslationError:
        """An error at token i."""
        token = self.tokens[min(i, len(self.tokens) - 1)]
        return TranslationError(construct, token.file, token.line, detail)

    def _match_brackets(self) -> dict[int, int]:
        match: dict[int, int] = {}
        stack: list[int] = []
        for i, token in enumerate(self.tokens):
            if token.kind != "punct":
                continue
            if token.text in OPEN:
                stack.append(i)
            elif token.text in CLOSE:
                if not stack:
                    raise self.error(i, f"unbalanced {token.text}", "it closes nothing")
                opened = self.tokens[stack[-1]].text
                if OPEN[opened] != token.text:
                    raise self.error(stack[-1], f"unbalanced {opened}", f"line {token.line} has {token.text} instead of {OPEN[opened]}")
                match[i] = stack.pop()
                match[match[i]] = i
        if stack:
            raise self.error(stack[-1], f"unbalanced {self.tokens[stack[-1]].text}", "is never closed")
        return match

    def span(self, first: int, last: int) -> str:
        """The text of tokens first..last."""
        parts, at = [], self.tokens[first].start
        for i in range(first, last + 1) if self.renamed else ():
            if i in self.renamed:
                parts += [self.text[at : self.tokens[i].start], self.renamed[i]]
                at = self.tokens[i].end
        return "".join(parts) + self.text[at : self.tokens[last].end]

    def replace(self, first: int, last: int, text: str) -> None:
        """Puts `text` in place of tokens first..last; their line breaks stay."""
        span = self.span(first, last)
        self.edits.append((self.tokens[first].start, self.tokens[last].end, text + "\n" * (span.count("\n") - text.count("\n"))))

    def insert_after(self, i: int, text: str) -> None:
        """Puts `text` behind token i."""
        self.edits.append((self.tokens[i].end, self.tokens[i].end, text))

    def insert_before(self, i: int, text: str) -> None:
        """Puts `text` before token i."""
        self.edits.append((self.tokens[i].start, self.tokens[i].start, text))

    def argument_end(self, i: int) -> int:
        """The comma or bracket behind the argument of a call that begins at token i."""
        while self.punct(i) != "," and self.punct(i) not in CLOSE:
            i = self.match[i] + 1 if self.punct(i) in OPEN else i + 1
        return i

    def statement_start(self, i: int) -> int:
        """First token of the statement or declaration that token i belongs to."""
        while i > 0:
            before = self.tokens[i - 1]
            if before.kind == "directive" or (before.kind == "punct" and before.text in (";", "{", "}", ":")):
                break
            i = self.match[i - 1] if before.text in (")", "]") and before.kind == "punct" else i - 1
        return i

    def at_namespace_scope(self) -> bool:
        """Whether the translation has arrived outside of all functions and classes."""
        for brace in self.scopes:
            head = [t.text for t in self.tokens[self.statement_start(brace) : brace]]
            if "namespace" not in head and not (len(head) == 2 and head[0] == "extern" and head[1].startswith('"')):
                return False
        return True
