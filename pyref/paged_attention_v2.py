"""paged_attention_v2: decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens."""

from __future__ import annotations

from pyref import classic, classic_spec, contract
from pyref.spec import Call, Kernel, reference

SPEC = Kernel(
    stem="paged_attention_v2",
    does="Decode attention of one query token a sequence over a paged KV cache, one block a head, sequence and 512 tokens.",
    args=classic_spec.arguments(workspace=True),
    dtypes=classic_spec.DTYPES,
    constants=classic_spec.CONSTANTS,
    derived=classic_spec.DERIVED,
    sizes={**classic_spec.SIZES, "parts": lambda call: classic_spec.partitions(call["max_seq_len"])},
    checks=(*classic_spec.CHECKS, classic_spec.check_workspace),
    values=classic_spec.VALUES,
    work=classic_spec.work,
)


@reference(SPEC)
def run(call: Call) -> None:
    """As ``pyref.paged_attention_v1.run``, with the same bytes in out and lse, through a workspace.

    The workspace (``classic_spec.workspace``; allocated where absent): tmp_out [n, h, parts, d], exp_sums and max_logits [n, h, parts]
    float32 receive a, l and m of every partition of 512 tokens, unnormalised; partitions in which no token takes part are neither written
    nor read. ``parts * 512`` must reach ``max_seq_len``. Returns (out, [lse,] tmp_out, exp_sums, max_logits).
    """
    classic.finish_empty(call)
    names = ("max_logits", "exp_sums", "tmp_out")
    for n, used, partitions in classic.states(call):
        stored = [call[name][n, :, : used.shape[1]] for name in names]
        for place, values in zip(stored, partitions, strict=True):
            place[used] = contract.canonical_nan(values[used])  # C9; m is never NaN (C6)
        state = classic.walk(used, (stored[0], stored[1], stored[2]))  # the second kernel: it reads what the first has stored
        classic.finish(call, n, used, state)
