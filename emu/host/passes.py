"""One text of nvcc's two: it compiles a file with __CUDA_ARCH__ for the device, and without it for the host.

Where the two preprocessed texts differ in a function for host and device, it gets both bodies and asks where it runs; a function for one of
them alone has that one's. Declarations that only the host has are added; where both have some of their own, they cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emu.host.source import CLOSE, OPEN, Source
from emu.host.tokens import Region, Token, regions, tokenize

_SAME = {"__device__", "__host__", "__forceinline__", "inline", "__inline__"}  # that one text may have and the other not
_NO_FUNCTIONS = {"namespace", "class", "struct", "union", "enum", "extern"}


def merge(device: str, host: str, path: str, verbatim: Callable[[Region], bool]) -> str:
    """The text `device` with what `host`, preprocessed without __CUDA_ARCH__, has in its place for host code.

    Raises TranslationError where both have declarations of their own at one place.
    """
    return _Merge(_source(device, path, verbatim), _source(host, path, verbatim)).run()


def _source(text: str, path: str, verbatim: Callable[[Region], bool]) -> Source:
    parts = [region for region in regions(text, path) if not verbatim(region)]
    return Source(text, [token for region in parts for token in tokenize(text, region)])


class _Merge:
    """One walk over both texts; a and b are the tokens of each where it has arrived."""

    def __init__(self, device: Source, host: Source) -> None:
        self.device, self.host = device, host
        self.a = self.b = 0
        self.open: list[tuple[int, int]] = []  # braces
        self.start = (0, 0)  # of the declaration

    def run(self) -> str:
        device, host = self.device, self.host
        while True:
            self.a, self.b = _significant(device, self.a), _significant(host, self.b)
            if self.a == len(device.tokens) and self.b == len(host.tokens):
                return device.edited()
            if self.a < len(device.tokens) and self.b < len(host.tokens) and device.tokens[self.a].text == host.tokens[self.b].text:
                if device.is_(self.a, "{"):
                    self.open.append((self.a, self.b))
                elif device.is_(self.a, "}") and self.open:
                    self.open.pop()
                self.a, self.b = self.a + 1, self.b + 1
                if device.punct(self.a - 1) in (";", "{", "}"):
                    self.start = self.a, self.b
            else:
                self._difference()

    def _difference(self) -> None:
        depth = self._function()
        if depth is None:
            self._declarations(*self._alike_again())
        elif _may_run_on_device(_head(self.device, self.open[depth][0])):
            self._bodies(*self.open[depth])
            del self.open[depth:]
        else:
            self._statements(*self._alike_again())

    def _function(self) -> int | None:
        """Which open brace begins the function or lambda whose bodies differ: the innermost with CUDA's qualifiers, else the outermost."""
        heads = [_head(self.device, a) for a, _ in self.open]
        said = [depth for depth, head in enumerate(heads) if _may_run_on_device(head)]
        functions = [depth for depth, head in enumerate(heads) if ")" in head and not _NO_FUNCTIONS & set(_without_template(head)[:2])]
        return said[-1] if said else functions[0] if functions else None

    def _bodies(self, a: int, b: int) -> None:
        """The function that opens at token a of the device's text, b of the host's, gets both bodies if it can run on the host."""
        device, host = self.device, self.host
        ends = device.match[a], host.match[b]
        self.start = self.a, self.b = ends[0] + 1, ends[1] + 1
        if not (_for_device_alone(_head(device, a)) and _for_device_alone(_head(host, b))):
            theirs = host.text[host.tokens[b].end : host.tokens[ends[1]].start]
            device.insert_after(a, " if (::samebits::device_pass()) {")
            device.insert_before(ends[0], f"}} else {{{_marker(host.tokens[b])}{theirs}\n}}{_marker(device.tokens[ends[0]])}")

    def _alike_again(self) -> tuple[range, range]:
        """The tokens of each text, from the start of the statement on, that the other one has not; goes on behind them."""
        ours, theirs = list(_ahead(self.device, self.start[0])), list(_ahead(self.host, self.start[1]))
        places = {_place(self.host, j): j for j in reversed(theirs)}
        pairs = ((i, places[_place(self.device, i)]) for i in ours if _place(self.device, i) in places)
        a, b = next((pair for pair in pairs if pair != self.start), (ours[-1], theirs[-1]))
        if (a, b) == self.start:
            raise self.device.error(a, "__CUDA_ARCH__", "host and device have different brackets here")
        differing = range(self.start[0], a), range(self.start[1], b)
        self.start = self.a, self.b = a, b
        return differing

    def _declarations(self, ours: range, theirs: range) -> None:
        """Adds what the host alone declares."""
        added = [(i, j) for i, j in _split(self.host, theirs) if not _for_device_alone(_declarator(self.host, i, j))]
        if added and ours:
            raise self.device.error(ours[0], "__CUDA_ARCH__", "host and device have different declarations here, which are compiled once")
        if added:
            text = "".join(_marker(self.host.tokens[i]) + self.host.span(i, j) for i, j in added)
            self._insert(ours.start, text)

    def _statements(self, ours: range, theirs: range) -> None:
        """Puts the host's statements in place of the device's."""
        if lambdas := [i for i in theirs if self.host.is_(i, "__device__")]:
            raise self.host.error(lambdas[0], "__CUDA_ARCH__", "device code stands in a statement that differs between host and device")
        if ours:
            self.device.replace(ours[0], ours[-1], "")
        if theirs:
            self._insert(ours.start, _marker(self.host.tokens[theirs[0]]) + self.host.span(theirs[0], theirs[-1]))

    def _insert(self, at: int, text: str) -> None:
        tokens = self.device.tokens
        if at < len(tokens):
            self.device.insert_before(at, text + _marker(tokens[at]))
        elif tokens:
            self.device.insert_after(len(tokens) - 1, text)


