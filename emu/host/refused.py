"""What programs use and the emulator has not: libraries by their headers, parts of CUDA's runtime by their names."""

from __future__ import annotations

import re

from emu.host.source import TranslationError
from emu.host.tokens import Region

_NAMES = {
    "textures": r"tex[123]D\w*|tex(2D)?[Cc]ubemap\w*|cudaTexture\w+|cuda(Create|Destroy)TextureObject|cuda(Bind|Unbind)Texture\w*",
    "surfaces": r"surf[123]D\w*|surfCubemap\w*|cudaSurface\w+|cuda(Create|Destroy)SurfaceObject",
    "arrays of textures": r"cuda(Mipmapped)?Array(_const)?_t|cudaMalloc(3D|Mipmapped)?Array|cudaFreeArray|cudaMemcpy\w*ToArray\w*",
    "tensor maps": r"CUtensorMap\w*|CU_TENSOR_MAP\w*|cuTensorMap\w+",
    "resources shared with other programs": r"cudaGraphics\w+|cudaIpc\w+|cuda(Import)?External\w+",
}
_FAMILIES = {name: re.compile(pattern) for name, pattern in _NAMES.items()}
_TEMPLATES = {"texture": "textures", "surface": "surfaces"}  # with template arguments, at the start of a declaration


def family(name: str, before: str, after: str) -> str:
    """What the name between those two tokens belongs to, "" if it is none of these."""
    if name in _TEMPLATES and after == "<" and before in ("", ";", "}", "static", "const"):
        return _TEMPLATES[name]
    is_member, is_variable = before in (".", "->"), name.startswith(("tex", "surf")) and after not in ("(", "<")
    if is_member or is_variable or not name.startswith(("tex", "surf", "cuda", "cu", "CU")):
        return ""
    return next((family for family, pattern in _FAMILIES.items() if pattern.fullmatch(name)), "")


_LIBRARY = re.compile(
    r"(?:^|/)((?:cub|thrust|cuda|nv|cooperative_groups|cutlass|cute)/[^/].*|(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|npp|nv(?:rtc|ml|jpeg))\w*\.h)$"
)
_MISSING = re.compile(r"^(\S+?):(\d+):\d+: fatal error: '?([^\s':]+)'?(?::| file not found)", re.MULTILINE)
_INCLUDED = re.compile(r"^(?:In file included| {17,}) ?from (\S+?):(\d+)[:,]", re.MULTILINE)


def library(error: str, ours: str) -> TranslationError | None:
    """The error that names a library's header and the line which includes it, for what a preprocessor said; None if it said another thing.

    Headers in the folder `ours` are none of a library.
    """
    if (missing := _MISSING.search(error)) and _LIBRARY.search(missing[3]):
        return _error(missing[3], missing[1], missing[2])
    inner = ""
    for file, line in _INCLUDED.findall(error):
        found = _LIBRARY.search(file)
        if inner and found is None:
            return _error(inner, file, line)
        inner = found[1] if found is not None and not file.startswith(ours) else ""
    return None


_UNKNOWN = re.compile(
    r"^(\S+?):(\d+):\d+: error: .*?(?:not declared|been declared|undeclared|unknown type|not name a|not a member|no member|be available)"
)
_WITHOUT_MASK = re.compile(r"__(?:shfl(?:_up|_down|_xor)?|any|all|ballot)")
_OF_CUDA = {
    "CUDA's driver API is not modelled by the host emulator": re.compile(r"cu[A-Z]\w*|CU[a-z]\w*|CU_\w+|CUDA_[A-Z]\w+"),
    "the runtime compiler is not modelled by the host emulator": re.compile(r"nvrtc\w+"),
    "not modelled by the host emulator": re.compile(r"cuda[A-Z]\w*|__[a-z]\w*"),
}


def unknown(error: str) -> TranslationError | None:
    """The error that names what of CUDA a compiler did not know first, for what it said; None if that was another thing."""
    first = re.search(r"^.*?: error: .*", error.replace("\u2018", "'").replace("\u2019", "'"), re.MULTILINE)
    place, names = first and _UNKNOWN.match(first[0]), re.findall(r"'(?:::)?(\w+)'", first[0] if first else "")
    if not place or not names:
        return None
    file, line, name = *place.groups(), names[0]
    if _WITHOUT_MASK.fullmatch(name):
        return TranslationError(name, file, int(line), f"CUDA has only {name}_sync, with a mask, since sm_70")
    detail = next((detail for detail, pattern in _OF_CUDA.items() if pattern.fullmatch(name)), "")
    return TranslationError(name, file, int(line), detail) if detail else None


def check_headers(parts: list[Region], ours: str) -> None:
    """Raises TranslationError at the line that includes a header of a library's which is not in the folder `ours`."""
    names = [found[1] if "/cccl/" in part.file and (found := _LIBRARY.search(part.file)) else "" for part in parts]
    first = next((i for i, name in enumerate(names) if name and not parts[i].file.startswith(ours)), None)
    if first is None:
        return
    after = next((part for part, name in zip(parts[first:], names[first:], strict=True) if not name and not part.system), parts[first])
    raise _error(names[first], after.file, max(after.line - 1, 1))


def _error(name: str, file: str, line: str | int) -> TranslationError:
    return TranslationError(f"#include <{name}>", file, int(line), "the library is not modelled by the host emulator")
