"""The simulator's arithmetic against numba's: its typing rules, what its compiler's code returns, and what kernels see of it."""

# ruff: noqa: ANN001, ANN201, ANN202, ANN205  kernels carry no annotations

from __future__ import annotations

import functools
import itertools
import math
import operator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import cuda, float32, int32, uint32

from emu import simt
from emu.simt.operators import OPERATORS
from emu.simt.typed import typed
from tests.simt_help import fires, launch

SCALARS = [np.dtype(c).type for c in "bBhHiIqQfd"]
NAMES = {"Add": operator.add, "Mult": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv, "Mod": operator.mod,
         "LShift": operator.lshift, "RShift": operator.rshift, "BitAnd": operator.and_}  # fmt: skip
HARD = {
    np.int8: [-128, -1, 0, 1, 5, 127],
    np.uint8: [0, 1, 7, 200, 255],
    np.uint32: [0, 1, 2**31, 2**32 - 1],
    np.int64: [-(2**63), -7, -1, 0, 1, 2**63 - 1],
    np.uint64: [0, 3, 2**63, 2**64 - 1],
    np.float32: [0.0, -0.0, 0.1, -2.5, 7.0, 1e38, 1e-45, math.inf, math.nan],
    np.float64: [0.0, -0.0, 0.1, -7.0, 1e308, -math.inf, math.nan],
}


def kind(value: Any) -> str:
    """numba's name for the type of a value."""
    return {bool: "bool", np.bool_: "bool"}.get(type(value)) or str(numba.typeof(value))


@pytest.mark.parametrize("name", NAMES)
def test_results_have_the_types_that_numba_gives_them(name: str) -> None:
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    bits = name in ("LShift", "RShift", "BitAnd")
    for a, b in itertools.product(SCALARS, SCALARS):
        if bits and not (issubclass(a, np.integer) and issubclass(b, np.integer)):
            continue
        types = numba.typeof(a(1)), numba.typeof(b(1))
        wanted = cpu_target.typing_context.resolve_function_type(NAMES[name], types, {}).return_type
        assert kind(OPERATORS[name](a(1), b(1))) == str(wanted), (a, b)


