"""Faults that serving engines really had in kernels that fill, move and read caches, put back into ours: each must be caught on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_public_faults as public
from tests.test_public_faults import Fault

pytestmark = pytest.mark.faults
CLASSIC, FLASH, STORE, GATHER = "reshape_and_cache", "reshape_and_cache_flash", "store_kvcache", "gather_cache"
COPY, SWAP, EMBEDDING, FP8 = "copy_blocks", "swap_blocks", "embedding", "convert_fp8"
ROWS = "cache_rows.cuh"
FAULTS = [
    Fault("stride-of-another-tensor: V's rows with K's stride", CLASSIC, f"{CLASSIC}.cu",
          "is_v ? p.v_stride[0] : p.k_stride[0]", "p.k_stride[0]",
          ("own-strides",)),
    Fault("padded-pages: pages are taken to be dense", CLASSIC, f"{CLASSIC}.cu", "plan.page[row] * p.v_cache_stride[0]",
          "plan.page[row] * (p.g * p.d * p.page)", ("own-strides",)),
    Fault("heads-above-a-thread-limit are lost", CLASSIC, f"{CLASSIC}.cu",
          "(p.g * p.d + kColumns - 1) / kColumns;", "4;", ("40-heads-of-128",)),
    Fault("padding-slot -1 is written", CLASSIC, f"{CLASSIC}.cu",
          "if (place < 0 || in_tile >= columns) continue;", "if (in_tile >= columns) continue;",
          ("f16-i32",)),
    Fault("padding-rows: slots of rows that have none", CLASSIC, f"{CLASSIC}.cu", "lane < p.m ?", "lane < p.n ?", ("8-rows-5-slots",)),
    Fault("barrier-missing: the tile is read before it is written", CLASSIC, f"{CLASSIC}.cu",
          "    __syncthreads();\n", "", ("f16-two-pages",), ""),
    Fault("fp8-scales-swapped", CLASSIC, f"{CLASSIC}.cu", "is_v ? p.v_scale[", "!is_v ? p.v_scale[", ("f16-e4m3-two-pages",)),
    Fault("fp8-scale-forgotten", FLASH, "quantize.cuh", "q[i] = mul(x[i], by.reciprocal);", "q[i] = x[i];", ("bf16-e4m3",)),
    Fault("fp8-saturation-missing", FLASH, "dtypes.cuh",
          "rounded = rounded < OVERFLOW_BITS ? rounded : OVERFLOW_BITS;", "", ("bf16-e4m3",)),
    Fault("fp8-rounded-toward-zero", FLASH, "dtypes.cuh",
          "(significand + (1u << (shift - 1)) - 1u + ((significand >> shift) & 1u)) >> shift",
          "significand >> shift", ("bf16-e4m3",)),
    Fault("fp8-times-a-reciprocal", FP8, "quantize.cuh",
          "if (nearest <= by.suspicious) {", "if (false) {", ("f16-e4m3-all-patterns", "f32-e4m3")),
    Fault("head-layouts-mixed-up: heads for slots", FLASH, ROWS, "place * side.place", "place * side.cache_head", ("f16-nhd",)),
    Fault("head-size-not-a-multiple-of-the-vector: the tail is lost", FLASH, ROWS, " | static_cast<uint64_t>(write.d * kRow)", "",
          ("head-of-46-in-48",)),
    Fault("misaligned: V is read in the accesses of K", FLASH, ROWS, "rows(write.k) | rows(write.v)", "rows(write.k)", ("odd-v",), ""),
    Fault("padding-rows: rows that have no slot", FLASH, ROWS, "if (row < write.m) {", "{", ("8-rows-5-slots",)),
    Fault("stride-of-another-tensor: V's cache with K's strides", STORE, f"{STORE}.cu",
          "p.v_cache, p.v_cache_stride", "p.v_cache, p.k_cache_stride",
          ("own-strides",)),
    Fault("head-layouts-mixed-up: slots for heads", STORE, f"{STORE}.cu",
          "stride[0], stride[2], stride[1]", "stride[0], stride[1], stride[2]",
          ("f16-dense",)),
    Fault("descending-and-repeated-tables: pages taken to follow each other", GATHER, f"{GATHER}.cu",
          "p.block_table[n * p.block_table_stride[0] + entry]",
          "p.block_table[n * p.block_table_stride[0]] + entry", ("descending-table",)),
    Fault("length-0: an empty sequence takes its neighbour's rows", GATHER, f"{GATHER}.cu",
          "<= r) {", "< r) {", ("lengths-0-1-17", "starts")),
    Fault("barrier-missing: rows are looked for before they are found", GATHER, f"{GATHER}.cu",
          "    __syncthreads();\n", "", ("f16-nhd",), ""),
    Fault("grid-limit: pairs above 65,535 are lost", COPY, f"{COPY}.cu",
          "sb::RowTiles<>::cut(p.m,", "sb::RowTiles<>::cut(p.m < 65535 ? p.m : 65535,",
          ("65537-pairs",)),
    Fault("empty-grid is launched", COPY, f"{COPY}.cu", "if (p.m == 0) return 0;", "", ("no-pairs",), "error"),
    Fault("padded-pages: one copy over the room between pages", SWAP, f"{SWAP}.cu",
          "p.src_stride[0] == p.w && p.dst_stride[0] == p.w", "true",
          ("padded-both",), ""),
    Fault("grid-limit: pairs of further launches are those of the first", SWAP, f"{SWAP}.cu", "pairs + first,", "pairs,", ("241-pairs",)),
    Fault("stride-of-another-tensor: dst with src's", SWAP, f"{SWAP}.cu", "pages.dst_stride + piece", "pages.src_stride + piece",
          ("padded-from-host",)),
    Fault("misaligned: dst is written in the accesses of src", SWAP, f"{SWAP}.cu",
          "sb::alignment_of(pages.dst, p.pages_dst, p.dst_stride[0] * kSize)", "0", ("padded-from-host",), ""),
    Fault("embedding-id: -1 is looked up", EMBEDDING, f"{EMBEDDING}.cu", "id >= 0 && id >= p.start &&", "", ("bf16-i64",), ""),
    Fault("embedding-shard: its end without its start", EMBEDDING, f"{EMBEDDING}.cu",
          "id - p.start < p.length", "id < p.length", ("shard-9",)),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.stem}-{fault.kind.partition(':')[0]}-{i}" for i, fault in enumerate(FAULTS)])
def test_a_public_fault_is_caught(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public.test_a_public_fault_is_caught(fault, tmp_path, monkeypatch)
