"""The command line: names of legs and of new kernels, the line that runs a case again, errors of one line."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

import pytest

from pyref import store_kv
from tools import cases, legs, new_kernel, verify
from tools.__main__ import main

CASE = cases.cases("store_kv")[0]


@pytest.mark.parametrize("name", ["ref", "host", "host reverse", "host-check", "host-check shuffle:3"])
def test_the_line_that_runs_a_case_again_names_its_leg(name: str) -> None:
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    program, command, *rest = shlex.split(verify.reproduce("store_kv", CASE, name))
    args = parser.parse_args(rest)
    assert (program, command, args.stem, args.case) == ("samebits", "verify", ["store_kv"], CASE.id)
    assert legs.leg(*args.leg).name == name


@pytest.mark.parametrize("name", ["none", "gpu reverse", "ref shuffle:1", "host backwards", "sim shuffle:x", "host reverse:1"])
def test_what_is_no_leg_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^no (leg|order) .*; there are "):
        legs.leg(name)


def test_every_build_is_made_before_cases_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another order of threads too, and with the emulator's checks."""
    made = []
    monkeypatch.setattr(verify.build, "host_library", lambda kernel, constants, check=False: made.append((kernel.stem, check)))
    with verify.Progress(disable=True) as progress:
        verify.prebuild([("store_kv", CASE)], [legs.Host("reverse"), legs.Host("shuffle:1"), legs.HostCheck()], progress)
    assert sorted(made) == [("store_kv", False), ("store_kv", True)]


class _Last:
    """An object that ends the process which it is sent to."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)


def test_a_case_that_ends_its_process_is_an_error_that_says_how_to_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "batches", lambda jobs: [[_Last()]])
    with pytest.raises(OSError, match=r"^legs host: a case ended its process.* --leg host-check alone names"):
        list(verify.run_cases([("store_kv", CASE)], [legs.leg("host")], again=False))


def test_a_kernel_that_is_not_written_yet_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(call: object) -> None:
        raise NotImplementedError("store_kv: the definition is not written")

    monkeypatch.setattr(store_kv.run, "body", body)
    (result,) = verify.run_case("store_kv", CASE, [legs.Host()])
    assert (result.leg, result.equal, result.reason) == ("ref", False, "store_kv: the definition is not written")


def test_a_new_kernel_has_four_files_that_are_python_and_name_it(tmp_path: Path) -> None:
    for folder in ("pyref", "emu", "kernels_cu", "tests"):
        (tmp_path / folder).mkdir()
    written = new_kernel.write("rms_norm", tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in written) == [
        "emu/rms_norm.py", "kernels_cu/rms_norm.cu", "pyref/rms_norm.py", "tests/test_rms_norm.py",
    ]  # fmt: skip
    for path in written:
        assert "rms_norm" in path.read_text()
        if path.suffix == ".py":
            compile(path.read_text(), path, "exec")
    with pytest.raises(ValueError, match=r"^pyref/rms_norm.py exists already$"):
        new_kernel.write("rms_norm", tmp_path)


@pytest.mark.parametrize("name", ["", "9x", "A", "a-b", "_a", "a__b", "class", "store_kv", "spec", "a" * 300, "../a", "rms_norm\n"])
def test_a_bad_name_is_an_error_of_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = cases.stems()
    assert main(["new-kernel", name]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("samebits new-kernel: ")
    assert printed.count("\n") == 1
    assert cases.stems() == before


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--render", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("samebits bench: ")
