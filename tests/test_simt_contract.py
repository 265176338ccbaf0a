"""The contract of the numba ports: the bytes of `pyref.contract` in the simulator, and PTX that ptxas cannot fuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu import contract as port
from emu import simt
from pyref import contract

simt.install()
f32 = np.float32
SPECIAL = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x33800000, 0x3EFFFFFF, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FB504F3, 0x3FB504F4,
     0x42AFFFFF, 0x42B00000, 0x42B17218, 0x42CFF1B5, 0x42D00000, 0x42FC0000, 0x42FE0000, 0x42FFFFFF, 0x43000000, 0x43150000, 0x43160000,
     0x43160001, 0x4AFFFFFF, 0x4B000000, 0x4B000001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
    np.uint32,
)  # fmt: skip


def samples(count: int) -> np.ndarray:
    """Special values of both signs, halves and integers, and random patterns, as f32[count] or more."""
    rng = np.random.default_rng(20)
    both = np.concatenate([SPECIAL, SPECIAL | np.uint32(0x80000000)]).view(f32)
    steps = np.arange(-160, 160, 0.5, dtype=f32)
    patterns = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(f32)
    return np.concatenate([both, steps, patterns, rng.normal(0, 10, count // 2).astype(f32)])


def bits(x: Any) -> np.ndarray:
    """Bit patterns; NaN payloads inside are free (C9)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(contract.canonical_nan(np.asarray(x, f32))).view(np.uint32)


def apply(function: Callable[..., Any], *columns: np.ndarray) -> np.ndarray:
    """A scalar function over rows, as a kernel's thread calls it: results must be np.float32."""
    with np.errstate(all="ignore"):
        results = [function(*row) for row in zip(*columns, strict=True)]
    assert {type(r) for r in results} == {f32}
    return np.array(results)


def assert_same(got: np.ndarray, wanted: np.ndarray, *columns: np.ndarray) -> None:
    different = np.flatnonzero(bits(got) != bits(wanted))
    if len(different):
        i = different[0]
        pytest.fail(
            f"{len(different)} of {len(got)} differ, first at {[float(c[i]).hex() for c in columns]}: {got[i]!r}, wanted {wanted[i]!r}"
        )


@pytest.mark.parametrize("name", ["exp2", "exp", "log2", "log", "tanh", "ceil", "round_even", "logits2", "canonical_nan"])
def test_functions_of_one_value(name: str) -> None:
    x = samples(4000)
    assert_same(apply(getattr(port, name), x), getattr(contract, name)(x), x)


@pytest.mark.parametrize("name", ["mul", "add", "sub", "div", "running_max"])
def test_functions_of_two_values(name: str) -> None:
    x = samples(6000)
    y = np.random.default_rng(1).permutation(x)
    assert_same(apply(getattr(port, name), x, y), getattr(contract, name)(x, y), x, y)


def test_fma_near_ties_and_everywhere() -> None:
    rng = np.random.default_rng(2)
    x = samples(8000)
    y, z = rng.permutation(x), rng.permutation(x)
    a, b = f32(1 - 2**-23), f32((1 + 2**-23) / 2)
    c = np.arange(2**23, 2**23 + 2000, dtype=f32)  # C3
    tiny = rng.integers(0, 2**24, 2000, dtype=np.uint32).view(f32)  # the same at subnormal scale
    x = np.concatenate([x, np.full(2000, a), np.full(2000, a), rng.permutation(tiny)])
    y = np.concatenate([y, np.full(2000, b), np.full(2000, b * f32(2.0**-149)), np.full(2000, f32(0.5))])
    z = np.concatenate([z, c, tiny, tiny])
    assert_same(apply(port.fma, x, y, z), contract.fma_exact(x, y, z), x, y, z)
    with np.errstate(all="ignore"):
        twice = (x.astype(np.float64) * y + z).astype(f32)
    assert (bits(twice) != bits(contract.fma_exact(x, y, z))).sum() > 500, "the sample separates one rounding from two"


