"""Times the kernels that fill, move and read KV caches, and embedding, against torch's indexing and the rate of a plain copy.

Every peer writes the same outputs as the kernel; both are run over the very tensors that are timed, and their bytes are compared, before
anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels_cu.torch_arrays import describe
from pyref.spec import dtype_name
from tools import cases, timing

BATCH = 65_536  # tokens that make 256 MB of K and V, read once and written once
G, D, PAGE = 8, 128, 16
PAGE_ELEMENTS = PAGE * G * D


@dataclass(frozen=True)
class Work:
    """One set of inputs: the kernel's arguments (first a tensor that it moves), the bytes that must be read and written (of a copy over the
    link to the host: those that cross it), and what else computes the same outputs."""

    arguments: Mapping[str, Any]
    bytes: int
    peers: Mapping[str, Callable[[], None]]


@dataclass(frozen=True)
class Cell:
    """A kernel over inputs that ``make`` makes anew; ``linked``: they cross the link to the host, whose rate is not the memory's."""

    kernel: str
    name: str
    make: Callable[[], Work]
    linked: bool = False


class Inputs:
    """Makes the inputs of cells on a device ("cuda"; "cpu" to try them out)."""

    def __init__(self, device: str) -> None:
        self.device = device

    def random(self, *shape: int, dtype: Any) -> Any:
        import torch

        return torch.randn(shape, device=self.device).to(dtype)

    def zeros(self, *shape: int, dtype: Any) -> Any:
        import torch

        return torch.zeros(*shape[:-1], shape[-1] * dtype.itemsize, dtype=torch.uint8, device=self.device).view(dtype)  # fp8 too

    def permutation(self, n: int) -> Any:
        import torch

        return torch.randperm(n, device=self.device)

    def slots(self, n: int, order: str) -> Any:
        """Slots of n tokens: "prefill" fills pages in random order one after another, "decode" takes one slot of a page a token."""
        import torch

        if order == "decode":
            return self.permutation(n) * PAGE + torch.randint(0, PAGE, (n,), device=self.device)
        pages = self.permutation(-(-n // PAGE))
        return (pages[:, None] * PAGE + torch.arange(PAGE, device=self.device)).reshape(-1)[:n].contiguous()

    def written(self, kernel: str, n: int, order: str, dtype: Any, cache: Any, *, permuted: bool = False, fused: bool = False) -> Work:
        """A writer of paged caches. ``permuted``: [pages, g, slot, d] as a view. ``fused``: K and V are slices of a qkv."""
        import torch

        rows = self.random(n, 6 * G if fused else 2 * G, D, dtype=dtype)
        k, v = rows[:, -2 * G : -G], rows[:, -G:]
        slots, pages = self.slots(n, order), (n if order == "decode" else -(-n // PAGE)) + 1
        x = 16 // cache.itemsize
        shapes = {
            "reshape_and_cache": ((pages, G, D // x, PAGE, x), (pages, G, D, PAGE)),
            "reshape_and_cache_flash": ((pages, G, PAGE, D) if permuted else (pages, PAGE, G, D),) * 2,
            "store_kvcache": ((pages, G, PAGE, D),) * 2,
        }[kernel]
        caches = [self.zeros(*shape, dtype=cache) for shape in shapes]
        if permuted:
            caches = [one.transpose(1, 2) for one in caches]
        given = {"k": k, "v": v, "slots": slots, "k_cache": caches[0], "v_cache": caches[1]}
        if cache != dtype:
            given |= {f"{name}_scale": torch.full((1,), 0.5, device=self.device) for name in "kv"}
        page, place = slots // PAGE, slots % PAGE
        orders = {"reshape_and_cache": ((0, 3, 1, 2, 4), (0, 3, 1, 2)), "store_kvcache": ((0, 2, 1, 3),) * 2}
        # Elements as integers: torch's indexed assignment does not take fp8.
        integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[cache.itemsize]
        views = [one.permute(order).view(integer) for one, order in zip(caches, orders.get(kernel, ((0, 1, 2, 3),) * 2), strict=True)]

        def index() -> None:
            for view, values in zip(views, (k, v), strict=True):
                stored = values if cache == dtype else (values / 0.5).to(cache)
                view[page, place] = stored.reshape(n, *view.shape[2:]).view(integer)

        return Work(given, 2 * n * G * D * (dtype.itemsize + cache.itemsize), {"torch indexing": index})

    def pooled(self, n: int, w: int, dtype: Any) -> Work:
        """store_kv of n rows to pools of as many slots."""
        import torch

        k, v = (self.random(n, w, dtype=dtype) for _ in "kv")
        pools, slots = [torch.zeros_like(k) for _ in "kv"], self.permutation(n)

        def index() -> None:
            pools[0][slots] = k
            pools[1][slots] = v

        given = {"k": k, "v": v, "k_pool": pools[0], "v_pool": pools[1], "slots": slots}
        return Work(given, 4 * n * w * dtype.itemsize, {"torch indexing": index})

    def gathered(self, sequences: int, tokens: int, dtype: Any) -> Work:
        """gather_cache of whole sequences of as many tokens."""
        import torch

        n, count = sequences * tokens, tokens // PAGE
        caches = [self.random(sequences * count, PAGE, G, D, dtype=dtype) for _ in "kv"]
        table = self.permutation(sequences * count).reshape(sequences, count)
        out = [torch.zeros(n, G, D, dtype=dtype, device=self.device) for _ in "kv"]

        def index() -> None:
            for to, cache in zip(out, caches, strict=True):
                torch.index_select(cache, 0, table.reshape(-1), out=to.view(-1, PAGE, G, D))

        offsets = torch.arange(0, n + 1, tokens, dtype=torch.int32, device=self.device)
        given = {"k": out[0], "v": out[1], "k_cache": caches[0], "v_cache": caches[1], "block_table": table.to(torch.int32)}
        return Work({**given, "offsets": offsets}, 4 * n * G * D * dtype.itemsize, {"torch.index_select": index})

    def copied(self, pairs: int, dtype: Any) -> Work:
        """copy_blocks of half of the pages to the other half."""
        import torch

        caches = [self.random(2 * pairs, PAGE_ELEMENTS, dtype=dtype) for _ in "kv"]
        order = self.permutation(2 * pairs)
        read, written = order[:pairs], order[pairs:]

        def index() -> None:
            for cache in caches:
                cache[written] = cache[read]

        given = {"k_cache": caches[0], "v_cache": caches[1], "pairs": torch.stack([read, written], 1).contiguous()}
        return Work(given, 4 * pairs * PAGE_ELEMENTS * dtype.itemsize, {"torch indexing": index})

    def swapped(self, pairs: int, dtype: Any, direction: str, *, run: bool = False) -> Work:
        """swap_blocks of every second page, or of a run of pages, to the first pages of a cache "on device", "to host" or "from host"."""
        import torch

        numbers = torch.arange(pairs)
        pages = numbers if run else 2 * torch.randperm(pairs)
        source, target = self.random(2 * pairs, PAGE_ELEMENTS, dtype=dtype), torch.zeros(pairs, PAGE_ELEMENTS, dtype=dtype)
        pinned = self.device != "cpu"
        source = torch.empty(source.shape, dtype=dtype, pin_memory=pinned).copy_(source) if direction == "from host" else source
        target = torch.empty(target.shape, dtype=dtype, pin_memory=pinned).zero_() if direction == "to host" else target.to(self.device)
        chosen = pages.to(source.device)

        def one_copy() -> None:
            target.copy_(source[:pairs] if run else source[chosen], non_blocking=True)

        def copies() -> None:  # a gather on the host could not be in a CUDA graph
            for to, page in enumerate(pages.tolist()):
                target[to].copy_(source[page], non_blocking=True)

        peer = {"torch copies of pages": copies} if direction == "from host" and not run else {"torch copy": one_copy}
        given = {"src": source, "dst": target, "pairs": torch.stack([pages, numbers], 1)}
        crossings = 2 if direction == "on device" else 1
        return Work(given, crossings * pairs * PAGE_ELEMENTS * dtype.itemsize, peer)

    def embedded(self, n: int, w: int, vocabulary: int, dtype: Any) -> Work:
        """embedding of n random ids, all of them in the table."""
        import torch

        table, ids = self.random(vocabulary, w, dtype=dtype), torch.randint(0, vocabulary, (n,), device=self.device)
        out = torch.zeros(n, w, dtype=dtype, device=self.device)
        peers = {"torch.index_select": lambda: torch.index_select(table, 0, ids, out=out)}
        return Work({"out": out, "table": table, "ids": ids}, 2 * n * w * dtype.itemsize, peers)  # type: ignore[arg-type]

    def converted(self, n: int, to: Any, origin: Any) -> Work:
        """convert_fp8 of n pages."""
        import torch

        x = self.random(n, 1, PAGE_ELEMENTS, dtype=torch.float32).to(origin)
        out = self.zeros(*x.shape, dtype=to)
        scale = torch.full((1,), 0.5, device=self.device)

        def convert() -> None:
            out.copy_(x.float() / scale if to.itemsize == 1 else x.float() * scale)

        return Work({"out": out, "x": x, "scale": scale}, x.numel() * (origin.itemsize + to.itemsize), {"torch": convert})


def cells(device: str = "cuda", batch: int = BATCH, few: tuple[int, ...] = (4096, 256)) -> Iterator[Cell]:
    """Every cell: about ``batch`` tokens, and for some kernels ``few``."""
    import torch

    bf16, f32, e4m3, make = torch.bfloat16, torch.float32, torch.float8_e4m3fn, Inputs(device)
    classic, flash, half = "reshape_and_cache", "reshape_and_cache_flash", batch // 2
    for n in (batch, *few):
        for o in ("prefill", "decode"):
            yield Cell(classic, f"{n} {o}", lambda n=n, o=o: make.written(classic, n, o, bf16, bf16))
            yield Cell(flash, f"{n} {o} nhd", lambda n=n, o=o: make.written(flash, n, o, bf16, bf16))
            yield Cell(flash, f"{n} {o} hnd", lambda n=n, o=o: make.written(flash, n, o, bf16, bf16, permuted=True))
            yield Cell("store_kvcache", f"{n} {o} qkv", lambda n=n, o=o: make.written("store_kvcache", n, o, bf16, bf16, fused=True))
        yield Cell("store_kv", f"{n} x {G * D}", lambda n=n: make.pooled(n, G * D, bf16))
    for kernel in (classic, flash):
        yield Cell(kernel, f"{batch} prefill e4m3", lambda k=kernel: make.written(k, batch, "prefill", bf16, e4m3))
    yield Cell(flash, f"{half} prefill f32", lambda: make.written(flash, half, "prefill", f32, f32))
    for sequences in (batch // 256, 4):
        yield Cell("gather_cache", f"{sequences} x 256", lambda s=sequences: make.gathered(s, 256, bf16))
    for pairs in (batch // PAGE, 64):
        yield Cell("copy_blocks", f"{pairs} pairs", lambda p=pairs: make.copied(p, bf16))
    for direction in ("on device", "to host", "from host"):
        linked, pairs = direction != "on device", batch // PAGE // 4
        yield Cell("swap_blocks", f"{pairs} pages {direction}", lambda d=direction, p=pairs: make.swapped(p, bf16, d), linked)
        yield Cell("swap_blocks", f"a run of {pairs} {direction}", lambda d=direction, p=pairs: make.swapped(p, bf16, d, run=True), linked)
    for n, w in ((half, 4096), (half // 2, 8192), (256, 4096), (1, 4096)):
        yield Cell("embedding", f"{n} x {w}", lambda n=n, w=w: make.embedded(n, w, 2 * batch, bf16))
    for to, origin in ((e4m3, bf16), (bf16, e4m3), (e4m3, f32)):
        name = f"{origin} to {to}".replace("torch.", "")
        yield Cell("convert_fp8", name, lambda t=to, o=origin: make.converted(batch // PAGE * 2, t, o))


def launch(kernel: str, work: Work) -> Callable[[], None]:
    """The kernel over these inputs, as an operator of torch."""
    import torch

    from kernels_cu import torch_ops

    operator = getattr(getattr(torch.ops, torch_ops.NAMESPACE), kernel)
    return lambda: operator(**work.arguments, checked=False)


def compare(cell: Cell, work: Work) -> None:
    """Runs the kernel and every peer over the same inputs. Raises ValueError where an output differs in a bit."""
    import torch

    kernel = cases.kernel(cell.kernel)
    outputs = {name: work.arguments[name] for name in kernel.outputs if name in work.arguments}
    before = {name: output.clone() for name, output in outputs.items()}

    def bytes_after(run: Callable[[], None]) -> dict[str, Any]:
        for name, output in outputs.items():
            output.copy_(before[name])
        run()
        if any(tensor.is_cuda for tensor in work.arguments.values() if isinstance(tensor, torch.Tensor)):
            torch.cuda.synchronize()
        return {name: output.contiguous().view(torch.uint8).clone() for name, output in outputs.items()}

    expected = bytes_after(launch(cell.kernel, work))
    for name, peer in work.peers.items():
        for output, got in bytes_after(peer).items():
            wrong = torch.count_nonzero(got != expected[output]).item()
            if wrong:
                raise ValueError(f"{cell.kernel} {cell.name}: {output}: {wrong} of {got.numel()} bytes are not those of {name}")


def rows(stems: Sequence[str], copy_gbs: float) -> Iterator[dict[str, Any]]:
    """A row of results for every cell of these kernels; inputs are rotated so that caches do not serve them."""
    import torch

    for cell in cells():
        if cell.kernel not in stems:
            continue
        torch.manual_seed(1)
        first = cell.make()
        compare(cell, first)
        sets = [first, *(cell.make() for _ in range(min(32, max(1, (1 << 28) // first.bytes))))]
        spent = timing.graph_time([launch(cell.kernel, work) for work in sets])
        peers = {name: round(timing.graph_time([work.peers[name] for work in sets]).us, 1) for name in first.peers}
        gbs = first.bytes / spent.us * 1e-3
        moved = dtype_name(describe(next(iter(first.arguments.values()))))
        yield {"kernel": cell.kernel, "cell": cell.name, "dtype": moved, "us": round(spent.us, 1), "spread": round(spent.spread, 1),
               "gbs": round(gbs), "share": None if cell.linked else round(gbs / copy_gbs, 3), "peers": peers}  # fmt: skip
        del sets, first
        torch.cuda.empty_cache()
