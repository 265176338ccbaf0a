"""The worked example of docs/step-through-a-kernel.md: decode attention of one query token over a paged cache.

Page size 16, head size 128, 8 query heads, 2 kv heads, f16; one sequence of 35 tokens in the pages 7, 2 and 9 of a cache of ten.
"""

import numpy as np

from emu import simt

simt.install()  # kernels run on the scheduler of emu.simt, in this process, one CUDA thread after another

from emu import classic
from emu import paged_attention_v1 as port
from pyref.paged_attention_v1 import SPEC, run
from tools.data import Stream

TOKENS, PAGE, D, HEADS, KV_HEADS = 35, 16, 128, 8, 2
stream = Stream(5)
q = stream.normal((1, HEADS, D), "f16")  # [n, h, d]
k = stream.normal((TOKENS, KV_HEADS, D), "f16")  # [t, g, d]
v = stream.normal((TOKENS, KV_HEADS, D), "f16")

block_tables = np.array([[7, 2, 9]], np.int32)
k_cache = np.full((10, KV_HEADS, D // 8, PAGE, 8), np.nan, np.float16)  # [page, g, d/8, slot, 8]: 16 bytes of a token lie together
v_cache = np.full((10, KV_HEADS, D, PAGE), np.nan, np.float16)  # [page, g, d, slot]
for t in range(TOKENS):
    page, slot = block_tables[0, t // PAGE], t % PAGE
    k_cache[page, :, :, slot] = k[t].reshape(KV_HEADS, D // 8, 8)
    v_cache[page, :, :, slot] = v[t]

arrays = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "block_tables": block_tables, "seq_lens": np.array([TOKENS], np.int32)}
call = SPEC.bind({**arrays, "lse": np.empty((1, HEADS), np.float32), "scale": D**-0.5}, checked=True)
f, end = classic.functions("f16", "f16", D, PAGE), classic.finishing("f16", D)  # their device functions: names to set breakpoints on
port.launch(call)

print("out[0, 5, :4]", call["out"][0, 5, :4])
print("lse[0, 5]    ", call["lse"][0, 5])
print("equal bytes  ", call["out"].tobytes() == run(**arrays, scale=D**-0.5).tobytes())

# ruff: noqa: E402  ports are imported once the scheduler is installed
