"""The compile check: its plan and its verdicts, and the whole of it on small CUDA sources where an nvcc is found."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels_cu import build
from pyref.spec import Kernel, Tensor
from tools import cases, compile_check, ptx, toolkit
from tools.toolkit import Inspection, Toolkit

NVCC = next((found.nvcc for found in toolkit.toolkits()), None)
needs_nvcc = pytest.mark.skipif(NVCC is None, reason=f"no nvcc: {compile_check.INSTALL}")

# -- small sources through nvcc ------------------------------------------------------------------------------------------------------

SNIPPETS = {
    "bare a * b + c": ("p[i] = p[i] * p[i + 1] + p[i + 2];", "C2: -fmad=true and -fmad=false"),
    "bare product": ("p[i] = p[i] * p[i + 1];", "C2: no .rn"),
    "fma by name": ("p[i] = __fmaf_rn(p[i], p[i + 1], p[i + 2]);", None),
    "sum of a product by names": ("p[i] = __fadd_rn(__fmul_rn(p[i], p[i + 1]), p[i + 2]);", None),
    "division": ("p[i] = __fdiv_rn(p[i], p[i + 1]);", None),
    "expf": ("p[i] = expf(p[i]);", "C4, C5: an approximation"),
    "double": ("p[i] = static_cast<float>(static_cast<double>(p[i]) + 0.1);", "C1: float64"),
    "compare with a number": ("p[i] = p[i] > -2.0f ? p[i] : -2.0f;", None),
    "fmaxf": ("p[i] = fmaxf(p[i], p[i + 1]);", "C6"),
}


def snippet(*bodies: str) -> str:
    """A CUDA source with a kernel a line: tiny1 of the first body, and so on."""
    return "".join(f"__global__ void tiny{i}(float* p) {{ const int i = threadIdx.x; {body} }}\n" for i, body in enumerate(bodies, 1))


@needs_nvcc
def test_nvcc_output_of_small_kernels(tmp_path: Path) -> None:
    """All in one source: a run of nvcc takes a second."""
    (tmp_path / "tiny.cu").write_text(snippet(*(body for body, _ in SNIPPETS.values())))
    found = toolkit.inspect(str(NVCC), tmp_path / "tiny.cu", {}, ["sm_90"], tmp_path, compare=True)
    assert sorted(ptx.short_name(usage.entry) for usage in found.entries) == [f"tiny{i}" for i in range(1, 1 + len(SNIPPETS))]
    assert all(usage.registers > 0 for usage in found.entries)
    assert found.seconds > 0
    for line, (name, (_, rule)) in enumerate(SNIPPETS.items(), 1):
        here = [finding for finding in found.findings if finding.place.startswith(f"tiny.cu:{line}")]
        if rule is None:
            assert here == [], name
        else:
            assert any(finding.rule.startswith(rule) for finding in here), (name, found.findings)


@needs_nvcc
def test_one_ptx_gives_cubins_of_several_architectures(tmp_path: Path) -> None:
    (tmp_path / "tiny.cu").write_text(snippet("\n#if __CUDA_ARCH__ == 750\n  p[i] = p[i] * p[i + 1] + p[i + 2];\n#endif\n"))
    for arches, compare, wrong in ((["sm_75", "sm_90"], True, True), (["sm_75", "sm_90"], False, False), (["sm_80", "sm_86"], True, False)):
        folder = tmp_path / f"{arches[0]}-{compare}"
        folder.mkdir()
        found = toolkit.inspect(str(NVCC), tmp_path / "tiny.cu", {}, arches, folder, compare)
        assert [usage.arch for usage in found.entries] == arches
        assert bool(found.findings) == wrong


@needs_nvcc
def test_a_source_that_does_not_compile_raises_nvcc_s_text(tmp_path: Path) -> None:
    (tmp_path / "tiny.cu").write_text(snippet("p[i] = q;"))
    with pytest.raises(build.BuildError, match='identifier "q" is undefined'):
        toolkit.inspect(str(NVCC), tmp_path / "tiny.cu", {}, ["sm_90"], tmp_path, compare=False)


# -- the command on a kernel of its own ----------------------------------------------------------------------------------------------

TINY = Kernel("tiny", "a kernel of this test", {"x": Tensor("n | d", "T", "x")}, {"T": ("f32", "f16")}, {"SB_T": "T", "SB_D": "d"})
SOURCE = """
#include <cstdint>
#include "dtypes.cuh"
struct TinyParams { const SB_T* x; int64_t x_stride[1]; int64_t n; };
__global__ void tiny_kernel(TinyParams p, float* out) { BODY }
"""
USED = [("f16", 64), ("f16", 128), ("f16", 128), ("f32", 128), ("f32", 512)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """``tiny(body)``: the project consists of one kernel with that body; the cache is empty."""
    source = tmp_path / "tiny.cu"
    found = [cases.Case(f"{dtype}-{d}-{i}", "a test", {"T": dtype}, {"d": d}) for i, (dtype, d) in enumerate(USED)]
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cases, "stems", lambda: ["tiny"])
    monkeypatch.setattr(cases, "kernel", {"tiny": TINY}.__getitem__)
    monkeypatch.setattr(cases, "cases", {"tiny": found}.__getitem__)
    monkeypatch.setattr(build, "source", lambda stem: source)

    def write(body: str) -> None:
        source.write_text(SOURCE.replace("BODY", body).replace('"dtypes.cuh"', f'"{build.SOURCES / "dtypes.cuh"}"'))

    return write


def arguments(*given: str) -> argparse.Namespace:
    """What the command line makes of these words."""
    parser = argparse.ArgumentParser()
    compile_check.add_arguments(parser)
    return parser.parse_args(given)


def fake(version: str, *arches: str) -> Toolkit:
    """A toolkit that is only planned with."""
    return Toolkit("nvcc", version, frozenset(arches))


def test_the_plan(tiny: Callable[[str], None]) -> None:
    tiny("")
    main, second = fake("1.0.0", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"), fake("2.0.0", "sm_90", "sm_120")
    jobs, absent = compile_check.plan(["tiny"], [main, second], everything=False)
    built = [(job.toolkit.version, job.arches, compile_check.describe(job.constants)) for job in jobs]
    assert len(set(built)) == len(built)
    every, few = {"T=f16 D=128", "T=f16 D=64", "T=float D=128", "T=float D=512"}, {"T=f16 D=128", "T=float D=128"}
    found = [(version, arch, name) for version, arches, name in built for arch in arches]
    assert len(set(found)) == len(found)
    assert {name for version, arch, name in found if (version, arch) == ("1.0.0", "sm_90")} == every
    for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_100"):
        assert {name for version, each, name in found if (version, each) == ("1.0.0", arch)} == few
    by_second = {(arch, name) for version, arch, name in found if version == "2.0.0"}
    assert by_second == {(arch, name) for arch in ("sm_120", "sm_90") for name in few}
    shared = {("sm_75",), ("sm_80", "sm_86"), ("sm_89",), ("sm_90", "sm_100")}  # dtypes.cuh differs at 800 and 890
    assert {arches for _, arches, _ in built} == shared | {("sm_90",), ("sm_120",)}
    compared = {compile_check.describe(job.constants) for job in jobs if job.compare and "sm_90" in job.arches}
    assert compared == {"T=f16 D=128", "T=float D=512", "T=f16 D=64"}  # every dtype and every head size
    assert absent == []
    jobs, absent = compile_check.plan(["tiny"], [main], everything=True)
    assert len(jobs) == 6 * 4
    assert all(job.compare and len(job.arches) == 1 for job in jobs)
    assert absent == ["sm_120"]


def test_architectures_for_which_the_source_differs_do_not_share_a_ptx(tiny: Callable[[str], None]) -> None:
    tiny("\n#if __CUDA_ARCH__ >= 890 && __CUDA_ARCH__ < 1000\n#endif\n")
    tool = fake("1.0.0", *compile_check.ARCHES)
    jobs, _ = compile_check.plan(["tiny"], [tool], everything=False)
    shared = {arches: {job.compare for job in jobs if job.arches == arches} for arches in {job.arches for job in jobs}}
    assert shared == {
        ("sm_75",): {True},
        ("sm_80", "sm_86"): {True},
        ("sm_89",): {False},  # the text of sm_90, whose PTX is compared
        ("sm_90",): {True, False},
        ("sm_100", "sm_120"): {True},
    }


@needs_nvcc
def test_a_clean_kernel_passes_and_costs_nothing_again(
    tiny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_check, "ARCHES", ("sm_90",))
    tiny("out[threadIdx.x] = __fadd_rn(out[threadIdx.x], static_cast<float>(SB_D));")
    given = arguments("tiny", "--nvcc", str(NVCC), "--json", str(tmp_path / "rows.json"))
    assert compile_check.run(given) == 0
    assert "4 cubins" in capsys.readouterr().out
    rows = json.loads((tmp_path / "rows.json").read_text())
    found = [(row["constants"]["SB_D"], len(row["entries"]), row["findings"]) for row in rows]
    assert sorted(found) == [(d, 1, []) for d in ("128", "128", "512", "64")]

    def never(command: list[str]) -> str:
        raise AssertionError(f"built again: {command}")

    monkeypatch.setattr(build, "run_nvcc", never)
    assert compile_check.run(given) == 0
    tiny("out[threadIdx.x] = __fadd_rn(out[threadIdx.x], 2.0f);")
    with pytest.raises(AssertionError, match="built again"):
        compile_check.run(given)


@needs_nvcc
@pytest.mark.parametrize(
    ("body", "text", "count"),
    [
        ("out[threadIdx.x] = out[0] + out[1];", "tiny: tiny.cu:5: C2: no .rn", 2),  # and the PTX depends on -fmad
        ("out[threadIdx.x] = undefined;", "tiny: tiny.cu: does not compile", 1),
    ],
)
def test_a_wrong_kernel_fails_and_the_text_leads_to_it(
    tiny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str, text: str, count: int
) -> None:
    monkeypatch.setattr(compile_check, "ARCHES", ("sm_90",))
    monkeypatch.setattr(cases, "cases", lambda stem: [cases.Case("a", "a test", {"T": "f16"}, {"d": 64})])
    tiny(body)
    assert compile_check.run(arguments("--nvcc", str(NVCC))) == 1
    out = capsys.readouterr().out
    assert text in out
    assert "T=f16 D=64 sm_90" in out
    assert f"FAILED: {count} problems" in out


@needs_nvcc
@pytest.mark.parametrize(
    ("body", "runs", "wrong"),
    [
        ("out[threadIdx.x] = sb::to_f32(p.x[SB_D]);", 1, {}),
        ('static_assert(SB_D != 128, "unfit");', 3, {"T=f16 D=128": "does not compile"}),  # all, and then each alone
    ],
)
def test_specialisations_are_built_together_and_told_apart(
    tiny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, body: str, runs: int, wrong: dict[str, str]
) -> None:
    tiny(body)
    commands = []
    plain = build.run_nvcc
    monkeypatch.setattr(build, "run_nvcc", lambda command: (commands.append(command), plain(command))[1])
    constants = ({"SB_T": "sb::f16", "SB_D": d} for d in ("64", "128"))
    batch = [compile_check.Job("tiny", each, ("sm_75", "sm_90"), toolkit.toolkit(str(NVCC)), compare=False) for each in constants]
    results = compile_check.check(batch)
    assert len(commands) == runs
    found = {compile_check.describe(job.constants): result for job, result in zip(batch, results, strict=True)}
    assert {name: finding.rule for name, result in found.items() for finding in result.findings} == wrong
    for name, result in found.items():
        assert [(ptx.short_name(entry.entry), entry.arch) for entry in result.entries] == [
            ("tiny_kernel", arch) for arch in ("sm_75", "sm_90") if name not in wrong
        ]


def test_jobs_that_differ_in_constants_alone_make_a_batch(tiny: Callable[[str], None]) -> None:
    tiny("")
    jobs, _ = compile_check.plan(["tiny"], [fake("1.0.0", *compile_check.ARCHES), fake("2.0.0", "sm_90")], everything=False)
    batches = compile_check.batches(jobs * compile_check.BATCH)
    assert sorted(str(job) for batch in batches for job in batch) == sorted(map(str, jobs * compile_check.BATCH))
    assert max(map(len, batches)) == compile_check.BATCH
    for batch in batches:
        assert len({(job.arches, job.toolkit, job.compare) for job in batch}) == 1


def test_spills_fail_up_to_a_head_size(
    tiny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny("")
    spilled = ptx.Usage("_Z11tiny_kernel10TinyParamsPf", arch="sm_90", registers=255, stack=8, spill_stores=8, spill_loads=4, shared=0)
    monkeypatch.setattr(toolkit, "inspect", lambda *given: Inspection(9.5, [spilled]))
    monkeypatch.setattr(toolkit, "toolkits", lambda given: [fake("1.0.0", *compile_check.ARCHES)])
    monkeypatch.setattr(cases, "cases", lambda stem: [cases.Case("a", "a test", {"T": "f16"}, {"d": d}) for d in (264, 512)])
    assert compile_check.run(arguments()) == 0
    out = capsys.readouterr().out
    assert "slow: 5 builds took more than 5 s, the longest 9.5 s" in out
    assert "second toolkit: not run" in out
    monkeypatch.setattr(cases, "cases", lambda stem: [cases.Case("a", "a test", {"T": "f16"}, {"d": 256})])
    assert compile_check.run(arguments()) == 1
    assert "tiny: tiny_kernel: registers spill" in capsys.readouterr().out


def test_an_architecture_without_toolkit_fails(
    tiny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny("")
    monkeypatch.setattr(toolkit, "inspect", lambda *given: Inspection(0.1))
    monkeypatch.setattr(toolkit, "toolkits", lambda given: [fake("1.0.0", "sm_90")])
    assert compile_check.run(arguments()) == 1
    assert "sm_120: not built: no toolkit here compiles for it" in capsys.readouterr().out


def test_no_nvcc_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(toolkit, "toolkits", lambda given: [])
    assert compile_check.run(arguments()) == 1
    out = capsys.readouterr().out
    assert "not run: no nvcc" in out
    assert "pip install" in out


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no kernel 'absent'"):
        compile_check.run(arguments("absent"))
    absent, silent = tmp_path / "absent", tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    for path in (absent, silent):
        with pytest.raises(ValueError, match=f"{path} does not run as nvcc"):
            toolkit.toolkits([str(path)])


def test_the_machine_s_toolkit_comes_first_and_no_version_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def make(place: str, version: str) -> str:
        nvcc = tmp_path / place / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(f'#!/bin/sh\ncase $1 in --version) echo "Build V{version}";; --list-gpu-code) echo sm_90; echo sm_100;; esac\n')
        nvcc.chmod(0o755)
        return str(nvcc)

    machine, wheel = make("machine", "12.9.1"), make("lib/nvidia/cu13", "13.5.37")
    other = make("lib/nvidia/cu14", "12.9.1")
    monkeypatch.setattr(build, "wheel_nvccs", lambda: [wheel, other])
    monkeypatch.setattr(build, "find_nvcc", lambda: machine)
    arches = frozenset({"sm_90", "sm_100"})
    assert toolkit.toolkits() == [Toolkit(machine, "12.9.1", arches), Toolkit(wheel, "13.5.37", arches)]
    assert toolkit.toolkits([wheel]) == [Toolkit(wheel, "13.5.37", arches)]
    monkeypatch.setattr(build, "find_nvcc", lambda: None)
    assert [found.version for found in toolkit.toolkits()] == ["13.5.37", "12.9.1"]


def test_the_same_problem_is_told_once(tiny: Callable[[str], None]) -> None:
    tiny("")
    finding = ptx.Finding("contract.cuh:9", "C2: no .rn", "`mul.f32` (line 3 of the PTX, in k)")
    jobs, _ = compile_check.plan(["tiny"], [fake("1.0.0", "sm_90")], everything=False)
    results = [(job, Inspection(1.0, findings=[dataclasses.replace(finding, detail=f"at {i}"), finding])) for i, job in enumerate(jobs)]
    assert compile_check.problems(results) == ["tiny: contract.cuh:9: C2: no .rn: at 0 (T=f16 D=64 sm_90, nvcc 1.0.0 and 3 more builds)"]


@pytest.mark.parametrize("stem", cases.stems())
def test_specialisations_are_those_that_the_inputs_bind(stem: str) -> None:
    kernel = cases.kernel(stem)
    first: dict[str, cases.Case] = {}
    for case in cases.cases(stem):
        first.setdefault(str(kernel.constants_of(case.dtypes, case.shape)), case)
    assert len(first) == len(compile_check.specialisations(stem))
    for case in list(first.values())[:4]:
        call = kernel.bind(cases.views(cases.inputs(stem, case)))
        assert kernel.constants_of(case.dtypes, case.shape) == call.constants(), case.id
