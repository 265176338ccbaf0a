"""Timing on a GPU: graph replay over rotated inputs, medians, and the rates of memory that times are compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_WARM_MS = 80


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median and the spread (largest minus smallest) of the repetitions."""

    us: float
    spread: float


def graph_time(calls: Sequence[Callable[[], None]], *, repetitions: int = 7, least_ms: float = 4.0) -> Timing:
    """Time of one call, ``calls`` being the same work over different inputs, so that caches do not serve it.

    All calls go into one CUDA graph, which is replayed until it has run ``least_ms``; median over ``repetitions`` such runs. It is replayed
    for ``_WARM_MS`` before: for 30 to 60 ms after memory has been allocated and filled, the same kernel writes up to 10 % slower.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def run(times: int) -> float:
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    run(2)
    once = max(run(1), 1e-3)
    run(round(_WARM_MS / once))
    times = max(1, round(least_ms / once))
    each = [run(times) / times / len(calls) * 1e3 for _ in range(repetitions)]
    return Timing(statistics.median(each), max(each) - min(each))


def copy_rate(size: int = 1 << 32) -> float:
    """GB/s of an elementwise kernel, bytes read plus bytes written (a graph's memory copies are slower: the copy engine makes them)."""
    import torch

    source = torch.empty(size // 4, dtype=torch.int32, device="cuda")
    source.random_()
    target = torch.empty_like(source)
    timing = graph_time([lambda: torch.bitwise_not(source, out=target)], least_ms=10)
    return 2 * size / timing.us * 1e-3


def read_rate(count: int = 1 << 30) -> float:
    """GB/s of reading ``count`` floats (a reduction, which writes next to nothing)."""
    import torch

    source = torch.randn(count, device="cuda")
    timing = graph_time([lambda: source.amax()], least_ms=10)
    return 4 * count / timing.us * 1e-3


def fma_rate(size: int = 8192) -> float:
    """GFLOP/s of binary32 multiplications and additions without tensor cores: torch's product of two square matrices."""
    import torch

    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    timing = graph_time([lambda: torch.mm(a, b, out=out)], least_ms=20)
    torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * size**3 / timing.us * 1e-3
