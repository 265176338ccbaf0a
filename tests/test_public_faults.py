"""Faults that serving engines really had (public issues and fixes), put back into our CUDA sources: each must be caught on a CPU.

A fault is a replacement of text in a copy of ``kernels_cu``. It is caught when a named case returns other bytes on the host leg, in any
of its orders, or ends in an error; the message must lead to the cause (an output, an index, a launch).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernels_cu import build
from tests import harness, test_merge_attn_states
from tools import cases, legs, verify

pytestmark = pytest.mark.faults
V1, V2, MERGE, STORE = "paged_attention_v1", "paged_attention_v2", "merge_attn_states", "store_kv"


@dataclass(frozen=True)
class Fault:
    """``kind``: what went wrong in public; ``file``: where ``old`` becomes ``new``; ``seen``: cases of ``stem`` of which one must catch it."""

    kind: str
    stem: str
    file: str
    old: str
    new: str
    seen: tuple[str, ...]
    says: str = "differ"


CLASSIC, ROW, SHAPE = "classic.cuh", "classic_row.cuh", "classic_shape.cuh"
FAULTS = [
    Fault("nan-in-unused-slots: the tail of the last page is multiplied by weights of 0", V1, CLASSIC,
          "if (low <= t && t + kVVec <= high) {", "if (true) {", ("f16-d64-page16",)),
    Fault("one-past-the-vector: a length that is no multiple of 8", V1, CLASSIC,
          "if (low <= t && t + kVVec <= high) {", "if (low <= t && t + kVVec <= high + 1) {", ("f16-d64-page16", "every-page-edge")),
    Fault("last-token-dropped", V1, CLASSIC, "t + e < high) {", "t + e < high - 1) {", ("f16-d64-page16",)),
    Fault("last-page-dropped", V1, CLASSIC, "page * kPage < tokens; page += kWarps", "(page + 1) * kPage <= tokens; page += kWarps", ("f16-d64-page16",)),
    Fault("last-partition-dropped", V2, f"{V2}.cu", "part * kPartition < row.len;", "part == 0 || (part + 1) * kPartition <= row.len;",
          ("length-1025",)),
    Fault("rescale-between-partitions-omitted", V2, CLASSIC, "w = pow2_weight(sub(m, top));", "w = 1.0f;", ("f16-tiers-up", "f16-tiers-mixed")),
    Fault("scale-omitted", V1, CLASSIC, "return mul(dot, p.scale2);", "return dot;", ("f16-d64-page16",)),
    Fault("bias-off-by-one, which softmax hides from the output", V1, CLASSIC, "t - (row.len - 1)", "t - row.len", ("f16-alibi",)),
    Fault("bias-of-rounded-numbers: the difference of two floats for the float of a difference", V2, CLASSIC,
          "static_cast<float>(t - (row.len - 1))", "sub(static_cast<float>(t), static_cast<float>(row.len - 1))", ("alibi-beyond-2-to-the-24",)),
    Fault("bias-rounded-toward-zero", V2, CLASSIC, "static_cast<float>(t - (row.len - 1))", "__int2float_rz(t - (row.len - 1))",
          ("alibi-beyond-2-to-the-24",)),
    Fault("head-mapping: the group is taken for the number of kv heads", V1, ROW,
          "static_cast<unsigned>(p.h) / static_cast<unsigned>(p.g)", "static_cast<unsigned>(p.g)", ("gqa-28-4", "gqa-7-1", "gqa-32-8")),
    Fault("stride-of-another-tensor: V is read with K's page stride", V1, CLASSIC,
          "static_cast<int64_t>(table[page]) * p.v_cache_stride[0]", "static_cast<int64_t>(table[page]) * p.k_cache_stride[0]", ("kv-strides-differ",)),
    Fault("stride-of-another-tensor: V's heads lie where K's do", V1, ROW, "p.v_cache + kv_head * p.v_cache_stride[1]",
          "p.v_cache + kv_head * p.k_cache_stride[1]", ("kv-heads-first", "k-heads-first", "kv-strides-differ")),
    Fault("padded-pages: pages are taken to be dense", V1, CLASSIC, "(used ? row.table[page] : int64_t{0}) * p.k_cache_stride[0]",
          "(used ? row.table[page] : int64_t{0}) * (p.g * kD * kPage)", ("padded-pages",)),
    Fault("padded-lse: rows are taken to be dense", V1, CLASSIC, "p.lse[n * p.lse_stride[0] + h * p.lse_stride[1]] = canonical_nan(",
          "p.lse[n * p.h + h] = canonical_nan(", ("lse-heads-first", "lse-padded")),
    Fault("padded-tables: rows are taken to be dense", V2, ROW, "n * p.block_tables_stride[0]", "n * p.max_pages", ("tables-padded",)),
    Fault("padded-workspace: its partitions are taken to be those that are needed", V2, f"{V2}.cu", "row_at = (row.n * p.h + row.h) * p.parts",
          "row_at = (row.n * p.h + row.h) * ((p.max_seq_len + kPartition - 1) / kPartition)", ("workspace-strided",)),
    Fault("q-stride: q is taken to be dense", V1, CLASSIC, "p.q + row.n * p.q_stride[0]", "p.q + row.n * (p.h * kD)", ("f16-q-of-qkv",)),
    Fault("shared-memory: logits sized by the wrong type", V1, f"{V1}.cu", "static_cast<size_t>(p.max_seq_len) * sizeof(float)",
          "static_cast<size_t>(p.max_seq_len) * sizeof(T) / 2", ("f16-mixed-lengths", "length-12289", "exact-max-seq-len", "length-1025")),
    Fault("shared-memory: above 48 KiB without opt-in", V1, f"{V1}.cu", "if (fixed + bytes > 48 * 1024) {", "if (false) {", ("length-12289",), "error 1"),
    Fault("grid.y above 65,535", V1, SHAPE, "kMaxGrid = 65535", "kMaxGrid = 1 << 20", ("many-sequences",), "error 1"),
    Fault("length-0: an empty row is not written", V1, f"{V1}.cu", "    finish_empty(p, row.n, row.h);\n", "", ("f16-mixed-lengths",), "sentinel"),
    Fault("barrier-missing: weights are read before they are written", V1, CLASSIC,
          "    if (lane == 0) rows[kWarps + warp] = sum;\n    __syncthreads();\n", "    if (lane == 0) rows[kWarps + warp] = sum;\n", ("f16-d64-page16",)),
    Fault("barrier-missing: sums are read before they are written", V1, f"{V1}.cu",
          "begins to write them\n        __syncthreads();\n", "\n", ("f16-d64-page16",)),
    Fault("barrier-missing: logits are read before they are written", V2, f"{V2}.cu",
          "first + tokens, logits);\n    __syncthreads();\n", "first + tokens, logits);\n", ("f16-d64-page16",)),
    Fault("stale-workspace: a partition in which no token takes part is joined", V2, f"{V2}.cu",
          "if (!takes_part(p, row, first, smaller(first + kPartition, row.len))) continue;", "", ("pattern-skips-partitions",)),
    Fault("contraction: a product and a sum are fused", V1, CLASSIC, "s = add(s, mul(p.alibi_slopes[row.h], distance));",
          "s = fma(dot, p.scale, mul(p.alibi_slopes[row.h], distance));", ("f32-alibi-d80",)),
    Fault("fp8-scale-twice", V1, SHAPE, "values.at[e] = mul(values.at[e], scale);", "values.at[e] = mul(mul(values.at[e], scale), scale);",
          ("f16-e4m3",)),
    Fault("fp8-scale-forgotten", V2, SHAPE, "values.at[e] = mul(values.at[e], scale);", ";", ("bf16-e5m2",)),
    Fault("fp8-scales-swapped", V1, ROW, "row.k_scale = p.k_scale[", "row.k_scale = p.v_scale[", ("f16-e4m3", "f32-e5m2")),
    Fault("fp8-scale-of-head-0 for all heads", V2, ROW, "p.v_scales == 1 ? 0 : kv_head", "0", ("f16-e4m3-head-scales",)),
    Fault("fp8-e4m3 with the bias of its variant without infinities and -0", V1, "dtypes.cuh", "0x1.0p+120f", "0x1.0p+119f", ("f32-e4m3-finite-v",)),
    Fault("cap-forgotten", V1, CLASSIC, "if (p.cap != 0.0f) s = ", "if (false) s = ", ("f16-cap",)),
    Fault("cap-of-base-2: the base is changed before the cap", V1, CLASSIC, "tanh(div(s, p.cap))", "tanh(div(logits2(s), p.cap))", ("bf16-cap",)),
    Fault("cap-times-a-reciprocal", V2, CLASSIC, "tanh(div(s, p.cap))", "tanh(mul(s, div(1.0f, p.cap)))", ("f32-cap", "f32-cap-alibi")),
    Fault("window-off-by-one", V1, ROW, "len - static_cast<int>(p.window)", "len - 1 - static_cast<int>(p.window)", ("f16-window-21",)),
    Fault("window-before: tokens of the first vector are multiplied by weights of 0", V2, CLASSIC, "if (low <= t && t + kVVec <= high) {",
          "if (t + kVVec <= high) {", ("f16-window-21",)),
    Fault("window-in-32-bits", V1, ROW, "p.window > 0 && p.window < len", "p.window > 0 && static_cast<int>(p.window) < len",
          ("window-beyond-32-bits",)),
    Fault("pattern-of-kv-heads where it slides with query heads", V1, ROW, "(p.tp_rank * p.h + row.h) * step",
          "(p.tp_rank * p.g + kv_head_of(p)) * step", ("f16-pattern-slides",)),
    Fault("pattern-without-rank", V2, ROW, "(p.tp_rank * p.h + row.h) * step", "row.h * step", ("pattern-of-rank-3",)),
    Fault("pattern-one-local-block-more", V1, ROW, "> static_cast<unsigned>(row.len - 1) / size", ">= static_cast<unsigned>(row.len - 1) / size",
          ("f16-pattern", "f16-pattern-slides")),
    Fault("pattern-skipped-block is multiplied by weights of 0", V1, CLASSIC,
          "if (!takes_part(p, row, first + page * kPage, first + smaller(page * kPage + kPage, tokens))) continue;", "", ("f16-pattern",)),
    Fault("pattern-empty-row: none of its tokens takes part", V1, f"{V1}.cu", "if (!takes_part(p, row, 0, row.len)) {", "if (row.len <= 0) {",
          ("pattern-without-local-blocks",)),
    Fault("nan-logit-wins-the-maximum", V2, "contract_math.cuh", "return x > m ? x : m;", "return x > m || x != x ? x : m;", ("f16-nan-logit",)),
    Fault("two-empty-sides", MERGE, f"{MERGE}.cu", "merge.prefix = sb::magnitude(prefix_lse) != sb::kInf;", "merge.prefix = true;", ("f16-two-empty",)),
    Fault("plus-infinity-is-not-empty", MERGE, f"{MERGE}.cu", "merge.suffix = sb::magnitude(suffix_lse) != sb::kInf;",
          "merge.suffix = suffix_lse != -sb::kInf;", ("f16-kinds", "f32-kinds")),
    Fault("lse-base-2-for-base-e", MERGE, f"{MERGE}.cu", "sb::exp(sb::sub(prefix_lse, merge.top))", "sb::exp2(sb::sub(prefix_lse, merge.top))",
          ("f32-0-and-10",)),
    Fault("lse-base-2-for-base-e: in the merged LSE alone", MERGE, f"{MERGE}.cu", "sb::log(merge.sum)", "sb::log2(merge.sum)", ("f32-0-and-10",)),
    Fault("padded-lse: rows are taken to be dense", MERGE, f"{MERGE}.cu", "p.prefix_lse[h * p.prefix_lse_stride[0]", "p.prefix_lse[h * p.n",
          ("lse-padded", "lse-transposed")),
    Fault("padding-slot -1 is written", STORE, f"{STORE}.cu", "if (slot < 0) return;", "", ("padding-in-the-middle",), ""),
    Fault("slots-of-32-bits: -1 is taken for 2^32 - 1", STORE, f"{STORE}.cu", "static_cast<int64_t>(p.slots[row])",
          "static_cast<uint32_t>(p.slots[row])", ("8-rows-5-slots-i32",), "which is not mapped; the leg host-check names the line"),
    Fault("padding-rows: all rows are stored, not those that have slots", STORE, f"{STORE}.cu", "if (row >= p.m) return;", "if (row >= p.r) return;",
          ("8-rows-5-slots",), ""),
    Fault("vector-of-the-wrong-width: tails are lost", STORE, "access.cuh", "static_cast<int>(bits & (~bits + 1))", "16", ("f16-w12-access8",), ""),
    Fault("stride-of-another-tensor: V's pool is addressed with K's stride", STORE, f"{STORE}.cu", "slot * p.v_pool_stride[0]", "slot * p.k_pool_stride[0]",
          ("own-strides",)),
]  # fmt: skip


def put_in(fault: Fault, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds come from a copy of the sources in ``folder`` that has the fault; they are kept like any others."""
    for file in [*build.SOURCES.glob("*.cu"), *build.SOURCES.glob("*.cuh")]:
        shutil.copy(file, folder / file.name)
    (folder / fault.file).write_text(harness.with_fault(build.SOURCES / fault.file, fault.old, fault.new))
    monkeypatch.setenv("SAMEBITS_CACHE", str(build.cache_folder().parent))
    monkeypatch.setattr(build, "SOURCES", folder)


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.stem}-{fault.kind.partition(':')[0]}-{i}" for i, fault in enumerate(FAULTS)])
def test_a_public_fault_is_caught(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(fault, tmp_path, monkeypatch)
    by_id = {case.id: case for case in cases.cases(fault.stem)}
    reasons = []
    for order in ("forward", *harness.ORDERS):
        for case_id in fault.seen:
            (result,) = verify.run_case(fault.stem, by_id[case_id], [legs.Host(order)])[1:]
            reasons += [result.reason or ""] if result.equal is False else []
            if any(fault.says in reason for reason in reasons):
                return
    pytest.fail(f"{fault.kind}: seen as {reasons}, expected {fault.says!r}" if reasons else f"nobody saw the fault: {fault.kind}")


def test_the_checked_leg_names_the_line_of_a_wild_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = [fault for fault in FAULTS if fault.kind.startswith("slots-of-32-bits")]
    put_in(fault, tmp_path, monkeypatch)
    (case,) = [case for case in cases.cases(STORE) if case.id in fault.seen]
    (result,) = verify.run_case(STORE, case, [legs.HostCheck()])[1:]
    line = next(i for i, text in enumerate((tmp_path / fault.file).read_text().splitlines(), 1) if "to_k[i] =" in text)
    assert f"{fault.file}:{line}: out of bounds in store_rows" in (result.reason or ""), result.reason


@pytest.mark.parametrize("side", ["prefix", "suffix"])
def test_reading_the_output_of_an_empty_side_is_caught(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of the result shows it."""
    fault = Fault("reads an empty side", MERGE, f"{MERGE}.cu", f"pack < packs && merge.{side}", "pack < packs", ())
    put_in(fault, tmp_path, monkeypatch)
    found = test_merge_attn_states.reports_of_unread_sides(test_merge_attn_states.by_id("f16-two-empty"))
    assert found
    assert all("uninitialised read in merge_rows" in text and f"{side}_out[" in text for text in found), found
