"""paged_attention_v1: decode attention of one query token a sequence over a paged KV cache, one block a head and sequence."""

from __future__ import annotations

from pyref import classic, classic_spec
from pyref.spec import Call, Kernel, reference

SPEC = Kernel(
    stem="paged_attention_v1",
    does="Decode attention of one query token a sequence over a paged KV cache, one block a head and sequence.",
    args=classic_spec.arguments(),
    sizes=classic_spec.SIZES,
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
    [n, max_pages] int32; seq_lens [n] int32; alibi_slopes [h] float32 or absent; lse [n, h] float32 or absent. q and out are both float32,
    float16 or bfloat16; the caches have their dtype, or e4m3 or e5m2 with k_scale and v_scale [1] or [g] float32. ``scale`` multiplies
    q . k; then ``cap`` (0: none) bends logits to cap * tanh(logit / cap). ``window`` (0: none) and the ``blocksparse_*`` arguments say
    which tokens take part (``pyref.classic_tokens``). lse is the natural logarithm of the sum of exponentials. Returns out, or (out, lse).
    Raises TypeError and ValueError as SPEC states, before anything is written.

    Source of the mapping: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023.
    The softmax that rescales by powers of two and the order of sums are this project's (C12 to C14).
    """
    classic.finish_empty(call)
    for n, used, partitions in classic.states(call):
        classic.finish(call, n, used, classic.walk(used, partitions))