def test_weights() -> None:
    rng = np.random.default_rng(3)
    s2 = samples(4000)
    with np.errstate(all="ignore"):
        m = np.nan_to_num(contract.ceil(s2)) + rng.integers(0, 140, len(s2)).astype(f32)
        n = np.rint(s2)
    assert_same(apply(port.weight_p, s2, m), contract.weights_p(s2, m), s2, m)
    assert_same(apply(port.pow2_weight, n), contract.pow2_weight(n), n)


def test_states() -> None:
    rng = np.random.default_rng(4)
    m, m_u = (rng.integers(-200, 200, 300).astype(f32) for _ in range(2))
    m[:20], m_u[10:30] = -np.inf, -np.inf
    l, l_u = (rng.uniform(0, 100, 300).astype(f32) for _ in range(2))  # noqa: E741

    def walk(m: f32, l: f32, m_u: f32, l_u: f32) -> f32:  # noqa: E741
        top = port.running_max(m, m_u)
        return port.join_scalar(l, port.pow2_weight(port.sub(m, top)), l_u, port.pow2_weight(port.sub(m_u, top)))

    top, joined, _ = contract.join((m, l, l[:, None]), (m_u, l_u, l_u[:, None]))
    assert_same(apply(walk, m, l, m_u, l_u), joined, m, l, m_u, l_u)
    assert_same(apply(port.lse, top, joined), contract.lse(top, joined), top, joined)


@pytest.mark.parametrize("version", ["as written", "as the simulator calls it"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_conversions(dtype: str, version: str) -> None:
    up, down = port.TO_F32[dtype], port.FROM_F32[dtype]
    if version == "as written":
        up, down = (simt.written[f"emu.contract_numbers.{name}"] for name in (f"{dtype}_to_f32", f"f32_to_{dtype}"))
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = contract.to_f32(patterns.view(contract.STORAGE[dtype]))
    assert_same(apply(up, patterns), values, patterns)

    finite = np.unique(values[np.isfinite(values)])[::7]
    middle = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(f32)  # ties, and beside them
    x = np.concatenate([samples(1000), finite, middle, np.nextafter(middle, f32(np.inf)), np.nextafter(middle, f32(-np.inf))])
    with np.errstate(all="ignore"):
        got = [down(v) for v in x]
    assert {type(r) for r in got} == {np.uint16}
    wanted = contract.from_f32(x, dtype).view(np.uint16)
    different = np.flatnonzero(np.array(got) != wanted)
    assert not len(different), f"{float(x[different[0]]).hex()}: {got[different[0]]:#06x}, wanted {wanted[different[0]]:#06x}"


def test_fast_versions_equal_what_is_written() -> None:
    x = samples(1500)
    y, z = np.random.default_rng(5).permutation(x), np.random.default_rng(6).permutation(x)
    for name, columns in {
        "fma": (x, y, z),
        "mul": (x, y),
        "add": (x, y),
        "sub": (x, y),
        "div": (x, y),
        "sqrt": (x,),
        "neg": (x,),
        "fabs": (x,),
    }.items():
        with simt.running():
            written = apply(simt.written[f"emu.contract_numbers.{name}"], *columns)
        fast = apply(getattr(port, name), *columns)
        assert_same(fast, written, *columns)
        signs = np.isnan(fast) | (np.signbit(fast) == np.signbit(written))
        assert signs.all()


PTX = """
from numba import float32, int32, uint16
from emu import contract, contract_numbers, simt
from emu.simt.ptx import compile_ptx
from tools.ptx import audit
import inspect
for name, written in simt.written.items():
    module, _, function = name.rpartition(".")
    device = getattr(contract if hasattr(contract, function) else contract_numbers, function)
    kinds = {"np.uint16": uint16, "np.int32": int32, "f32": float32}
    types = tuple(kinds[p.annotation] for p in inspect.signature(written).parameters.values())
    found = audit(compile_ptx(device, types, device=True))
    assert not found, (name, found)
print(len(simt.written))
"""


def test_the_same_source_compiles_for_a_gpu_without_contraction() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed: the ports' PTX is not read here")
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-c", PTX], capture_output=True, text=True, cwd=Path(__file__).parent.parent, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 30
