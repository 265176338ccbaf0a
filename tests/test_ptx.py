"""The reader of PTX and of ptxas's account, on constructed texts."""

from __future__ import annotations

import pytest

from tools import ptx

FORBIDDEN = {
    "ex2.approx.ftz.f32 %f1, %f2": "C4, C5",
    "ex2.approx.f32 %f1, %f2": "C4, C5",
    "ex2.f16 %rs1, %rs2": "C4",
    "lg2.approx.f32 %f1, %f2": "C4, C5",
    "tanh.approx.f32 %f1, %f2": "C4, C5",
    "rcp.approx.ftz.f32 %f1, %f2": "C4, C5",
    "sqrt.approx.f32 %f1, %f2": "C4, C5",
    "rsqrt.approx.f32 %f1, %f2": "C4, C5",
    "div.full.f32 %f1, %f2, %f3": "C4, C5",
    "div.approx.f32 %f1, %f2, %f3": "C4, C5",
    "mul.rn.ftz.f32 %f1, %f2, %f3": "C1",
    "setp.gt.ftz.f32 %p1, %f2, %f3": "C1",
    "cvt.ftz.f32.f16 %f1, %rs1": "C1",
    "add.rn.f64 %fd1, %fd2, %fd3": "C1",
    "cvt.f64.f32 %fd1, %f1": "C1",
    "ld.global.f64 %fd1, [%rd1]": "C1",
    "mul.f32 %f1, %f2, %f3": "C2",
    "add.f32 %f1, %f2, %f3": "C2",
    "sub.f32 %f1, %f2, %f3": "C2",
    "mul.f32x2 %rd1, %rd2, %rd3": "C2",
    "fma.rz.f32 %f1, %f2, %f3, %f4": "C1",
    "add.rm.f32 %f1, %f2, %f3": "C1",
    "mul.rn.sat.f32 %f1, %f2, %f3": "C1",
    "cvt.sat.f32.f32 %f1, %f2": "C1",
    "fma.rn.relu.f16 %rs1, %rs2, %rs3, %rs4": "C1",
    "add.f16 %rs1, %rs2, %rs3": "C1",
    "fma.rn.bf16x2 %r1, %r2, %r3, %r4": "C1",
    "max.f32 %f1, %f2, %f3": "C6",
    "max.f32 %f1, %f2, 0f80000000": "C6",
    "min.f32 %f1, %f2, 0f00000000": "C6",
    "max.f32 %f1, %f2, 0fFFC00000": "C6",
    "min.NaN.f32 %f1, %f2, %f3": "C6",
    "atom.global.add.f32 %f1, [%rd1], %f2": "C8",
    "red.global.add.f32 [%rd1], %f2": "C8",
    "redux.sync.max.f32 %f1, %f2, 0xffffffff": "C8",
    "cvt.rz.f16.f32 %rs1, %f1": "C11",
    "cvt.rz.f32.s64 %f1, %rd1": "C11",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2}": "C1",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1": "C1",
}
ALLOWED = """
    mul.rn.f32 %f1, %f2, %f3;
    fma.rn.f32 %f1, %f2, %f3, 0f3F800000;
    fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;
    div.rn.f32 %f1, %f2, %f3;
    rcp.rn.f32 %f1, %f2;
    sqrt.rn.f32 %f1, %f2;
    neg.f32 %f1, %f2;
    abs.f32 %f1, %f2;
    setp.gt.f32 %p1, %f2, %f3;
    selp.f32 %f1, %f2, %f3, %p1;
    cvt.rn.f16.f32 %rs1, %f1;
    cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;
    cvt.f32.f16 %f1, %rs1;
    cvt.rzi.s32.f32 %r1, %f1;
    cvt.rpi.f32.f32 %f1, %f2;
    cvt.rn.f32.s64 %f1, %rd1;
    cvt.sat.u8.s32 %rs1, %r1;
    mad.lo.s64 %rd1, %rd2, %rd3, %rd4;
    max.f32 %f1, %f2, 0fFF800000;
    max.s32 %r1, %r2, %r3;
    atom.global.add.u32 %r1, [%rd1], 1;
    ld.global.nc.L1::no_allocate.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;
    @!%p1 bra $L__BB0_2;
"""


def entry(body: str) -> str:
    """A PTX text with one entry of that body."""
    head = "// mul.f32 in a comment\n.version 9.0\n.target sm_90\n\n.visible .entry _ZN2sb7partialILi4EEEv6Params(\n\t.param .u64 a\n)\n"
    return f"{head}{{\n\t.reg .f32 \t%f<9>;\n{body}\n\tret;\n}}\n"


@pytest.mark.parametrize("instruction", FORBIDDEN)
def test_a_forbidden_instruction_is_found(instruction: str) -> None:
    for body in (f"\t{instruction};", f"\t@%p1 {instruction};", f"$L__BB0_1:\n\t{{ {instruction}; }}"):
        (found,) = ptx.audit(entry(ALLOWED + body))
        assert found.rule.startswith(FORBIDDEN[instruction] + ": ")
        assert f"`{instruction.partition('{')[0].strip()}" in found.detail
        assert found.place == "partial<4>"


