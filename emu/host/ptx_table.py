"""PTX instructions and the C++ that each becomes, in the names of include/samebits/ptx.h."""

from __future__ import annotations

import re
from collections.abc import Callable

from emu.host import ptx_sync
from emu.host.ptx_block import TYPES, Block, Unknown, cpp, space, vector

_ROUNDS = {"rn": "nearest", "rz": "zero", "rm": "down", "rp": "up", "rna": "nearest"}
_ROUNDS |= {name + "i": way for name, way in _ROUNDS.items() if name != "rna"}


def _round(mods: list[str]) -> str:
    return next((f"Round::{_ROUNDS[m]}" for m in mods if m in _ROUNDS), "Round::nearest")


def _elementwise(name: str) -> Callable[[Block, list[str], list[str]], None]:
    def make(block: Block, mods: list[str], ops: list[str]) -> None:
        kind = mods[-1]
        arguments = ", ".join(block.typed(op, kind) for op in ops[1:])
        flags = f"{_round(mods)}, {str('ftz' in mods).lower()}, {str('sat' in mods).lower()}"
        block.store(ops[0], f"{name}({arguments}, Mode{{{flags}}})")

    return make


def _sum(name: str) -> Callable[[Block, list[str], list[str]], None]:
    """add and sub, with addc and subc: carries are of the thread."""

    def make(block: Block, mods: list[str], ops: list[str]) -> None:
        if not name.endswith("c") and "cc" not in mods:
            _elementwise(name)(block, mods, ops)
            return
        kind = mods[-1].replace("s", "u")
        arguments = ", ".join(block.typed(op, kind) for op in ops[1:])
        block.store(ops[0], f"{name[:3]}_carry({arguments}, {str(name.endswith('c')).lower()}, {str('cc' in mods).lower()})")

    return make


def _mul(block: Block, mods: list[str], ops: list[str]) -> None:
    kind = mods[-1]
    how = next((m for m in mods if m in ("lo", "hi", "wide")), "")
    if not how:
        _elementwise("mul")(block, mods, ops)
    else:
        block.store(ops[0], f"mul_{how}({block.typed(ops[1], kind)}, {block.typed(ops[2], kind)})")


def _mad(carry: bool) -> Callable[[Block, list[str], list[str]], None]:
    def make(block: Block, mods: list[str], ops: list[str]) -> None:
        kind = mods[-1]
        how = next((m for m in mods if m in ("lo", "hi", "wide")), "")
        if carry or "cc" in mods:
            product = f"mul_{how}({', '.join(block.typed(op, kind) for op in ops[1:3])})"
            kind = kind.replace("s", "u")
            flags = f"{str(carry).lower()}, {str('cc' in mods).lower()}"
            block.store(ops[0], f"add_carry(as<{cpp(kind)}>(bits({product})), {block.typed(ops[3], kind)}, {flags})")
        elif not how:
            _elementwise("fma")(block, mods, ops)
        else:
            block.store(ops[0], f"mad_{how}({', '.join(block.typed(op, kind) for op in ops[1:3])}, {block.value(ops[3])})")

    return make


def _dp4a(block: Block, mods: list[str], ops: list[str]) -> None:
    if mods[0] != mods[1]:
        raise Unknown("dp4a." + ".".join(mods))
    block.store(ops[0], f"dp4a({', '.join(block.typed(op, 'u32') for op in ops[1:3])}, {block.typed(ops[3], mods[0])})")


def _funnel(block: Block, mods: list[str], ops: list[str]) -> None:
    flags = ", ".join(str(which in mods).lower() for which in ("l", "wrap"))
    block.store(ops[0], f"funnel({flags}, {', '.join(block.typed(op, 'u32') for op in ops[1:])})")


def _shift(name: str) -> Callable[[Block, list[str], list[str]], None]:
    def make(block: Block, mods: list[str], ops: list[str]) -> None:
        block.store(ops[0], f"{name}({block.typed(ops[1], mods[-1])}, as<uint32_t>({block.value(ops[2])}))")

    return make


