"""torch.ops.samebits on a CPU: schemas from SPEC, the definition's bytes, torch's own checks, refusals. On a GPU: test_torch_gpu.py."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyref import decode_spec, paged_decode
from pyref.spec import Tensor
from tests.torch_help import PAGE, D, G, H, Operators, call_of, layer, operator, some, step, tensors, torch
from tools import cases, legs, verify
from tools.arena import Region

from kernels_cu import torch_call, torch_ops  # isort: skip  (after torch, which may be absent)
from kernels_cu.torch_arrays import describe  # isort: skip

STEMS = cases.stems()
WITH_WORKSPACE = [stem for stem in STEMS if cases.kernel(stem).workspaces]


def of_kernels(stems: list[str], count: int) -> pytest.MarkDecorator:
    found = [(stem, case) for stem in stems for case in some(stem, count)]
    return pytest.mark.parametrize(("stem", "case"), found, ids=[f"{stem}-{case.id}" for stem, case in found])


@pytest.mark.parametrize("stem", STEMS)
def test_the_schema_says_what_spec_says(stem: str) -> None:
    kernel, schema = cases.kernel(stem), operator(stem).default._schema
    written = {argument.name for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write}
    assert written == {name for name, tensor in kernel.tensors.items() if tensor.role != "in"}
    numbers = {name: arg for name, arg in kernel.args.items() if not isinstance(arg, Tensor) and not arg.computed}
    assert {argument.name for argument in schema.arguments} == {*kernel.tensors, *numbers, "checked"}
    may_be_absent = {name for name, tensor in kernel.tensors.items() if tensor.optional or tensor.role == "work"}
    may_be_absent |= {name for name, number in numbers.items() if number.default}
    may_be_absent |= {"tmp_out", "exp_sums", "max_logits"} & set(kernel.tensors)  # outputs of v2, and its workspace
    assert {argument.name for argument in schema.arguments if argument.has_default_value()} == may_be_absent | {"checked"}
    assert not schema.returns, "a tensor that is written in place is not returned too: functionalization refuses that"


@of_kernels(STEMS, 4)
def test_the_bytes_are_those_of_the_definition(stem: str, case: cases.Case) -> None:
    (result,) = verify.run_case(stem, case, [Operators()])[1:]
    assert result.equal, result.reason


@pytest.mark.parametrize("stem", [stem for stem in STEMS if {"T", "C"} <= set(cases.kernel(stem).dtypes)])
def test_fp8_caches_are_tensors_like_others(stem: str) -> None:
    case = next(case for case in cases.cases(stem) if case.dtypes["C"] == "e4m3" and case.dtypes["T"] == "f16")
    (result,) = verify.run_case(stem, case, [Operators()])[1:]
    assert result.equal, result.reason


@of_kernels(WITH_WORKSPACE, 6)
def test_workspaces_may_be_left_out(stem: str, case: cases.Case) -> None:
    before = cases.inputs(stem, case)
    expected, _, _ = verify.run_leg(stem, legs.leg("ref"), before)
    assert expected is not None
    given = {name: value for name, value in before.items() if name not in cases.kernel(stem).workspaces}
    operator(stem)(**tensors(given))
    for name, value in given.items():
        if isinstance(value, Region):
            assert np.array_equal(value.buffer, expected[name].buffer), name


def test_torch_checks_the_operators() -> None:
    """torch.library.opcheck. One test for all: every process that takes one imports torch's compiler for some seconds."""
    for stem in STEMS:
        given, named = call_of(stem, tensors(cases.inputs(stem, cases.cases(stem)[0])))
        checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        if any(tensor.dtype.itemsize == 1 for tensor in given if isinstance(tensor, torch.Tensor)):
            checks.remove("test_schema")  # it compares tensors by a function that torch lacks for fp8
        results = torch.library.opcheck(operator(stem).default, given, named, test_utils=checks)
        assert set(results.values()) == {"SUCCESS"}, (stem, results)


