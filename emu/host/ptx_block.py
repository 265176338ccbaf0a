"""One asm statement on its way to C++: its registers, operands, addresses and types."""

from __future__ import annotations

import re

TYPES = {
    **{f"u{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    **{f"s{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"b{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f16x2": "__half2",
    "bf16x2": "__nv_bfloat162",
    "pred": "bool",
    **{name: f"::samebits::ptx::{name}" for name in ("tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2")},
}
_SPECIAL = {
    **{f"tid.{axis}": f"::samebits::thread_index().{axis}" for axis in "xyz"},
    **{f"ntid.{axis}": f"::samebits::block_dim().{axis}" for axis in "xyz"},
    **{f"ctaid.{axis}": f"::samebits::block_index().{axis}" for axis in "xyz"},
    **{f"nctaid.{axis}": f"::samebits::grid_dim().{axis}" for axis in "xyz"},
    **{f"cluster_ctaid.{axis}": f"__clusterRelativeBlockIdx().{axis}" for axis in "xyz"},
    **{f"cluster_nctaid.{axis}": f"__clusterDim().{axis}" for axis in "xyz"},
    **{f"clusterid.{axis}": f"__clusterIdx().{axis}" for axis in "xyz"},
    **{f"nclusterid.{axis}": f"__clusterGridDimInClusters().{axis}" for axis in "xyz"},
    "cluster_ctarank": "__clusterRelativeBlockRank()",
    "cluster_nctarank": "__clusterSizeInBlocks()",
    "laneid": "::samebits::lane()",
    "warpid": "(::samebits::self()->linear / 32)",
    "nwarpid": "32u",
    "smid": "0u",
    "nsmid": "1u",
    "lanemask_eq": "(1u << ::samebits::lane())",
    "lanemask_lt": "((1u << ::samebits::lane()) - 1)",
    "lanemask_le": "((2u << ::samebits::lane()) - 1)",
    "lanemask_gt": "~((2u << ::samebits::lane()) - 1)",
    "lanemask_ge": "~((1u << ::samebits::lane()) - 1)",
    "clock": "unsigned(samebits_clock())",
    "clock64": "samebits_clock()",
    "globaltimer": "samebits_clock()",
    "clock_hi": "unsigned(samebits_clock() >> 32)",
}


class Unknown(Exception):
    """An instruction or operand that is not in the table; the text says which."""


class Block:
    """One asm statement: names of its registers and the statements so far."""

    def __init__(self) -> None:
        self.registers: set[str] = set()
        self.predicates: set[str] = set()  # of those
        self.labels: list[str] = []
        self.lines: list[str] = []

    def value(self, operand: str) -> str:
        """C++ for an operand's bits."""
        operand = operand.strip()
        if match := re.fullmatch(r"%(\d+)", operand):
            return f"samebits_p{match[1]}"
        if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"0x{match[1]}ull"
        if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"0x{match[1]}ull"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return f"(unsigned long long)({operand.rstrip('U')}ll)" if "0x" not in operand.lower() else f"{operand.rstrip('U')}ull"
        if re.fullmatch(r"-?\d+\.\d*", operand):
            return f"to_bits({operand}f)"
        if operand.startswith("%%") and operand[2:] in _SPECIAL:
            return f"(unsigned long long)({_SPECIAL[operand[2:]]})"
        name = operand.lstrip("%")
        if name in self.registers:
            return f"r_{name}"
        if operand.startswith("!") and operand[1:].lstrip("%") in self.registers:
            return f"!r_{operand[1:].lstrip('%')}"
        if name in _SPECIAL:
            return f"(unsigned long long)({_SPECIAL[name]})"
        raise Unknown(f"operand {operand!r}")

    def typed(self, operand: str, kind: str) -> str:
        return f"as<{cpp(kind)}>({self.value(operand)})"

    def store(self, operand: str, value: str) -> None:
        if operand.strip() in ("_", "%_"):
            return
        self.lines.append(f"{self.value(operand)} = bits({value});")

    def address(self, operand: str, space: str) -> str:
        inside = operand.strip()
        if not (inside.startswith("[") and inside.endswith("]")):
            raise Unknown(f"address {operand!r}")
        base, _, offset = inside[1:-1].partition("+")
        pointer = self.value(base)
        text = f"{pointer} + ({offset.strip() or 0})"
        return f"shared_at({text})" if space == "shared" else f"reinterpret_cast<char*>({text})"


def cpp(kind: str) -> str:
    """The C++ type of a PTX type."""
    if kind not in TYPES:
        raise Unknown(f"type .{kind}")
    return TYPES[kind]


def space(mods: list[str]) -> str:
    """The memory that an instruction addresses: "shared" or "global", where a generic address counts as the latter."""
    return "shared" if any(m.split("::")[0] == "shared" for m in mods) else "global"


def vector(operand: str) -> list[str]:
    """The operands between braces, or the one operand."""
    return [part.strip() for part in operand.strip()[1:-1].split(",")] if operand.strip().startswith("{") else [operand]