def _mixed(name: str, *kinds: str) -> Callable[[Block, list[str], list[str]], None]:
    """A function of operands of fixed types; "T" stands for the instruction's own."""

    def make(block: Block, mods: list[str], ops: list[str]) -> None:
        arguments = [block.typed(op, mods[-1] if kind == "T" else kind) for op, kind in zip(ops[1:], kinds, strict=True)]
        block.store(ops[0], f"{name}({', '.join(arguments)})")

    return make


def _mov(block: Block, mods: list[str], ops: list[str]) -> None:
    wide = {"b64": "b32", "b32": "b16", "u32": "u16", "u64": "u32"}
    if ops[0].strip().startswith("{") or ops[1].strip().startswith("{"):
        part = wide[mods[-1]]
        shift = int(part[1:])
        if ops[0].strip().startswith("{"):
            for i, op in enumerate(vector(ops[0])):
                block.store(op, f"as<{cpp(part)}>({block.value(ops[1])} >> {i * shift})")
        else:
            parts = enumerate(vector(ops[1]))
            both = " | ".join(f"(unsigned long long)(as<{cpp(part)}>({block.value(op)})) << {i * shift}" for i, op in parts)
            block.store(ops[0], f"as<{cpp(mods[-1])}>({both})")
        return
    block.store(ops[0], block.typed(ops[1], mods[-1]))


def _cvt(block: Block, mods: list[str], ops: list[str]) -> None:
    kinds = [m for m in mods if m in TYPES]
    arguments = ", ".join(block.typed(op, kinds[1]) for op in ops[1:])
    flags = f"{_round(mods)}, {str('ftz' in mods).lower()}, {str('sat' in mods or 'satfinite' in mods).lower()}"
    relu = ", ::samebits::ptx::relu" if "relu" in mods else ""
    block.store(ops[0], f"convert<{cpp(kinds[0])}>({arguments}, Mode{{{flags}}}{relu})")


def _setp(block: Block, mods: list[str], ops: list[str]) -> None:
    symbol = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
    if mods[0] not in symbol or len(mods) > 2 + ("ftz" in mods):
        raise Unknown("setp." + ".".join(mods))
    test = f"{block.typed(ops[1], mods[-1])} {symbol[mods[0]]} {block.typed(ops[2], mods[-1])}"
    for i, target in enumerate(ops[0].split("|")):
        block.store(target, f"(unsigned long long)({'!' * i}({test}))")


def _selp(block: Block, mods: list[str], ops: list[str]) -> None:
    block.store(ops[0], f"({block.value(ops[3])}) ? {block.typed(ops[1], mods[-1])} : {block.typed(ops[2], mods[-1])}")


def _ld(block: Block, mods: list[str], ops: list[str]) -> None:
    kind, count = mods[-1], next((int(m[1:]) for m in mods if m in ("v2", "v4", "v8")), 1)
    qualifier = "volatile_load" if any(m in ("volatile", "relaxed", "acquire") for m in mods) else "load"
    block.lines.append(f"auto loaded{len(block.lines)} = {qualifier}<{cpp(kind)}, {count}>({block.address(ops[1], space(mods))});")
    name = f"loaded{len(block.lines) - 1}"
    for i, target in enumerate(vector(ops[0])):
        block.store(target, f"{name}.v[{i}]")
    if "acquire" in mods:
        block.lines.append("__threadfence();")


def _st(block: Block, mods: list[str], ops: list[str]) -> None:
    kind, values = mods[-1], vector(ops[1])
    qualifier = "volatile_store" if any(m in ("volatile", "relaxed", "release") for m in mods) else "store"
    if "release" in mods:
        block.lines.append("__threadfence();")
    items = ", ".join(block.typed(op, kind) for op in values)
    shape = f"<{cpp(kind)}, {len(values)}>"
    block.lines.append(f"{qualifier}{shape}({block.address(ops[0], space(mods))}, Vector{shape}{{{{{items}}}}});")


