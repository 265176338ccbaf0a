"""Faulty ports: one fault at a time is put into a real port, and the simulator or the comparison of bytes must say what it is and where.

A fault is a piece of a port's text and what stands there instead; the piece must be there exactly once, so that a port that changes takes
its faults along or fails here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import emu
from emu import simt
from tests import harness
from tools import cases, legs, verify

pytestmark = pytest.mark.faults
V1, V2 = "paged_attention_v1", "paged_attention_v2"
DECODE = "paged_decode"


@dataclass(frozen=True)
class Fault:
    """``right`` in ``emu/<file>.py`` becomes ``wrong``; ``stem`` then runs ``case``. A check of kind ``found`` fires at a line that holds
    ``at`` (of a race: at one of its two lines, in either order), and its message holds ``says``; or ``found`` is the name of an output
    whose bytes differ."""

    id: str
    stem: str
    file: str
    right: str
    wrong: str
    case: str
    found: type[simt.SimtError] | str
    at: str = ""
    says: tuple[str, ...] = ()


FAULTS = [
    Fault("no-barrier-after-staging-q", V1, V1, "stage_q(p, row, staged)\n        cuda.syncthreads()", "stage_q(p, row, staged)\n",
          "f16-d64-page16", simt.DataRace, "c.fma(q[i], value_of(", ("shared array 'staged'", "nothing orders them")),
    Fault("no-barrier-before-the-softmax", V1, V1, "row.len, logits, begin)\n        cuda.syncthreads()",
          "row.len, logits, begin)\n",
          "f16-d64-page16", simt.DataRace, "c.running_max(top, logits[base + t])", ("dynamic shared array 'logits'",)),
    Fault("no-barrier-before-the-sums-are-read", V2, V2, "tokens, logits, 0, sums)\n        cuda.syncthreads()",
          "tokens, logits, 0, sums)\n",
          "f16-d64-page16", simt.DataRace, "c.sum_rows(sums[i]", ("shared array 'sums'", "a write by")),
    Fault("no-barrier-before-maxima-are-read", V1, "classic", "rows[warp] = top\n    cuda.syncthreads()", "rows[warp] = top\n",
          "f16-d64-page16", simt.DataRace, "c.ceil(c.running_max(c.running_max(rows[0]", ("shared array 'rows'",)),
    Fault("barrier-in-a-branch", V1, V1, "begins to write them\n            cuda.syncthreads()",
          "\n            if cuda.threadIdx.x < D: cuda.syncthreads()",
          "f16-d64-page16", simt.DivergentBarrier, "if cuda.threadIdx.x < D", ("threads 0-63", "threads 64-127 left the kernel")),
    Fault("lane-that-stays-away", V1, "classic", "top = c.running_max(top, cuda.shfl_xor_sync(ALL, top, other))",
          "top = c.running_max(top, cuda.shfl_xor_sync(ALL, top, other)) if lane != 31 else top",
          "f16-d64-page16", simt.MissingLane, "if lane != 31", ("lacks lanes 31",)),
    Fault("mask-of-half-a-warp", V1, "classic", "dot = c.add(dot, cuda.shfl_xor_sync(ALL, dot, other))",
          "dot = c.add(dot, cuda.shfl_xor_sync(0xFFFF, dot, other))",
          "f16-d64-page16", simt.MissingLane, "0xFFFF", ("lane 16 calls with mask 0x0000ffff",)),
    Fault("wrong-stride-that-overlaps", V1, "classic", "sums[warp * D + d] = acc", "sums[warp * (D // 2) + d] = acc",
          "f16-d64-page16", simt.DataRace, "sums[warp * (D // 2) + d]", ("write of shared array 'sums'", "a write by")),
    Fault("wrong-stride-that-leaves-the-array", V1, "classic", "sums[warp * D + d] = acc", "sums[warp * 2 * D + d] = acc",
          "f16-d64-page16", simt.OutOfBounds, "sums[warp * 2 * D + d]", ("index [256]", "shape (256,)")),
    Fault("every-warp-writes-one-row", V1, "classic", "rows[warp] = top", "rows[0] = top",
          "f16-d64-page16", simt.DataRace, "rows[0] = top", ("write of shared array 'rows'", "[0]")),
    Fault("index-before-the-array", V1, "classic", "logits[base + t - first] = logit(", "logits[base + t - first - 1] = logit(",
          "f16-d64-page16", simt.OutOfBounds, "logits[base + t - first - 1]", ("negative index [-1]",)),
    Fault("warp-that-writes-nothing", V1, "classic", "if lane == 0:\n        rows[warp] = top",
          "if lane == 0 and warp < 3:\n        rows[warp] = top",
          "f16-d64-page16", simt.UninitialisedRead, "c.ceil(c.running_max(c.running_max(rows[0]", ("shared array 'rows'", "[3]")),
    Fault("wrong-head-mapping", V1, "classic_row", "g = h // (p.q.shape[1] // p.k_cache.shape[1])", "g = h % p.k_cache.shape[1]",
          "gqa-8-2", "out"),
    Fault("head-mapping-of-mha", V1, "classic_row", "g = h // (p.q.shape[1] // p.k_cache.shape[1])", "g = h",
          "gqa-8-2", simt.OutOfBounds, "k_cache[block, row.g,", ("k_cache", "shape (")),
    Fault("last-token-left-out", V1, "classic", "min(V_VEC, tokens - t))", "min(V_VEC, tokens - t - 1))", "f16-d64-page16", "out"),
    Fault("last-page-left-out", V1, "classic", "range(warp, (tokens + PAGE - 1) // PAGE, WARPS)", "range(warp, tokens // PAGE, WARPS)",
          "f16-d64-page16", "out"),
    Fault("no-rescale-between-partitions", V2, V2, "total = c.join_scalar(total, w, exp_sums",
          "total = c.join_scalar(total, c.ONE, exp_sums",
          "bf16-window-77", "lse"),
    Fault("sum-in-another-order", V1, "classic", "return c.sum_rows(sums[i], sums[D + i], sums[2 * D + i], sums[3 * D + i])",
          "return c.sum_rows(sums[i], sums[2 * D + i], sums[D + i], sums[3 * D + i])", "f32-d64-page16", "out"),
    Fault("window-off-by-one", V1, "classic_row", "length - p.window if", "length - p.window - 1 if", "f16-window-21", "out"),
    Fault("block-that-takes-no-part", V2, "classic", "used = takes_part(p, row, begin, min(begin + PAGE, end))", "used = True",
          "f16-pattern", simt.OutOfBounds, "p.k_cache[block, row.g", ("negative index [-1,", "k_cache")),
    Fault("cap-forgotten", V1, "classic", "if p.cap != c.ZERO:", "if False:", "f16-cap", "out"),
    Fault("fp8-scales-swapped", V2, "classic_row", "k_scale = p.k_scale[", "k_scale = p.v_scale[", "f16-e4m3", "out"),
    Fault("scale-of-k-for-v", DECODE, "decode_tile", "dim, slot], row.v_scale)", "dim, slot], row.k_scale)",
          "f16-e4m3-classic-scales-split1", "out"),
    Fault("row-beyond-the-last", "store_kv", "store_kv", "if row >= slots.shape[0]:", "if row > slots.shape[0]:",
          "f32-i64", simt.OutOfBounds, "slots[row]", ("slots",)),
    Fault("padding-row-stored", "store_kv", "store_kv", "if slot < 0:", "if slot < -1:",
          "padding-in-the-middle", simt.OutOfBounds, "k_pool[slot", ("negative index [-1, 0]", "k_pool")),
    Fault("weights-exchanged", "merge_attn_states", "merge_attn_states",
          "return c.div(e_prefix, total), c.div(e_suffix, total), total, top",
          "return c.div(e_suffix, total), c.div(e_prefix, total), total, top", "f32-0-and-10", "out"),
    Fault("no-syncwarp-before-weights-are-read", DECODE, "decode_walk", "so_far, following\n        cuda.syncwarp()", "so_far, following\n",
          "f16-classic-window-33-split1", simt.DataRace, "s.weights[warp, u, 0, lane, 0]", ("shared array",)),
    Fault("plan-not-waited-for", "reshape_and_cache", "reshape_and_cache", "stored(held[u * LOAD + i], scale)\n        cuda.syncthreads()",
          "stored(held[u * LOAD + i], scale)\n", "f16-two-pages", simt.DataRace, "plan_", ("a write by",)),
]  # fmt: skip


@contextmanager
def put_in(fault: Fault) -> Iterator[tuple[ModuleType, list[str]]]:
    """The port with the fault in it, and the lines of the changed file. The real modules stay what they are."""
    changed = harness.with_fault(cases.ROOT / "emu" / f"{fault.file}.py", fault.right, fault.wrong)
    module = execute(fault.file, changed)
    if fault.file == fault.stem:
        yield module, changed.splitlines()
        return
    name = f"emu.{fault.file}"
    __import__(name)
    real = sys.modules[name]
    sys.modules[name] = module
    setattr(emu, fault.file, module)
    try:
        yield execute(fault.stem, (cases.ROOT / "emu" / f"{fault.stem}.py").read_text()), changed.splitlines()
    finally:
        sys.modules[name] = real
        setattr(emu, fault.file, real)


def execute(file: str, text: str) -> ModuleType:
    """A module of this text, of which no other knows, with the lines of the real file."""
    module = ModuleType(f"faulty.{file}")
    exec(compile(text, str(cases.ROOT / "emu" / f"{file}.py"), "exec"), module.__dict__)
    return module


def line_of(place: str, fault: Fault, changed: list[str]) -> str:
    """The text at "file:line", of the changed file where it is that one."""
    file, _, number = place.rpartition(":")
    lines = changed if Path(file).stem == fault.file else Path(file).read_text().splitlines()
    return lines[int(number) - 1]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.id for fault in FAULTS])
def test_a_fault_is_reported_as_what_it_is(fault: Fault) -> None:
    (case,) = [case for case in cases.cases(fault.stem) if case.id == fault.case]
    arguments = cases.inputs(fault.stem, case)
    mine = cases.copies(arguments)
    call = cases.kernel(fault.stem).bind(cases.views(mine))
    with put_in(fault) as (port, lines), simt.running(check=True):
        if isinstance(fault.found, str):
            port.launch(call)
        else:
            with pytest.raises(simt.SimtError) as caught:
                port.launch(call)
    if isinstance(fault.found, str):
        wanted, _, _ = verify.run_leg(fault.stem, legs.leg("ref"), arguments)
        found, _ = verify.differences(fault.stem, mine, arguments, wanted)
        assert any(text.startswith((f"{fault.found}:", f"{fault.found} ")) for text in found), found
        return
    report = caught.value.report
    assert report.kind == fault.found.kind, report.message
    found = [line_of(f"{report.file}:{report.line}", fault, lines)]
    if fault.found is simt.DataRace:
        found.append(line_of(report.other.split(", ")[-1], fault, lines))
    assert any(fault.at in line for line in found), f"{report.message}\n" + "\n".join(found)
    for text in fault.says:
        assert text in report.message


def test_the_ports_without_faults_are_silent() -> None:
    """In cases that are slow on the simulator; the others run under its checks as cases of their kernels."""
    for stem, name in {(fault.stem, fault.case) for fault in FAULTS}:
        (case,) = [case for case in cases.cases(stem) if case.id == name]
        arguments = cases.inputs(stem, case)
        mine = cases.copies(arguments)
        call = cases.kernel(stem).bind(cases.views(mine))
        if not legs.Sim().slow(call):
            continue
        with simt.running(check=True):
            importlib.import_module(f"emu.{stem}").launch(call)
        wanted, _, _ = verify.run_leg(stem, legs.leg("ref"), arguments)
        assert verify.differences(stem, mine, arguments, wanted)[0] == []
