"""torch.ops.samebits on a GPU: the definition's bytes, streams, devices, CUDA graphs, and that a row's bytes depend on nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kernels_cu import build
from tests.torch_help import Operators, call_of, layer, operator, some, step, tensors, torch
from tools import cases, verify

from kernels_cu import torch_ops  # isort: skip  (after torch, which may be absent)

if not torch.cuda.is_available() or not build.find_nvcc():
    pytest.skip("no nvcc" if torch.cuda.is_available() else "torch sees no GPU", allow_module_level=True)

STEMS = cases.stems()
ON_GPU = [stem for stem in STEMS if not cases.kernel(stem).cpu]
PICKED = [(stem, case) for stem in STEMS for case in some(stem, 6)]


@pytest.mark.parametrize(("stem", "case"), PICKED, ids=[f"{stem}-{case.id}" for stem, case in PICKED])
def test_the_bytes_are_those_of_the_definition(stem: str, case: cases.Case) -> None:
    (result,) = verify.run_case(stem, case, [Operators("cuda")])[1:]
    assert result.equal, result.reason


@pytest.mark.parametrize("stem", ON_GPU)
def test_torch_checks_the_operator(stem: str) -> None:
    given, named = call_of(stem, tensors(cases.inputs(stem, cases.cases(stem)[0]), "cuda"))
    if stem == "swap_blocks":
        given = (*given[:2], given[2].cpu())
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(tensor.dtype.itemsize == 1 for tensor in given if isinstance(tensor, torch.Tensor)):
        checks.remove("test_schema")  # it compares tensors by a function that torch lacks for fp8
    assert set(torch.library.opcheck(operator(stem).default, given, named, test_utils=checks).values()) == {"SUCCESS"}


def test_a_layer_on_a_gpu_is_the_layer_on_a_cpu() -> None:
    assert torch.equal(layer(**step("cuda")).cpu(), layer(**step()))


def test_compile_takes_the_whole_layer_and_keeps_its_bytes() -> None:
    eager, compiled = step("cuda"), step("cuda")
    expected = layer(**eager)
    assert torch.equal(torch.compile(layer, fullgraph=True)(**compiled), expected)
    assert torch.equal(compiled["k_cache"], eager["k_cache"])


def test_a_graph_replayed_with_other_lengths_tables_and_slots_gives_the_bytes_of_a_fresh_call() -> None:
    """Captured once with workspaces left out: its grid comes from the table's size, and lengths are read by the kernel alone."""
    held = step("cuda")
    layer(**held)  # builds
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(**held)
    for lens, tables, slots in (
        ([5, 2, 1], [[1, -1], [2, -1], [5, -1]], [20, 33, 80]),
        ([32, 0, 17], [[3, 1], [-1, -1], [5, 2]], [31, -1, 32]),
        ([0, 0, 0], [[-1, -1]] * 3, [-1, -1, -1]),
        ([1, 31, 16], [[0, -1], [4, 3], [2, -1]], [0, 62, 47]),
    ):
        fresh = step("cuda")
        fresh["lens"].copy_(torch.tensor(lens))
        fresh["tables"].copy_(torch.tensor(tables))
        fresh["slots"].copy_(torch.tensor(slots))
        for name, tensor in held.items():
            tensor.copy_(fresh[name])
        junk = torch.full((1 << 22,), float("nan"), device="cuda")  # what later work leaves in freed memory
        del junk
        graph.replay()
        expected = layer(**fresh)
        assert torch.equal(out, expected), lens
        assert torch.equal(held["k_cache"], fresh["k_cache"])


def test_the_callers_stream_is_used() -> None:
    """The side stream sleeps, then writes the query: on any other stream the kernel would read the query before."""
    made = step("cuda")
    other = torch.randn_like(made["qkv"].float()).half()
    expected = layer(**{**step("cuda"), "qkv": other})
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        made["qkv"].copy_(other)
        out = layer(**made)
    side.synchronize()
    assert torch.equal(out, expected)


def test_the_arguments_device_is_used() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    with torch.cuda.device(0):
        out = layer(**step("cuda:1"))
        assert torch.cuda.current_device() == 0
    assert out.device.index == 1
    assert torch.equal(out.cpu(), layer(**step()))


def test_two_devices_in_one_call_are_refused() -> None:
    made = step("cuda")
    with pytest.raises(ValueError, match=r"slots: got a tensor on cpu, expected one on cuda:0 \(from k\)"):
        layer(**{**made, "slots": made["slots"].cpu()})
    with pytest.raises(ValueError, match="swap_blocks: pairs: got a tensor on cuda:0, expected one on cpu"):
        torch.ops.samebits.swap_blocks(torch.zeros(2, 4), torch.zeros(2, 4, device="cuda"), torch.tensor([[0, 1]], device="cuda"))