def test_compile_takes_the_whole_layer_and_keeps_its_bytes() -> None:
    eager, compiled = step(), step()
    expected = layer(**eager)
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(**compiled)
    assert torch.equal(got, expected)
    assert torch.equal(compiled["k_cache"], eager["k_cache"]), "the cache is written in place"
    assert not torch.equal(compiled["k_cache"], step()["k_cache"])


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_views_of_other_layouts_are_those_of_the_definition(layout: str) -> None:
    k, v = torch.randn(3, PAGE, G, D).half(), torch.randn(3, PAGE, G, D).half()
    got = torch_ops.cache_views(layout, k, v)
    expected = decode_spec.cache_views(layout, k.numpy(), v.numpy())
    for tensor, array in zip(got, expected.values(), strict=True):
        assert (tuple(tensor.shape), tensor.data_ptr()) == (array.shape, array.ctypes.data)
        assert tuple(2 * stride for stride in tensor.stride()) == array.strides
    with pytest.raises(ValueError, match=r"layout: got 'DNH', expected 'NHD' or 'HND'"):
        torch_ops.cache_views("DNH", k, v)


# --- what is refused, and when ---------------------------------------------------------------------------------------------------------


class Decode:
    """A call of paged_decode over ``step``; ``out`` begins as sevens."""

    def __init__(self, **changed: Any) -> None:
        made = step()
        k, v = torch_ops.cache_views("NHD", made["k_cache"], made["v_cache"])
        self.given = {"out": torch.full((3, H, D), 7.0).half(), "q": made["qkv"][:, :H], "k_cache": k, "v_cache": v,
                      "block_tables": made["tables"], "seq_lens": made["lens"], "scale": D**-0.5, **changed}  # fmt: skip
        self.out: torch.Tensor = self.given["out"]

    def __call__(self, checked: bool | None = None) -> None:
        torch.ops.samebits.paged_decode(**self.given, checked=checked)


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("dtype", {"q": torch.zeros(3, H, D)}, TypeError, "paged_decode: q: dtype: got f32, expected f16 (from out)"),
    ("dtype-of-none", {"q": torch.zeros(3, H, D).double()}, TypeError, "paged_decode: q: dtype: got float64, expected f32 or f16 or bf16"),
    ("dtype-of-tables", {"block_tables": torch.zeros(3, 2).short()}, TypeError, "block_tables: dtype: got int16, expected i32"),
    ("axis", {"q": torch.zeros(2, H, D).half()}, ValueError, "paged_decode: q: axis n: got 2, expected 3 (from out)"),
    ("stride", {"q": torch.zeros(3, H, 2 * D).half()[..., ::2]}, ValueError, "paged_decode: q: axis d: got a stride of 4 bytes"),
    ("number", {"window": -1}, ValueError, "paged_decode: window: got -1"),
    ("length", {"seq_lens": torch.tensor([5, 2, 33], dtype=torch.int32)}, ValueError, "seq_lens: [2]: got 33, expected 0 to 32"),
    ("page", {"block_tables": torch.full((3, 2), 6, dtype=torch.int32)}, ValueError, "block_tables: [0, 0]: got 6, expected 0 to 5"),
    ("small-workspace", {"part_l": torch.zeros(3, H, 0), "split": 0}, ValueError, "part_l: axis states: got 0, expected at least 1"),
]


