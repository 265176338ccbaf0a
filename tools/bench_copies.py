"""Times the kernels that fill, move and read KV caches on a GPU, and embedding, against torch's indexing and the rate of a plain copy."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyref.spec import DTYPES, dtype_name
from tools import gpu_arrays, timing

BATCH = 65_536  # tokens that make 256 MB of K and V, read once and written once
G, D, PAGE = 8, 128, 16


@dataclass(frozen=True)
class Work:
    """One set of inputs: the kernel's arguments, the bytes that must be read and written, the outputs, and what else computes them."""

    arguments: dict[str, Any]
    bytes: int
    peers: dict[str, Callable[[], Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A measurement: microseconds, GB/s read plus written, its share of the rate of a plain copy, microseconds of the peers."""

    kernel: str
    cell: str
    dtype: str
    us: float
    gbs: float
    share: float
    peers: dict[str, float]


def _random(*shape: int, dtype: Any) -> Any:
    import torch

    return torch.randn(shape, device="cuda").to(dtype)


def _slots(n: int, order: str) -> Any:
    """Slots of n tokens: "prefill" fills pages in random order one after another, "decode" takes one slot of a page a token."""
    import torch

    pages = -(-n // PAGE)
    if order == "prefill":
        return (torch.randperm(pages, device="cuda")[:, None] * PAGE + torch.arange(PAGE, device="cuda")).reshape(-1)[:n].contiguous()
    return torch.randperm(n, device="cuda") * PAGE + torch.randint(0, PAGE, (n,), device="cuda")


def _written(kernel: str, n: int, order: str, dtype: Any, cache: Any, permuted: bool, fused: bool) -> Work:
    """Arguments of a writer. ``fused``: K and V are slices of qkv with 4 query heads a kv head."""
    import torch

    rows = torch.randn(n, 6 * G if fused else 2 * G, D, device="cuda").to(dtype)
    k, v = rows[:, -2 * G : -G], rows[:, -G:]
    slots, pages = _slots(n, order), (n if order == "decode" else -(-n // PAGE)) + 1
    size = torch.empty(0, dtype=cache).element_size()
    x = 16 // size
    shape = {
        "reshape_and_cache": ((pages, G, D // x, PAGE, x), (pages, G, D, PAGE)),
        "reshape_and_cache_flash": ((pages, G, PAGE, D) if permuted else (pages, PAGE, G, D),) * 2,
        "store_kvcache": ((pages, G, PAGE, D),) * 2,
    }[kernel]
    caches = [torch.zeros(one, dtype=torch.uint8 if size == 1 else cache, device="cuda").view(cache) for one in shape]
    given = {"k": k, "v": v, "slots": slots, "k_cache": caches[0], "v_cache": caches[1]}
    peers: dict[str, Callable[[], Any]] = {}
    page, place = slots // PAGE, slots % PAGE
    if kernel == "reshape_and_cache_flash" and permuted:
        given |= {"k_cache": caches[0].transpose(1, 2), "v_cache": caches[1].transpose(1, 2)}
    if cache == dtype:
        orders = {"reshape_and_cache": ((0, 3, 1, 2, 4), (0, 3, 1, 2)), "store_kvcache": ((0, 2, 1, 3),) * 2}
        views = [given[f"{name}_cache"].permute(order) for name, order in zip("kv", orders.get(kernel, ((0, 1, 2, 3),) * 2), strict=True)]

        def index() -> None:
            views[0][page, place] = k.reshape(n, *views[0].shape[2:])
            views[1][page, place] = v

        peers["torch indexing"] = index
    else:
        given |= {f"{name}_scale": torch.tensor([0.5], device="cuda") for name in "kv"}
    return Work(given, 2 * n * G * D * (rows.element_size() + size), peers)


def _gathered(sequences: int, tokens: int, dtype: Any) -> Work:
    import torch

    n, count = sequences * tokens, tokens // PAGE
    caches = [_random(sequences * count, PAGE, G, D, dtype=dtype) for _ in "kv"]
    table = torch.randperm(sequences * count, device="cuda").reshape(sequences, count)
    out = [torch.empty(n, G, D, dtype=dtype, device="cuda") for _ in "kv"]

    def index() -> None:
        for to, cache in zip(out, caches, strict=True):
            torch.index_select(cache, 0, table.reshape(-1), out=to.view(-1, PAGE, G, D))

    given = {"k": out[0], "v": out[1], "k_cache": caches[0], "v_cache": caches[1], "block_table": table.to(torch.int32),
             "offsets": torch.arange(0, n + 1, tokens, dtype=torch.int32, device="cuda")}  # fmt: skip
    return Work(given, 4 * n * G * D * caches[0].element_size(), {"torch.index_select": index})


def _copied(pairs: int, dtype: Any) -> Work:
    import torch

    w = PAGE * G * D
    caches = [_random(2 * pairs, w, dtype=dtype) for _ in "kv"]
    order = torch.randperm(2 * pairs, device="cuda")
    table = torch.stack([order[:pairs], order[pairs:]], 1).contiguous()

    def index() -> None:
        for cache in caches:
            cache[order[pairs:]] = cache[order[:pairs]]

    given = {"k_cache": caches[0], "v_cache": caches[1], "pairs": table}
    return Work(given, 4 * pairs * w * caches[0].element_size(), {"torch indexing": index})


def _embedded(n: int, w: int, vocabulary: int, dtype: Any) -> Work:
    import torch

    table, ids = _random(vocabulary, w, dtype=dtype), torch.randint(0, vocabulary, (n,), device="cuda")
    out = torch.empty(n, w, dtype=dtype, device="cuda")
    given = {"out": out, "table": table, "ids": ids, "start": 0}
    return Work(given, 2 * n * w * table.element_size(), {"torch.index_select": lambda: torch.index_select(table, 0, ids, out=out)})


def _converted(n: int, to: Any, origin: Any) -> Work:
    import torch

    x = _random(n, 1, PAGE * G * D, dtype=torch.float32).to(origin)
    out = torch.empty(x.numel() * to.itemsize, dtype=torch.uint8, device="cuda").view(to).reshape(x.shape)
    scale = torch.tensor([0.5], device="cuda")
    fp8 = to if to.itemsize == 1 else origin
    peer = (lambda: (x / scale).to(fp8)) if to == fp8 else (lambda: (x.float() * scale).to(to))
    return Work({"out": out, "x": x, "scale": scale}, x.numel() * (x.element_size() + out.element_size()), {"torch": peer})


def cells(batch: int = BATCH) -> Iterator[tuple[str, str, Callable[[], Work]]]:
    """(kernel, cell, maker of its inputs)."""
    import torch

    bf16, f32, e4m3 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
    for n in (batch, 4096, 256):
        for order in ("prefill", "decode"):
            yield "reshape_and_cache", f"{n} {order}", lambda n=n, o=order: _written("reshape_and_cache", n, o, bf16, bf16, False, False)
            for permuted in (False, True):
                name = f"{n} {order} {'hnd' if permuted else 'nhd'}"
                yield "reshape_and_cache_flash", name, (
                    lambda n=n, o=order, p=permuted: _written("reshape_and_cache_flash", n, o, bf16, bf16, p, False)
                )
            yield "store_kvcache", f"{n} {order} qkv", lambda n=n, o=order: _written("store_kvcache", n, o, bf16, bf16, False, True)
    for kernel in ("reshape_and_cache", "reshape_and_cache_flash"):
        yield kernel, f"{batch} prefill e4m3", lambda k=kernel: _written(k, batch, "prefill", bf16, e4m3, False, False)
    half, flash = batch // 2, "reshape_and_cache_flash"
    yield flash, f"{half} prefill f32", lambda: _written(flash, half, "prefill", f32, f32, False, False)
    for sequences, tokens in ((64, batch // 64), (4, 1024)):
        yield "gather_cache", f"{sequences} x {tokens}", lambda s=sequences, t=tokens: _gathered(s, t, bf16)
    for pairs in (batch // PAGE, 64):
        yield "copy_blocks", f"{pairs} pairs", lambda p=pairs: _copied(p, bf16)
    for n, w in ((batch // 2, 4096), (batch // 4, 8192), (256, 4096), (1, 4096)):
        yield "embedding", f"{n} x {w}", lambda n=n, w=w: _embedded(n, w, 131_072, bf16)
    for to, origin in ((e4m3, bf16), (bf16, e4m3), (e4m3, f32)):
        yield "convert_fp8", f"{origin} to {to}".replace("torch.", ""), lambda t=to, o=origin: _converted(batch // PAGE * 2, t, o)


def launch(kernel: str, work: Work) -> tuple[Callable[[], None], str]:
    """The kernel over these inputs, and the dtype of the rows that it moves."""
    import torch

    spec = importlib.import_module(f"pyref.{kernel}").SPEC
    call = gpu_arrays.bind(spec, **work.arguments)
    run = gpu_arrays.Launch(call)
    moved = next(array for array in call.arrays.values() if array is not None and dtype_name(array) in DTYPES)
    return lambda: run(torch.cuda.current_stream().cuda_stream), dtype_name(moved)


def measure(copy_rate: float, only: str = "") -> Iterator[Row]:
    """Times every cell whose kernel's name contains ``only``; inputs are rotated so that caches do not serve them."""
    import torch

    for kernel, cell, make in cells():
        if only not in kernel:
            continue
        torch.manual_seed(1)
        first = make()
        sets = [first, *(make() for _ in range(min(32, max(1, (1 << 28) // first.bytes))))]
        calls = [launch(kernel, work) for work in sets]
        us = timing.graph_time([call for call, _ in calls]).us
        peers = {name: timing.graph_time([work.peers[name] for work in sets]).us for name in first.peers}
        gbs = first.bytes / us * 1e-3
        yield Row(kernel, cell, calls[0][1], us, gbs, gbs / copy_rate, peers)
        del sets, calls, first
        torch.cuda.empty_cache()