def test_every_rule_is_shown_to_find_something() -> None:
    opcodes = [instruction.split()[0] for instruction in FORBIDDEN]
    first = [next(i for i, (pattern, _, _) in enumerate(ptx.RULES) if pattern.search(opcode)) for opcode in opcodes]
    assert sorted(set(first)) == list(range(len(ptx.RULES)))


def test_a_clean_text_passes_and_every_instruction_of_it_is_read() -> None:
    text = entry(ALLOWED)
    assert ptx.audit(text) == []
    wanted = [line.split()[0].rstrip(";") for line in ALLOWED.replace("@!%p1 ", "").split("\n") if line.strip()]
    assert [instruction.opcode for instruction in ptx.instructions(text)] == [*wanted, "ret"]


def test_findings_name_the_lines_of_ptx_and_source() -> None:
    body = "\t.loc 1 7 3\n\tmov.f32 %f1, %f2;\n\t.loc\t2 30 5, function_name $L__info_string0, inlined_at 1 9 2\n\tmul.f32 %f1, %f2, %f3;"
    text = entry(body) + '.file 1 "/a/b/kernel.cu"\n.file 2 "/a/contract.cuh"\n'
    (found,) = ptx.audit(text)
    assert found.place == "contract.cuh:30, inlined at kernel.cu:9"
    line = text.splitlines().index("\tmul.f32 %f1, %f2, %f3;") + 1
    assert f"(line {line} of the PTX, in partial<4>)" in found.detail


def test_a_call_is_no_float_instruction_and_a_function_is_named() -> None:
    call = "\t{\n\t.param .b32 param0;\n\tst.param.f32 [param0+0], %f1;\n\tcall.uni (retval0),\n\thelper,\n\t(\n\tparam0\n\t);\n\t}"
    function = ".func (.param .b32 func_retval0) helper(\n\t.param .b32 a\n)\n{\n\tadd.f32 %f1, %f2, %f3;\n}\n"
    (found,) = ptx.audit(function + entry(call))
    assert found.place == "helper"


def test_difference_ignores_names_that_hold_process_ids_and_nothing_else() -> None:
    one = entry("\tmov.u64 %rd1, _ZN39_INTERNAL_f92ed56e_4_s_cu_2cceab2c_705541_GLOBAL__N__f92ed56e_4_s_cu_2cceab2c_70556helperEff;")
    other = entry("\tmov.u64 %rd1, _ZN40_INTERNAL_f92ed56e_4_s_cu_2cceab2c_1170642_GLOBAL__N__f92ed56e_4_s_cu_2cceab2c_117066helperEff;")
    assert one != other
    assert ptx.difference(one, other) is None
    found = ptx.difference(entry("\tfma.rn.f32 %f1, %f2, %f3, %f4;"), entry("\tmul.rn.f32 %f5, %f2, %f3;\n\tadd.rn.f32 %f1, %f5, %f4;"))
    assert found is not None
    assert found.rule.startswith("C2")
    assert "`fma.rn.f32 %f1, %f2, %f3, %f4` and `mul.rn.f32 %f5, %f2, %f3`" in found.detail
    assert ptx.difference(entry("\tmov.f32 %f1, %f2;"), entry("\tmov.f32 %f1, %f3;")) is not None


PTXAS = """ptxas info    : 20 bytes gmem
ptxas info    : Compiling entry function '_Z4rowsI5uint4Li4EEvPT_' for 'sm_90'
ptxas info    : Function properties for _Z4rowsI5uint4Li4EEvPT_
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for helper
    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_86'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers
"""


def test_usages_are_read_with_the_functions_that_an_entry_calls() -> None:
    rows, plain = ptx.usages(PTXAS)
    assert rows == ptx.Usage("_Z4rowsI5uint4Li4EEvPT_", "sm_90", registers=168, stack=16, spill_stores=12, spill_loads=16, shared=4096)
    assert plain == ptx.Usage("plain", "sm_86", 16, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="says nothing of plain"):
        ptx.usages(PTXAS.replace("Used 16 registers", ""))


@pytest.mark.parametrize(
    ("mangled", "short"),
    [
        ("_Z4rowsI5uint4Li4EEvPT_", "rows<uint4, 4>"),
        ("_ZN2sb7partialILi4ELb1EEEv6Params", "partial<4, 1>"),
        ("_Z6reduce6Params", "reduce"),
        ("_Z10store_rowsIjEv13StoreKvParams", "store_rows<uint32_t>"),
        ("_ZL6reduce6Params", "reduce"),
        ("plain", "plain"),
        ("", "no function"),
    ],
)
def test_short_names(mangled: str, short: str) -> None:
    assert ptx.short_name(mangled) == short
