"""paged_attention_v1: decode attention of one query token a sequence over a paged KV cache, one block a head and sequence."""

from __future__ import annotations

from pyref import classic, classic_spec
from pyref.spec import Call, Kernel, reference

SPEC = Kernel(
    stem="paged_attention_v1",
    does="Decode attention of one query token a sequence over a paged KV cache, one block a head and sequence.",
    spills="ptxas keeps a few specialisations at 64 or 72 registers by a rule of its own and spills one to seven of them",
    args=classic_spec.arguments(),
    dtypes=classic_spec.DTYPES,
    constants=classic_spec.CONSTANTS,
    derived=classic_spec.DERIVED,
    checks=(*classic_spec.CHECKS, classic_spec.check_shared_memory),
    values=classic_spec.VALUES,
    work=classic_spec.work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """Decode attention of one query token a sequence over a paged KV cache; ``pyref.classic`` states the order of every sum.

    Shapes: q and out [n, h, d]; k_cache [pages, g, d/x, page, x] and v_cache [pages, g, d, page], x = 16 / itemsize; block_tables
    [n, max_pages] int32; seq_lens [n] int32; alibi_slopes [h] float32 or absent; lse [n, h] float32 or absent. q, out and the caches
    are all float32, float16 or bfloat16. ``scale`` multiplies q . k; lse is the natural logarithm of the sum of exponentials.
    Returns out, or (out, lse). Raises TypeError and ValueError as SPEC states, before anything is written.

    Source of the mapping: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023.
    The softmax that rescales by powers of two and the order of sums are this project's (C12 to C14).
    """
    classic.finish_empty(call)
    for n, partitions in classic.states(call):
        classic.finish(call, n, classic.walk(partitions))
