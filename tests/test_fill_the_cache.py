"""The cache filled from end to end: tokens appended by each writer, attention by each operator, against contiguous K and V.

The loop is the example docs/fill_the_cache.py: 200 steps, requests of a real length trace joining and leaving, pages used again.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pyref import paged_attention_v1, paged_decode
from tests.torch_help import operator, torch
from tools.cases import ROOT

STEPS = 200
DEFINITIONS = {"paged_decode": paged_decode.run, "paged_attention_v1": paged_attention_v1.run}


def load() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("fill_the_cache", ROOT / "docs" / "fill_the_cache.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load()


def over_contiguous(attend: str, q: Any, packed: dict[str, np.ndarray]) -> Any:
    """The operator over the same tokens in pages that follow each other."""
    out = torch.empty_like(q)
    operator(attend)(out=out, q=q, scale=example.D**-0.5, **{name: torch.from_numpy(array) for name, array in packed.items()})
    return out


@pytest.mark.parametrize(
    ("cache", "attend"), [*((cache, "paged_decode") for cache in example.CACHES), ("classic", "paged_attention_v1")]
)
def test_every_step_has_the_bytes_of_attention_over_contiguous_k_and_v(cache: str, attend: str) -> None:
    """Every step against the operator, every fortieth against the definition, which is slower."""
    engine = example.Engine(cache, attend)
    seen, pages = [], []
    for step in range(STEPS):
        q, out = engine.step()
        packed = example.contiguous(engine.running)
        assert torch.equal(out, over_contiguous(attend, q, packed)), f"step {step}"
        if step % 40 == 0:
            expected = DEFINITIONS[attend](q=q.numpy(), scale=example.D**-0.5, **packed)
            assert out.numpy().tobytes() == expected.tobytes(), f"step {step}"
        seen += [sequence for sequence in engine.running if not any(sequence is one for one in seen)]
        pages.append({page for sequence in engine.running for page in sequence.pages})
    assert len(seen) > 40, "few requests joined and left"
    assert len(set.union(*pages)) < sum(len(sequence.pages) for sequence in seen), "no page was used again"
    assert not torch.isnan(out).any()
