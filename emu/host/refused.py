"""Names of CUDA's runtime that stand for what the emulator has not: one of them in a program is an error at its line."""

from __future__ import annotations

import re

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
