"""Recordings: what contradicts one, what a stale one still says, and which cases need not run again on the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernels_cu import build
from tools import cases, golden, legs, ports, verify

STEM = "merge_attn_states"
CASE = cases.cases(STEM)[0]
OTHER = {"out": "0" * 64}


@pytest.fixture
def now() -> tuple[str, dict[str, str]]:
    """Digests of the case's inputs and of the outputs that the definition gives."""
    arguments = cases.inputs(STEM, CASE)
    got, _, _ = verify.run_leg(STEM, legs.leg("ref"), arguments)
    assert got is not None
    return cases.inputs_digest(arguments), golden.outputs(STEM, got)


def recorded(monkeypatch: pytest.MonkeyPatch, leg: str, inputs: str, outputs: dict[str, str], source: str | None = None) -> None:
    """There is one recording, of this case on this leg."""
    entry = {"inputs": inputs, "outputs": outputs, "source": source or golden.source(STEM, leg)}
    found = {f"{STEM}/{CASE.id}": entry}
    if leg == "sim":
        monkeypatch.setattr(golden, "_simulations", lambda: found)
    else:
        monkeypatch.setattr(golden, "recordings", lambda: {"machine": {"leg": leg, "cases": found}})


@pytest.mark.parametrize("leg", ["gpu", "numba-gpu"])
def test_equal_digests_agree_and_others_contradict(leg: str, now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = now
    recorded(monkeypatch, leg, inputs, outputs)
    assert golden.judge(STEM, CASE.id, inputs, outputs) == golden.Verdict()
    recorded(monkeypatch, leg, inputs, outputs | OTHER)
    assert f"{STEM}/{CASE.id}: out: sha256 {outputs['out'][:16]}" in str(golden.judge(STEM, CASE.id, inputs, outputs).wrong)
    recorded(monkeypatch, leg, inputs, outputs | {"absent": "0" * 64})
    assert "absent: sha256 None" in str(golden.judge(STEM, CASE.id, inputs, outputs).wrong)


def test_a_gpu_s_recording_binds_other_sources_and_other_inputs(now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = now
    recorded(monkeypatch, "numba-gpu", inputs, outputs, source="of another port")
    assert golden.judge(STEM, CASE.id, inputs, outputs) == golden.Verdict(note="not recorded from this source on machine")
    recorded(monkeypatch, "gpu", inputs, outputs | OTHER, source="of another kernel")
    assert "recorded on machine" in str(golden.judge(STEM, CASE.id, inputs, outputs).wrong)
    recorded(monkeypatch, "gpu", "of other inputs", outputs)
    assert "other inputs than those recorded on machine" in str(golden.judge(STEM, CASE.id, inputs, outputs).wrong)


def on_the_simulator(again: bool = False) -> verify.Result:
    """What the leg sim makes of the case."""
    _, result = verify.run_case(STEM, CASE, [legs.leg("sim")], again)
    return result


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The case counts as slow; nothing is known of it."""
    monkeypatch.setattr(legs.Sim, "QUICK", -1)
    monkeypatch.setattr(golden, "_simulations", dict)
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path))


@pytest.mark.usefixtures("slow")
def test_a_slow_case_runs_on_the_simulator_once(now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = on_the_simulator(), on_the_simulator()
    assert first.equal
    assert (second.equal, second.reason) == (None, verify.KNOWN)
    assert first.entry == second.entry == golden.entry(STEM, *now, "sim")
    assert on_the_simulator(again=True).equal
    monkeypatch.setattr(golden, "source", lambda stem, leg: "of another port")
    assert on_the_simulator().equal


@pytest.mark.usefixtures("slow")
def test_what_is_known_of_a_slow_case_counts_while_inputs_and_sources_are_the_same(now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = now
    recorded(monkeypatch, "sim", inputs, outputs)
    assert on_the_simulator().reason == verify.KNOWN
    recorded(monkeypatch, "sim", inputs, outputs | OTHER)
    result = on_the_simulator()
    assert result.equal is False
    assert str(result.reason).startswith("out: sha256")
    recorded(monkeypatch, "sim", inputs, outputs | OTHER, source="of another port")
    assert on_the_simulator().equal
    recorded(monkeypatch, "sim", "of other inputs", outputs | OTHER)
    assert on_the_simulator().reason == verify.KNOWN  # from the run before


def test_quick_cases_always_run(now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, "sim", *now)
    result = on_the_simulator()
    assert result.equal
    assert result.entry is None


def test_what_a_port_s_bytes_depend_on() -> None:
    texts = ports.texts("paged_decode")
    for name in ("emu/paged_decode.py", "emu/decode_tile.py", "emu/contract.py", "pyref/spec.py", "emu/simt/__init__.py"):
        assert texts[name] == (cases.ROOT / name).read_text()
    assert "emu/classic.py" not in texts
    assert "emu/classic.py" in ports.texts("paged_attention_v1")
    assert ports.digest("paged_decode", simulated=True) != ports.digest("paged_decode", simulated=False)


def test_a_changed_file_changes_the_digest_of_the_ports_that_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {stem: ports.digest.__wrapped__(stem, False) for stem in ("paged_decode", "paged_attention_v1", "store_kv")}
    texts = ports.texts

    def changed(stem: str) -> dict[str, str]:
        return {name: text + "\nmore = 1" if name == "emu/decode_tile.py" else text for name, text in texts(stem).items()}

    monkeypatch.setattr(ports, "texts", changed)
    after = {stem: ports.digest.__wrapped__(stem, False) for stem in before}
    assert {stem for stem in before if before[stem] != after[stem]} == {"paged_decode"}


def test_a_recording_of_a_kernel_is_bound_to_code_and_not_to_comments() -> None:
    text = 'int x = 1;  // one\n/* two\n   lines */ auto s = "//no comment";\n'
    assert build.code(text) == build.code(text.replace("one", "1").replace("lines", "")) == 'int x = 1;\n auto s = "//no comment";'
    for old, new in (("no comment", "comment"), ("x = 1", "x = 2")):
        assert build.code(text) != build.code(text.replace(old, new))