def _significant(source: Source, i: int) -> int:
    while i < len(source.tokens) and source.tokens[i].text in _SAME:
        i += 1
    return i


def _head(source: Source, brace: int) -> list[str]:
    """What stands before an opening brace, back to the last statement or bracket."""
    i = brace
    while i > 0 and source.punct(i - 1) not in (";", "}", *OPEN):
        i = source.match[i - 1] if source.punct(i - 1) in CLOSE else i - 1
    return [token.text for token in source.tokens[i:brace]]


def _without_template(head: list[str]) -> list[str]:
    """A head without the template parameters at its start."""
    depth = 0
    for i, text in enumerate(head if head[:1] == ["template"] else []):
        depth += (text == "<") - (text == ">")
        if i > 1 and depth == 0:
            return _without_template(head[i + 1 :])
    return head


def _ahead(source: Source, i: int) -> Iterator[int]:
    """Tokens from i on outside of further brackets, the last one being the end of those around it, or of the text."""
    while i < len(source.tokens) and source.punct(i) not in CLOSE:
        yield i
        i = source.match[i] + 1 if source.punct(i) in OPEN else i + 1
    yield i


def _place(source: Source, i: int) -> tuple[str, str, int]:
    token = source.tokens[i] if i < len(source.tokens) else None
    return (token.text, token.file, token.line) if token else ("", "", 0)


def _split(source: Source, tokens: range) -> Iterator[tuple[int, int]]:
    """First and last token of each declaration."""
    start = i = tokens.start
    while i < tokens.stop:
        last = source.match[i] if source.punct(i) in OPEN else i
        if source.is_(last, ";") or (source.is_(last, "}") and not source.is_(last + 1, ";")):
            yield start, last
            start = last + 1
        i = last + 1
    if start < tokens.stop:
        yield start, tokens.stop - 1


def _declarator(source: Source, first: int, last: int) -> list[str]:
    brace = next((i for i in range(first, last + 1) if source.is_(i, "{")), last + 1)
    return [token.text for token in source.tokens[first:brace]]


def _for_device_alone(head: list[str]) -> bool:
    return "__global__" in head or ("__device__" in head and "__host__" not in head)


def _may_run_on_device(head: list[str]) -> bool:
    return bool({"__global__", "__device__", "constexpr"} & set(head))


def _marker(token: Token) -> str:
    quoted = token.file.replace("\\", "\\\\").replace('"', '\\"')
    return f'\n# {token.line} "{quoted}"\n'
