"""What the benchmark times on the CPU: compare_key against memcmp, what a torch operator costs by itself, and the legs over the cases."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.progress import Progress

from kernels_cu import build
from pyref import compare_key, paged_decode
from pyref.spec import Call
from tools import cases, device, legs, verify
from tools.timing import Timing

TOKENS = (64, 1024, 65_536, 1 << 24)  # int32: within a core's caches up to 256 KB each; the last reads 128 MB of memory


def loop_time(call: Callable[[], Any], *, repetitions: int = 7, least_s: float = 0.02) -> Timing:
    """Time of one call: median over runs of a loop that lasts at least so long."""
    call()
    start = time.perf_counter()
    call()
    times = max(1, round(least_s / max(time.perf_counter() - start, 1e-7)))

    def run() -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times * 1e6

    each = [run() for _ in range(repetitions)]
    return Timing(statistics.median(each), max(each) - min(each))


def row(
    kernel: str, cell: str, dtype: str, spent: Timing, *, moved: int = 0, share: float | None = None, **peers: Timing
) -> dict[str, Any]:
    """A row of results in hundredths of a microsecond; ``moved``: bytes."""
    gbs = round(moved / spent.us * 1e-3, 1) if moved else None
    others = {name.replace("_", " "): round(peer.us, 2) for name, peer in peers.items()}
    figures = {"us": round(spent.us, 2), "spread": round(spent.spread, 2), "gbs": gbs, "share": share}
    return {"kernel": kernel, "cell": cell, "dtype": dtype, **figures, "peers": others}


def keys(n: int) -> dict[str, Any]:
    """compare_key over two equal sequences of n int32, whose length it must give, and memcmp over them; share: of memcmp's rate."""
    memcmp = ctypes.CDLL(None).memcmp
    a = np.arange(n, dtype=np.int32)
    b = a.copy()
    call = compare_key.SPEC.bind({"a": a, "b": b})
    params = call.params(lambda array: array.ctypes.data)
    function = build.load(build.host_library(call.kernel, call.constants())).compare_key
    struct, left, right, size = ctypes.byref(params), *map(ctypes.c_void_p, (a.ctypes.data, b.ctypes.data)), ctypes.c_size_t(a.nbytes)
    function(struct, None)
    if call["length"][0] != n:
        raise ValueError(f"compare_key {n}: got {call['length'][0]}, expected {n}")
    ours, theirs = loop_time(lambda: function(struct, None)), loop_time(lambda: memcmp(left, right, size))
    return row("compare_key", f"{n:,} tokens", "i32", ours, moved=2 * a.nbytes, share=round(theirs.us / ours.us, 3), memcmp=theirs)


def leg_rows(stems: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Time of all cases together on every CPU leg, bytes compared: what a laptop can compare its own runs with."""
    others = [leg for leg in (legs.leg("sim"), legs.leg("host")) if not leg.missing()]
    for stem in stems:
        jobs = [(stem, case) for case in cases.cases(stem)]
        verify.prebuild(jobs, others, Progress(disable=True))
        results = [result for _, case in jobs for result in verify.run_case(stem, case, others)]
        wrong = next((result for result in results if result.equal is False), None)
        if wrong:
            raise ValueError(f"{stem}: {wrong.case} on {wrong.leg}: {wrong.reason}")
        for name in ("ref", *(leg.name for leg in others)):
            ran = [result.seconds for result in results if result.leg == name and result.equal]
            yield {"kernel": stem, "cell": f"{len(ran)} cases on {name}", "dtype": "all", "us": round(sum(ran) * 1e6), "spread": None,
                   "gbs": None, "share": None, "peers": {}}  # fmt: skip


def call_rows(place: str) -> Iterator[dict[str, Any]]:
    """What one eager call of paged_decode costs the host, workspaces given and left out, beside the bare call of its C function.

    The sequences are empty, so that a GPU is done before the next call; on a CPU there is none at all, and nothing is computed.
    """
    import torch

    from kernels_cu import torch_ops  # noqa: F401
    from kernels_cu.torch_arrays import describe, torch_dtype

    n, h, g, d, page = (4 if place == "cuda" else 0), 32, 8, 128, 16
    bf16, i32 = torch.bfloat16, torch.int32
    shapes = {"out": (n, h, d), "q": (n, h, d), "k_cache": (8, g, d // 8, page, 8), "v_cache": (8, g, d, page)}
    tensors = {name: torch.zeros(shape, dtype=bf16, device=place) for name, shape in shapes.items()}
    tensors |= {"block_tables": torch.zeros(n, 64, dtype=i32, device=place), "seq_lens": torch.zeros(n, dtype=i32, device=place)}
    bound = paged_decode.SPEC.bind({**{name: describe(tensor) for name, tensor in tensors.items()}, "scale": d**-0.5})
    made = {name: bound.arrays[name] for name in paged_decode.SPEC.workspaces}
    spaces = {name: torch.zeros(array.shape, dtype=torch_dtype(array), device=place) for name, array in made.items()}
    given = (*tensors.values(), d**-0.5)
    operator, stem = torch.ops.samebits.paged_decode, "torch.ops.samebits.paged_decode"
    call = paged_decode.SPEC.bind({**{name: describe(tensor) for name, tensor in (tensors | spaces).items()}, "scale": d**-0.5})
    bare = loop_time(_bare(call, place == "cuda"))
    unchecked = {"checked": False} if place == "cpu" else {}  # elsewhere values are not looked at
    for name, named in (("workspaces given", spaces), ("workspaces left out", {})):
        spent = loop_time(lambda named={**named, **unchecked}: operator(*given, **named))
        yield row(stem, f"a call on {place}, {name}", "bf16", spent, bare_call=bare)


def _bare(call: Call, cuda: bool) -> Callable[[], Any]:
    """The bare call of the C function of a kernel, on the current stream where it is ``cuda``'s."""
    if cuda:
        import torch

        library, stream = build.gpu_library(call.kernel, call.constants(), device.current().arch), torch.cuda.current_stream().cuda_stream
    else:
        library, stream = build.host_library(call.kernel, call.constants()), None
    function, params = getattr(build.load(library), call.kernel.stem), call.params(lambda array: array.ctypes.data)
    where = ctypes.byref(params), ctypes.c_void_p(stream)
    return lambda: function(*where)