def _atom(block: Block, mods: list[str], ops: list[str], result: bool = True) -> None:
    names = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "exch": "atomicExch", "and": "atomicAnd", "or": "atomicOr",
             "xor": "atomicXor", "inc": "atomicInc", "dec": "atomicDec", "cas": "atomicCAS"}  # fmt: skip
    name = next((names[m] for m in mods if m in names), None)
    kind = {"u64": "unsigned long long", "b64": "unsigned long long", "s64": "long long"}.get(mods[-1], TYPES.get(mods[-1], ""))
    if name is None or not kind:
        raise Unknown("atom." + ".".join(mods))
    fence = any(m in ("acq_rel", "release", "acquire") for m in mods)
    target, *rest = ops if result else ["_", *ops]
    pointer = f"reinterpret_cast<{kind}*>({block.address(rest[0], space(mods))})"
    arguments = ", ".join(f"as<{kind}>({block.value(op)})" for op in rest[1:])
    block.lines += ["__threadfence();"] if fence else []
    if result:
        block.store(target, f"{name}({pointer}, {arguments})")
    else:
        block.lines.append(f"{name}({pointer}, {arguments});")
    block.lines += ["__threadfence();"] if fence else []


def _shfl(block: Block, mods: list[str], ops: list[str]) -> None:
    if mods[0] != "sync" or mods[1] not in ("up", "down", "bfly", "idx"):
        raise Unknown("shfl." + ".".join(mods))
    target, _, predicate = ops[0].partition("|")
    values = ", ".join(f"as<uint32_t>({block.value(op)})" for op in ops[1:5])
    block.lines.append(f"bool in{len(block.lines)} = false;")
    flag = f"in{len(block.lines) - 1}"
    block.store(target, f"shuffle_{mods[1]}({values}, {flag})")
    if predicate:
        block.store(predicate, f"(unsigned long long){flag}")


def _vote(block: Block, mods: list[str], ops: list[str]) -> None:
    name = {"ballot": "__ballot_sync", "any": "__any_sync", "all": "__all_sync"}.get(mods[1] if mods[0] == "sync" else "")
    if name is None:
        raise Unknown("vote." + ".".join(mods))
    block.store(ops[0], f"(unsigned long long)(unsigned){name}(as<uint32_t>({block.value(ops[2])}), ({block.value(ops[1])}) != 0)")


def _elect(block: Block, mods: list[str], ops: list[str]) -> None:
    target, _, predicate = ops[0].partition("|")
    block.lines.append(f"unsigned leader = __builtin_ctz(__ballot_sync(as<uint32_t>({block.value(ops[1])}), 1));")
    block.store(target, "leader")
    block.store(predicate, "(unsigned long long)(leader == ::samebits::lane())")


def _cvta(block: Block, mods: list[str], ops: list[str]) -> None:
    to = "to" in mods
    if space(mods) == "shared":
        value = block.value(ops[1])
        text = f"__cvta_generic_to_shared(reinterpret_cast<void*>({value}))" if to else f"reinterpret_cast<uintptr_t>(shared_at({value}))"
        block.store(ops[0], f"(unsigned long long)({text})")
    else:
        block.store(ops[0], block.value(ops[1]))


def _mapa(block: Block, mods: list[str], ops: list[str]) -> None:
    shared, rank = space(mods) == "shared", block.typed(ops[2], "u32")
    pointer = f"shared_at({block.value(ops[1])})" if shared else f"reinterpret_cast<void*>({block.value(ops[1])})"
    there = f"::samebits::map_shared({pointer}, {rank})"
    block.store(ops[0], f"::samebits::shared_address({there})" if shared else f"reinterpret_cast<uintptr_t>({there})")


# Of an operand's type: bits, and types of the sum.
_MMA: dict[str, tuple[int, set[str]]] = {
    "f16": (16, {"f32", "f16"}),
    "bf16": (16, {"f32"}),
    "tf32": (32, {"f32"}),
    **dict.fromkeys(("e4m3", "e5m2"), (8, {"f32", "f16"})),
    **dict.fromkeys(("s8", "u8"), (8, {"s32"})),
}