def integers(a, b):
    shifts = a << (b & 7), a >> (b & 7), a >> 1, a << 60
    return (*shifts, a + b, a - b, a * b, a / b, a // b, a % b, a & b, a | b, a ^ b, a < b, a == b, -a, ~a, a**3, a - 1, a / 3, a * 0.5)


def floats(a, b):
    own = -a, a < 0.1, a == 0.1, a // 2, a % 3, a * 2, a**2, math.sqrt(a), math.log(a), math.atan2(a, b), math.copysign(a, b)
    return (*own, a + b, a * b, a / b, a // b, a % b, a**b, a < b, a != b, a * 0.1, a + 1)


PAIRS = [(integers, np.int8, np.uint32), (integers, np.uint64, np.int64), (integers, np.uint8, np.uint8), (floats, np.float32, np.float32),
         (floats, np.float32, np.float64)]  # fmt: skip


@pytest.mark.parametrize(("function", "first", "second"), PAIRS)
def test_values_are_those_of_numbas_compiler(function: Any, first: type, second: type) -> None:
    compiled, here = numba.njit(error_model="numpy")(function), typed(function)
    for a, b in itertools.product(map(first, HARD[first]), map(second, HARD[second])):
        with np.errstate(all="ignore"):
            wanted, got = compiled(a, b), here(a, b)
        results = compiled.overloads[numba.typeof(a), numba.typeof(b)].signature.return_type
        for n, (w, g, t) in enumerate(zip(wanted, got, results, strict=True)):
            assert kind(g) == str(t), (n, a, b)
            w = np.float32(w) if t is numba.float32 else w
            assert g == pytest.approx(w, rel=3e-7 if t is numba.float32 else 1e-15, abs=0, nan_ok=True), (n, a, b)
            if isinstance(w, (float, np.float32)) and w == 0:
                assert math.copysign(1, g) == math.copysign(1, w), (n, a, b)


def result(function: Any, *args: Any, dtype: Any = np.float64, n: int = 1, **options: Any) -> list[Any]:
    """What a kernel's body leaves in `out`."""
    out = np.zeros(n, dtype)
    launch(cuda.jit(function), 1, 1, *args, out, check=True, **options)
    return out.tolist()


def test_elements_do_not_wrap_at_their_own_width() -> None:
    x = np.array([200, 100], np.uint8)

    def body(x, out):
        out[0] = x[0] + x[1]

    assert result(body, x) == [300]
    with np.errstate(all="ignore"):
        assert result(body, x, operators="python") == [44]


def test_sums_that_start_at_0_are_float64() -> None:
    def body(x, out):
        total = 0.0
        for v in x:
            total += v
        out[0], out[1] = total, float32(0.1) * 3

    wanted = [float(np.float32(0.1)) * 4096, float(np.float32(0.1)) * 3]
    assert result(body, np.full(4096, 0.1, np.float32), n=2) == pytest.approx(wanted, rel=1e-15)


def test_nothing_raises() -> None:
    def body(zero, out):
        out[0], out[1], out[2] = 1.0 / 0.0, -1 / zero, 5 // zero + 5 % zero
        out[3], out[4], out[5] = math.exp(1000.0), math.log(zero), math.sqrt(-1.0)
        out[6], out[7], out[8] = math.pow(zero, -1.0), math.fmod(1.0, zero), int(out[5]) + int(1e30)
        out[9], out[10] = max(out[5], 2), round(out[0])
        out[11], out[12], out[13] = math.ldexp(1.0, int32(3)), round(float32(0.3425), 3), round(1e308, 2)

    got = result(body, 0, n=14)
    assert got[:5] == [math.inf, -math.inf, 0, math.inf, -math.inf]
    assert math.isnan(got[5])
    assert got[6] == math.inf
    assert math.isnan(got[7])
    assert got[11:] == [8, np.float32(0.343), 1e308]
    assert got[8:11] == [-1, 2, 2.0**63], "NaN becomes -2^63, what is too large 2^63 - 1; NaN loses against a number"


def test_debug_mode_raises_where_integers_are_divided_by_zero() -> None:
    @cuda.jit(debug=True, opt=False)
    def kernel(x):
        x[0] = 5 // x[0]

    with pytest.raises(ZeroDivisionError, match="tid="):
        launch(kernel, 1, 1, np.zeros(1, np.int32))


def test_casts_and_stores_wrap() -> None:
    def body(out):
        out[0], out[1] = -1, 2**40 + 5
        out[2] = uint32(-1) + int32(2**31)
        out[3] = np.uint8(300)
        out[4] = 7
        out[4] -= 8

    assert result(body, dtype=np.uint32, n=5) == [2**32 - 1, 5, 2**31 - 1, 44, 2**32 - 1]

    def hashed(out):
        out[0] = (out[0] ^ 0xCBF29CE484222325) * 0x100000001B3

    assert result(hashed, dtype=np.uint64) == [0xCBF29CE484222325 * 0x100000001B3 % 2**64]


def test_stores_by_several_targets_wrap_each_at_its_own_width() -> None:
    def body(narrow, out):
        narrow[0] = y = out[0] = 300
        out[1] = y
        narrow[1], out[2] = divmod(1000, 3)
        both = (400, 500)
        (narrow[2], z), y = both, 1
        out[3], [narrow[3], out[4]] = z, both
        narrow[4], narrow[5] = narrow[1], narrow[0]

    narrow = np.zeros(6, np.uint8)
    assert result(body, narrow, n=5) == [300, 300, 1, 500, 500]
    assert narrow.tolist() == [44, 77, 144, 144, 77, 44]


__hidden = 5  # a kernel in a class asks for _Private__hidden
_Private__hidden = 9


class Private:
    """A class whose functions Python gives other names."""

    @staticmethod
    @cuda.jit
    def kernel(x):
        __mine = __hidden
        x[0] = __mine / 2


def test_private_names_are_those_of_the_class() -> None:
    x = np.zeros(1)
    launch(Private.kernel, 1, 1, x)
    assert x[0] == 4.5
    assert __hidden == 5


class Helpers:
    """Stands for a module with device functions."""

    @staticmethod
    @cuda.jit(device=True)
    def half(x):
        return x / 2


@cuda.jit(device=True)
def depth(n):
    return n // 0 if n < 1 else depth(n - 1) + 1


@numba.njit
def shared_with_the_cpu(x):
    return x + x


def test_device_functions_are_compiled_too() -> None:
    def body(x, out, offset=3, *, scale=2):
        out[0] = Helpers.half(x[0]) + depth(4) + shared_with_the_cpu(x[0]) + offset * scale

    out = np.zeros(1)
    launch(cuda.jit(body), 1, 1, np.array([101], np.int8), out)
    assert out[0] == 50.5 + 4 + 202 + 6


def test_operands_are_evaluated_once_and_in_order() -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x)
        return x

    def body(x, out):
        out[0] = note(1) < note(2) <= note(2) < note(0) < note(9)
        out[note(1)] += note(4) + note(5)
        (x if note(True) else out)[note(0)] = note(6)
        out[2:] -= 3

    out, x = np.zeros(4, np.int64), np.zeros(1, np.int64)
    launch(cuda.jit(body), 1, 1, x, out)
    assert seen == [1, 2, 2, 0, 1, 4, 5, True, 6, 0]
    assert (out.tolist(), x.tolist()) == ([0, 9, -3, -3], [6])


def test_faults_keep_their_place() -> None:
    @cuda.jit
    def kernel(x):
        i = cuda.threadIdx.x
        x[i + 1] += 200  # outside for the last thread

    report = fires(simt.OutOfBounds, "[4] of x", kernel=kernel, block=4, args=(np.zeros(4, np.uint8),), races=False)
    assert report.line == kernel.fn.__code__.co_firstlineno + 3


def test_a_kernel_without_source_runs_as_it_is() -> None:
    names: dict[str, Any] = {}
    exec("def body(x, out):\n    out[0] = x[0] + x[1]", names)
    with np.errstate(all="ignore"):
        assert result(names["body"], np.array([200, 100], np.uint8)) == [44]


def test_a_kernel_whose_file_has_changed_runs_as_it_was(tmp_path: Path) -> None:
    path, names = tmp_path / "kernel.py", {}
    text = "def body(out):\n    out[0] = 1 / 2\n"
    path.write_text(text)
    exec(compile(text, str(path), "exec", dont_inherit=True), names)
    assert typed(names["body"]) is not names["body"]
    exec(compile(text.replace("1 / 2", "2 / 2"), str(path), "exec", dont_inherit=True), names)
    assert result(names["body"]) == [1]


def test_options_name_what_they_take() -> None:
    with pytest.raises(ValueError, match="operators: got 'numpy', expected 'numba' or 'python'"):
        simt.Options(operators="numpy")


def test_signatures_cast_arguments_and_results() -> None:
    @cuda.jit("float32(float32, int8)", device=True)
    def scaled(x, n):
        return x * n + 0.1

    @cuda.jit("void(float64[:], float32, int8)")
    def kernel(out, x, n):
        out[0], out[1], out[2] = x, n, scaled(x, n)

    @numba.vectorize(["float32(float32)"], target="cuda")
    def third(x):
        return x / 3

    out = np.zeros(3)
    launch(kernel, 1, 1, out, 0.1, 300, check=True)
    x = np.float32(0.1)
    assert out.tolist() == [x, 44, np.float32(float(x * np.float32(44)) + 0.1)]
    launch(kernel, 1, 1, out, 0.1, 300, operators="python")
    assert out.tolist()[:2] == [0.1, 300]
    assert third(np.full(2, 0.1, np.float32))[0] == np.float32(float(x) / 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        launch(kernel, 1, 1, out, 0.1)


def test_a_wrapper_is_not_what_it_wraps() -> None:
    def inner(x):
        return x

    assert typed(inner)(1) == 1

    @functools.wraps(inner)
    def outer(x):
        return inner(x) + 1

    assert typed(outer)(1) == 2