@pytest.mark.parametrize(("changed", "kind", "text"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_wrong_arguments_are_refused_before_anything_is_written(changed: dict[str, Any], kind: type[Exception], text: str) -> None:
    Decode()()  # a call like it went well before
    run = Decode(**changed)
    with pytest.raises(kind) as caught:
        run()
    assert text in str(caught.value)
    assert (run.out == 7).all()


def changed_calls() -> dict[str, dict[str, Any]]:
    """What makes a call of another signature: one thing each."""
    made, first = step(), Decode().given
    wide = torch.zeros(6, 2, PAGE + 3, G, D).half()
    wide[:, :, :PAGE] = torch.stack([made["k_cache"], made["v_cache"]], 1)
    far = dict(zip(("k_cache", "v_cache"), torch_ops.cache_views("NHD", wide[:, 0, :PAGE], wide[:, 1, :PAGE]), strict=True))
    single = dict(zip(("k_cache", "v_cache"), torch_ops.cache_views("NHD", *(made[name].float() for name in far)), strict=True))
    q = torch.cat([first["q"], first["q"]], 1)[:, :H]
    tables = torch.tensor([[1] * 40, [2] * 40, [5] * 40], dtype=torch.int32)
    return {
        "strides of caches": far, "stride of q": {"q": q}, "sinks": {"sinks": torch.ones(H)}, "slopes": {"alibi_slopes": torch.ones(H)},
        "rows": {name: first[name][1:] for name in ("out", "q", "block_tables", "seq_lens")},
        "dtype": {"out": torch.zeros(3, H, D), "q": q.float(), **single},
        "longer tables": {"block_tables": tables, "seq_lens": torch.tensor([600, 2, 513], dtype=torch.int32)},
        "bound": {"max_seq_len": 17}, "window": {"window": 2}, "cap": {"cap": 0.25}, "split": {"split": 0}, "scale": {"scale": 0.5},
    }  # fmt: skip


def test_a_changed_signature_is_a_call_of_its_own() -> None:
    """After any call, one that differs in a stride, a dtype, a bound, a number or in what is left out has the definition's bytes."""
    changes: list[tuple[str, dict[str, Any]]] = [("nothing", {}), *changed_calls().items()]
    for name, changed in [*changes, *reversed(changes)]:
        run = Decode(**changed)
        run(checked=False)
        given = {name: describe(value) if isinstance(value, torch.Tensor) else value for name, value in run.given.items()}
        expected = paged_decode.run(**{**given, "out": np.empty_like(given["out"])})
        assert describe(run.out).tobytes() == expected.tobytes(), name


def test_a_bound_that_grew_too_small_is_refused_after_one_that_was_not() -> None:
    lens, tables = torch.tensor([5, 2, 17], dtype=torch.int32), torch.tensor([[1, 0], [2, 0], [5, 0]], dtype=torch.int32)
    for bound, allowed in ((17, True), (16, False), (32, True), (17, True), (16, False)):
        run = Decode(seq_lens=lens, block_tables=tables, max_seq_len=bound)
        if allowed:
            run()
        else:
            with pytest.raises(ValueError, match=r"seq_lens: \[2\]: got 17, expected 0 to 16"):
                run()


def test_the_shared_memory_of_the_device_bounds_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for what torch says of a device."""
    asked = []
    monkeypatch.setattr(torch_call, "_shared_bytes", lambda device: asked.append(device) or 4096)
    stem = "paged_attention_v1"
    kernel = cases.kernel(stem)
    own = torch_call.Operator(kernel, [name for name in kernel.args if not torch_ops.is_optional(kernel, name)])
    long, short = (cases.inputs(stem, case) for case in cases.cases(stem) if case.id in ("length-1025", "gqa-8-2"))
    given, named = call_of(stem, tensors(short))
    own(*given, **named)
    assert len(asked) == 1
    before = long["out"].copy()
    given, named = call_of(stem, tensors(long))
    with pytest.raises(ValueError, match=r"paged_attention_v1: max_seq_len: got 1056, .* a block has 4096; use paged_attention_v2"):
        own(*given, **named)
    assert np.array_equal(long["out"].buffer, before.buffer)


def test_memory_is_compared_in_every_call() -> None:
    """The same signature, with an output of its own and with outputs that overlap the query from both sides."""
    memory = torch.zeros(9, H, D).half()
    for begin, allowed in ((6, True), (3, False), (2, False), (5, False), (0, True), (1, False), (6, True)):
        run = Decode(q=memory[3:6], out=memory[begin : begin + 3])
        if allowed:
            run(checked=False)
        else:
            with pytest.raises(ValueError, match="paged_decode: out: got memory that overlaps q, expected memory of its own"):
                run(checked=False)


def test_alignment_is_looked_at_in_every_call() -> None:
    """The same shapes and strides, 8 bytes further on."""
    pages = torch.zeros(6 * G * D * PAGE + 4).half()
    for offset, allowed in ((0, True), (4, False), (0, True)):
        cache = pages[offset:].as_strided((6, G, D // 8, PAGE, 8), (G * D * PAGE, D * PAGE, 8 * PAGE, 8, 1), offset)
        if allowed:
            Decode(k_cache=cache)(checked=False)
        else:
            with pytest.raises(ValueError, match="k_cache: got an address 8 bytes past a multiple of 16"):
                Decode(k_cache=cache)(checked=False)


def test_caches_that_interleave_are_no_overlap_but_shifted_ones_are() -> None:
    made = step()
    pair = torch.zeros(4, 3, PAGE, G, D).half()
    call = torch.ops.samebits.reshape_and_cache_flash
    k, v = (made["qkv"][:, begin : begin + G] for begin in (H, H + G))
    for other, allowed in ((1, True), (2, True), (1, True), (0, False), (1, True)):
        given = (k, v, pair[:, 0], pair[:, other], torch.tensor([1, 2, 3]))
        if allowed:
            call(*given, checked=False)
            assert torch.equal(pair[0, other, 1:4], v)
        else:
            with pytest.raises(ValueError, match="k_cache: got memory that overlaps v_cache"):
                call(*given, checked=False)


def test_values_are_checked_where_it_is_asked_for() -> None:
    k = torch.randn(2, 8)
    pools = torch.zeros(2, 4, 8)
    slots = torch.tensor([-5, 1])
    for checked in (None, True):
        with pytest.raises(ValueError, match="store_kv: slots: axis m: got slot -5 at 0"):
            torch.ops.samebits.store_kv(k, k, pools[0], pools[1], slots, checked=checked)
    assert not pools.any()
    torch.ops.samebits.store_kv(k, k, pools[0], pools[1], slots, checked=False)  # every negative slot is skipped
    assert torch.equal(pools[:, 1], torch.stack([k[1], k[1]]))
    assert pools.count_nonzero() == 16


def test_the_error_of_a_launch_is_raised() -> None:
    far = torch.full((3, 2), 2**30, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"paged_decode: kernel decode .*not mapped"):
        Decode(block_tables=far)(checked=False)


def test_arguments_must_lie_where_the_kernel_can_reach_them() -> None:
    """A device mix, with "meta" for the device: out and q on it, or not."""
    here, there = torch.zeros(3), torch.zeros(3, device="meta")
    decode_on = torch_call.Operator(cases.kernel("paged_decode"), [])._device
    assert decode_on({"out": here, "q": here}).type == "cpu"
    with pytest.raises(ValueError, match=r"paged_decode: q: got a tensor on cpu, expected one on meta \(from out\)"):
        decode_on({"out": there, "q": here})
    swap_on = torch_call.Operator(cases.kernel("swap_blocks"), [])._device
    assert [swap_on({"src": a, "dst": b, "pairs": here}).type for a, b in ((here, there), (there, here))] == ["meta"] * 2
    with pytest.raises(ValueError, match="swap_blocks: pairs: got a tensor on meta, expected one on cpu"):
        swap_on({"src": there, "dst": here, "pairs": there})


def test_tensors_without_memory_mix_with_no_others() -> None:
    """They choose the operator's fake, which must not take a call for done whose other tensors wait for results."""
    for changed in ({"q": torch.zeros(3, H, D, device="meta").half()}, {"out": torch.zeros(3, H, D, device="meta").half()}):
        with pytest.raises(ValueError, match=r"paged_decode: \w+: got a tensor on \w+, expected one on meta"):
            Decode(**changed)()


def test_a_kernel_starts_on_the_current_stream_of_its_device(tmp_path: Path) -> None:
    """BUGS: stream ignored, device ignored. A program with stand-ins for torch's devices: the current stream of device i is 100 + i."""
    program = torch_call.build_cpp(Path(__file__).with_name("torch_plan.cc"), "torch_plan", program=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "current device 0: on 0, stream 100, words 7 5; then 0",
        "current device 1: on 0, stream 100, words 7 5; then 1",
        "current device 1, on the CPU: on 1, stream 0, words 7 5; then 1",
        "an error: k: CUDA error 9; then 1",
    ]