def _mma(block: Block, mods: list[str], ops: list[str]) -> None:
    shape = next((re.fullmatch(r"m16n8k(\d+)", m) for m in mods if m.startswith("m16n8k")), None)
    kinds = [m for m in mods if m in TYPES]
    if "sync" not in mods or shape is None or "row" not in mods or "col" not in mods or len(kinds) != 4 or "satfinite" in mods:
        raise Unknown("mma." + ".".join(mods))
    (bits, sums), other, k = _MMA.get(kinds[1], (0, set())), _MMA.get(kinds[2], (0, set())), int(shape[1])
    alike = kinds[0] == kinds[3] and other[0] == bits and (bits == 8 or kinds[1] == kinds[2])
    if not alike or kinds[0] not in sums or k * bits not in (128, 256):
        raise Unknown("mma." + ".".join(mods))
    if [len(vector(op)) for op in ops] != [4 >> (kinds[0] == "f16"), k * bits // 64, k * bits // 128, 4 >> (kinds[0] == "f16")]:
        raise ValueError("registers")
    a, b, c = ([f"as<uint32_t>({block.value(op)})" for op in vector(ops[i])] for i in (1, 2, 3))
    block.lines.append(f"uint32_t a[] = {{{', '.join(a)}}}, b[] = {{{', '.join(b)}}}, c[] = {{{', '.join(c)}}};")
    block.lines.append(f"mma_m16n8<{cpp(kinds[1])}, {cpp(kinds[2])}, {cpp(kinds[0])}, {k}>(a, b, c);")
    for i, op in enumerate(vector(ops[0])):
        block.store(op, f"c[{i}]")


def _ldmatrix(block: Block, mods: list[str], ops: list[str]) -> None:
    count = next((int(m[1:]) for m in mods if m in ("x1", "x2", "x4")), 0)
    if not count or "m8n8" not in mods or mods[-1] != "b16":
        raise Unknown("ldmatrix." + ".".join(mods))
    block.lines.append(f"uint32_t matrix[{count}];")
    block.lines.append(f"load_matrix<{count}, {str('trans' in mods).lower()}>({block.address(ops[1], 'shared')}, matrix);")
    for i, op in enumerate(vector(ops[0])):
        block.store(op, f"matrix[{i}]")


TABLE: dict[str, Callable[[Block, list[str], list[str]], None]] = {
    **{name: _elementwise(name) for name in ("min", "max", "fma", "div", "rem", "sqrt", "rcp", "abs", "neg", "copysign")},
    **{name: _elementwise(name) for name in ("ex2", "lg2", "rsqrt", "sin", "cos", "tanh")},
    "and": _elementwise("and_"), "or": _elementwise("or_"), "xor": _elementwise("xor_"), "not": _elementwise("not_"),
    **{name: _sum(name) for name in ("add", "addc", "sub", "subc")},
    "mul": _mul,
    "mul24": _mul,
    "mad": _mad(False),
    "madc": _mad(True),
    "dp4a": _dp4a,
    "shf": _funnel,
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "popc": _mixed("popc", "T"),
    "clz": _mixed("clz", "T"),
    "brev": _mixed("brev", "T"),
    "bfind": _mixed("bfind", "T"),
    "bfe": _mixed("bfe", "T", "u32", "u32"),
    "bfi": _mixed("bfi", "T", "T", "u32", "u32"),
    "prmt": _mixed("__byte_perm", "b32", "b32", "b32"),
    "lop3": _mixed("lop3", "b32", "b32", "b32", "b32"),
    "mov": _mov,
    "cvt": _cvt,
    "setp": _setp,
    "selp": _selp,
    "ld": _ld,
    "ldu": _ld,
    "st": _st,
    "atom": _atom,
    "red": lambda block, mods, ops: _atom(block, mods, ops, result=False),
    "shfl": _shfl,
    "vote": _vote,
    "activemask": lambda block, mods, ops: block.store(ops[0], "__activemask()"),
    "bar": lambda block, mods, ops: ptx_sync.bar(block, [*mods, "aligned"], ops),
    "barrier": ptx_sync.bar,
    "membar": ptx_sync.fence,
    "fence": ptx_sync.fence,
    "cp": ptx_sync.cp,
    "mbarrier": ptx_sync.mbarrier,
    "elect": _elect,
    "setmaxnreg": lambda block, mods, ops: None,
    "cvta": _cvta,
    "mapa": _mapa,
    "griddepcontrol": lambda block, mods, ops: None,
    "mma": _mma,
    "ldmatrix": _ldmatrix,
    "trap": lambda block, mods, ops: block.lines.append("__trap();"),
    "prefetch": lambda block, mods, ops: None,
    "createpolicy": lambda block, mods, ops: block.store(ops[0], "0ull"),  # for cache hints, which change no result
    "nanosleep": lambda block, mods, ops: block.lines.append("__nanosleep(0);"),
}
