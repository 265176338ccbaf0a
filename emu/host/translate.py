"""Turns CUDA C++ into C++: launches, kernel definitions, shared variables and the qualifiers of functions and variables.

Works on tokens of preprocessed text, so that whatever macros write is seen, and changes only what C++ cannot say; every line keeps its
number. What is not modelled is a TranslationError with construct, file and line; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.host import builtins, launches, ptx, refused, shared
from emu.host.source import Source, TranslationError
from emu.host.tokens import Region, Token, regions, tokenize

__all__ = ["TranslationError", "translate"]

# Qualifiers that change nothing where every address space is the process's memory.
_DROPPED = {"__device__", "__host__", "__constant__", "__managed__", "__grid_constant__", "__nv_pure__", "__inline_hint__"}
_DROPPED_CALLS = {"__launch_bounds__", "__maxnreg__", "__cluster_dims__"}
_SPECIFIERS = _DROPPED | {"static", "inline", "constexpr", "extern", "virtual", "explicit", "friend", "__inline__", "__inline"}
ASM = {"asm", "__asm__", "__asm"}
_REFUSED = {"__block_size__"}
_ALLOCATES = {"cudaMalloc", "cudaMallocManaged", "cudaMallocHost", "cudaHostAlloc", "cudaMallocAsync", "cudaMallocPitch"}
# Names of device functions that a C library declares too.
_RENAMED = {"__expf", "__exp10f", "__logf", "__log2f", "__log10f", "__sinf", "__cosf", "__tanf", "__powf", "__sincosf"}
_RENAMED |= {"rsqrtf", "rsqrt", "sinpif", "cospif"}
_CAST_WORDS = {"void", "reinterpret_cast", "static_cast"}
_NEED_PREPROCESSING = ("<<<", "__global__", "__shared__", "asm")


def translate(source: str, path: str, verbatim: Callable[[Region], bool] = lambda region: region.system) -> str:
    """Returns C++ for the preprocessed CUDA C++ `source` of the file `path`.

    Regions for which `verbatim` is true, the compiler's own headers, are copied. Raises TranslationError.
    """
    tokens: list[Token] = []
    for region in regions(source, path):
        if not verbatim(region):
            tokens.extend(tokenize(source, region))
    text = _Translation(Source(source, tokens)).run()
    if source.lstrip().startswith("#"):
        return text
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'# 1 "{quoted}"\n{text}'


class _Translation:
    """One pass over the tokens."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.outside: set[str] = set()  # shared variables of namespace scope
        self.shadows: list[tuple[str, int]] = []  # threadIdx and the like that the program declares itself, and until which token

    def run(self) -> str:
        source = self.source
        done = -1  # tokens up to here belong to a declaration that was handled as a whole
        for i, token in enumerate(source.tokens):
            if token.kind == "directive":
                _check_directive(token)
            elif source.is_(i, "{"):
                source.scopes.append(i)
            elif source.is_(i, "}"):
                source.scopes.pop()
            elif source.is_(i, "<<<") and not source.is_(i - 1, "operator"):
                launches.launch(source, i)
            elif token.kind == "name" and i > done:
                self._rename(i)
                done = max(done, self._name(i))
        return source.edited()

    def _name(self, i: int) -> int:
        """Handles the name at i and returns the last token that needs no further look."""
        source, text = self.source, self.source.tokens[i].text
        if text in _ALLOCATES and source.is_(i + 1, "("):
            self._name_allocation(i + 1)
        elif text in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel") and source.is_(i + 1, "("):
            self._typed_kernel(i + 2)
        elif text == "cudaLaunchKernelExC" and source.is_(i + 1, "("):
            self._typed_kernel(source.argument_end(i + 2) + 1)
        elif not text.startswith("__") and text != "asm":
            if what := refused.family(text, source.tokens[i - 1].text if i else "", source.punct(i + 1)):
                raise source.error(i, text, f"{what} are not modelled by the host emulator")
            return i
        elif text in ASM:
            return self._asm(i)
        elif text in _REFUSED:
            raise source.error(i, text)
        elif text in _DROPPED:
            source.replace(i, i, "")
        elif text == "__global__":
            launches.kernel(source, i)
        elif text == "__shared__":
            return shared.declaration(source, i, self.outside, _DROPPED)
        elif text in _DROPPED_CALLS:
            last = source.match[i + 1] if source.is_(i + 1, "(") else i
            source.replace(i, last, "")
            return last
        elif text == "__forceinline__":
            source.replace(i, i, ("" if self._is_inline(i) else "inline ") + "__attribute__((always_inline))")
        elif text == "__noinline__" and not (source.is_(i - 1, "(") or source.is_(i - 1, ",")):
            source.replace(i, i, "__attribute__((noinline))")
        elif text == "__align__" and source.is_(i + 1, "("):
            source.replace(i, i, "__attribute__((aligned")
            source.insert_after(source.match[i + 1], "))")
        return i

    def _rename(self, i: int) -> None:
        """Gives the name at i what it stands for: a shared variable of namespace scope, an index of the thread, a function of ours."""
        source, text = self.source, self.source.tokens[i].text
        if source.is_(i - 1, ".") or source.is_(i - 1, "->"):
            return
        if text in self.outside:
            source.renamed[i] = f"samebits_shared_{text}()"
        elif text in builtins.NAMES and not source.is_(i - 1, "::"):
            self.shadows.append(builtins.declared_until(source, i, text))
            if not any(name == text and i <= end for name, end in self.shadows):
                source.renamed[i] = builtins.NAMES[text]
        elif text in _RENAMED and source.is_(i + 1, "(") and not source.is_(i - 1, "::") and (
            source.tokens[i - 1].kind != "name" or source.tokens[i - 1].text in launches.NOT_CALLED
        ):
            source.renamed[i] = "samebits_" + text.lstrip("_")

    def _asm(self, i: int) -> int:
        """Handles the asm statement at i, whose operands are expressions like any other."""
        opened = i
        while not self.source.is_(opened, "(") and opened < i + 4:
            opened += 1
        for k in range(opened, self.source.match.get(opened, opened)):
            if self.source.tokens[k].kind == "name":
                self._rename(k)
        return ptx.asm(self.source, i)

    def _typed_kernel(self, i: int) -> None:
        """Takes the cast to void* from a kernel at token i: the call unpacks its arguments by their types."""
        source = self.source
        if source.is_(i, "(") and source.tokens[source.match[i] - 1].text == "*" and "void" in source.span(i, source.match[i]):
            source.replace(i, source.match[i], "")
        elif source.is_(i, "reinterpret_cast") or source.is_(i, "static_cast"):
            while not source.is_(i, "("):
                source.replace(i, i, "")
                i += 1

    def _name_allocation(self, opened: int) -> None:
        """Gives the allocation that cudaMalloc( at `opened` makes the name of the variable that will point to it."""
        source, end = self.source, self.source.argument_end(opened + 1)
        if source.punct(end) != "," or source.tokens[end - 1].text in ("*", "&"):
            return  # a declaration, or no call of the known form
        names = [k for k in range(opened + 1, end) if source.tokens[k].kind == "name" and source.tokens[k].text not in _CAST_WORDS]
        if not names:
            return
        first, last = names[0], end - 1
        while source.punct(last) == ")":
            last -= 1
        name = " ".join(source.span(first, last).split()).replace("\\", "").replace('"', "'")
        source.insert_before(opened + 1, f'::samebits::named("{name}", ')
        source.insert_after(end - 1, ")")

    def _is_inline(self, i: int) -> bool:
        """Whether the specifiers around i say inline already: saying it twice is an error."""
        tokens = self.source.tokens
        for step in (-1, 1):
            j = i + step
            while 0 <= j < len(tokens) and tokens[j].text in _SPECIFIERS:
                if "inline" in tokens[j].text:
                    return True
                j += step
        return False


def _check_directive(token: Token) -> None:
    words = token.text.lstrip(" \t#").split(None, 1)
    if words[:1] == ["define"] and any(word in token.text for word in _NEED_PREPROCESSING):
        raise TranslationError("#define of a CUDA construct", token.file, token.line, "the text must be preprocessed first")