def test_values_are_checked_where_it_is_asked_for() -> None:
    k = torch.randn(2, 8, device="cuda")
    pools = torch.zeros(2, 4, 8, device="cuda")
    slots = torch.tensor([-5, 1], device="cuda")
    with pytest.raises(ValueError, match="store_kv: slots: axis m: got slot -5 at 0"):
        torch.ops.samebits.store_kv(k, k, pools[0], pools[1], slots, checked=True)
    torch.ops.samebits.store_kv(k, k, pools[0], pools[1], slots)
    assert torch.equal(pools[:, 1], torch.stack([k[1], k[1]]))


@pytest.mark.parametrize("pinned", [False, True])
def test_pages_go_out_to_the_host_and_come_back(pinned: bool) -> None:
    cache = torch.randn(6, 64, device="cuda")
    before = cache.clone()
    host = torch.zeros(4, 64, pin_memory=pinned)
    torch.ops.samebits.swap_blocks(cache, host, torch.tensor([[5, 0], [1, 3], [2, 1]]))
    cache.zero_()
    torch.ops.samebits.swap_blocks(host, cache, torch.tensor([[0, 5], [3, 1], [1, 2]]))
    assert torch.equal(cache[[5, 1, 2]], before[[5, 1, 2]])
    assert not cache[[0, 3, 4]].any()


# --- batch invariance ------------------------------------------------------------------------------------------------------------------

ROWS, POOL, LONGEST = 1024, 2048, 2048
H, G, D, PAGE = 32, 8, 128, 16


class Batch:
    """Rows of random lengths over one pool of pages; row 0 has 1,300 tokens, which are three spans."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.q = torch.randn(ROWS, H, D, device="cuda").bfloat16()
        self.k, self.v = (torch.randn(POOL, PAGE, G, D, device="cuda").bfloat16() for _ in "kv")
        self.tables = torch.randint(0, POOL, (ROWS, LONGEST // PAGE), dtype=torch.int32, device="cuda")
        self.lens = torch.randint(0, LONGEST + 1, (ROWS,), dtype=torch.int32, device="cuda")
        self.lens[0] = 1300
        self.sinks = torch.randn(H, device="cuda")

    def classic(self) -> tuple[Any, Any]:
        """The caches as [pages, g, d/x, page, x] and [pages, g, d, page]."""
        x = 16 // self.k.element_size()
        k = self.k.unflatten(3, (-1, x)).permute(0, 2, 3, 1, 4).contiguous()
        return k, self.v.permute(0, 2, 3, 1).contiguous()

    def run(self, rows: Any, caches: tuple[Any, Any], **changed: Any) -> Any:
        """out and lse of these rows, as one tensor of bits."""
        q = self.q[rows]
        out, lse = torch.empty_like(q), torch.empty(q.shape[:2], device="cuda")
        given = (out, q, *caches, self.tables[rows], self.lens[rows], D**-0.5)
        torch.ops.samebits.paged_decode(*given, lse=lse, sinks=self.sinks, **changed)
        return torch.cat([out.view(torch.int16).int(), lse.view(torch.int32)[..., None]], -1)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 64, 131, 256, 1000, 1024])
def test_a_rows_bytes_do_not_depend_on_its_batch(batch: Batch, count: int) -> None:
    caches = torch_ops.cache_views("NHD", batch.k, batch.v)
    alone = batch.run([0], caches)[0]
    rows = torch.randperm(ROWS - 1, generator=torch.Generator().manual_seed(count))[: count - 1] + 1
    for place in {0, count // 2, count - 1}:
        mixed = [*rows[:place].tolist(), 0, *rows[place:].tolist()]
        assert torch.equal(batch.run(mixed, caches)[place], alone), f"row {place} of {count}"


def test_bytes_do_not_depend_on_the_split_or_the_bound(batch: Batch) -> None:
    caches = torch_ops.cache_views("NHD", batch.k, batch.v)
    rows = list(range(24))
    expected = batch.run(rows, caches)
    for split in range(6):
        assert torch.equal(batch.run(rows, caches, split=split), expected), f"split {split}"
    short = [row for row in range(ROWS) if batch.lens[row] <= 600][:16]
    assert torch.equal(batch.run(short, caches, max_seq_len=600), batch.run(short, caches))


def test_bytes_do_not_depend_on_the_layout(batch: Batch) -> None:
    rows = list(range(40))
    expected = batch.run(rows, torch_ops.cache_views("NHD", batch.k, batch.v))
    hnd = [cache.transpose(1, 2).contiguous() for cache in (batch.k, batch.v)]
    assert torch.equal(batch.run(rows, torch_ops.cache_views("HND", *hnd)), expected)
    assert torch.equal(batch.run(rows, batch.classic()), expected)
