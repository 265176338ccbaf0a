"""The command `samebits run`: arguments, exit codes, orders, limits, and where it says that something went wrong."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.host_programs import PROGRAMS
from tools.__main__ import main

WHOLE = str(PROGRAMS / "whole.cu")


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "whole.h").write_text("#define FROM_HEADER 5\n")
    return ["-I", str(tmp_path), "-D", "ANSWER=42"]


def test_arguments_defines_and_include_folders(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", WHOLE, *options, "a", "--other", "--", "--check"]) == 0
    assert capfd.readouterr().out == "4 --other --check\n"
    assert main(["run", *options, WHOLE, "--", "d"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "42 5"
    assert main(["run", *options, WHOLE, "e"]) == 7


def test_architecture(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", WHOLE, *options, "--arch", "sm_80", "p"]) == 0
    assert capfd.readouterr().out == "8.0 166912\n"


def test_orders(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", WHOLE, *options, "--order", "forward", "o"]) == 0
    assert main(["run", WHOLE, *options, "--order", "reverse", "o"]) == 0
    assert main(["run", WHOLE, *options, "--order", "sideways", "o"]) == 2
    assert "sideways" in capfd.readouterr().err


def test_reports_are_printed_and_written(options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "reports.json"
    assert main(["run", WHOLE, *options, "--check", "--json", str(found), "r"]) == 1
    report = json.loads(found.read_text())[0]
    assert set(report) == {"kind", "kernel", "block", "thread", "file", "line", "other", "message"}
    assert (report["kind"], report["kernel"], report["line"], report["other"]["line"]) == ("global race", "racing", 15, 15)
    assert "p (4 bytes)" in report["message"]
    assert "whole.cu:15: global race in racing" in capfd.readouterr().err
    assert main(["run", WHOLE, *options, "--check", "--order", "3", "r"]) == 1
    assert "shuffle:0 fails" in capfd.readouterr().err
    assert main(["run", WHOLE, *options, "--check", "--json", str(found), "x"]) == 1
    kinds = [(report["kind"], report["line"]) for report in json.loads(found.read_text())]
    assert kinds == [("out of bounds", 41), ("invalid free", 41)]
    assert main(["run", WHOLE, *options, "--check", "--json", str(found), "l"]) == 1
    assert [(report["kind"], report["line"]) for report in json.loads(found.read_text())] == [("launch", 36)]
    assert main(["run", WHOLE, *options, "--check", "m"]) == 0
    assert main(["run", WHOLE, *options, "--check", "--leaks", "--json", str(found), "m"]) == 1
    assert [report["kind"] for report in json.loads(found.read_text())] == ["unfreed memory"]


def test_copies_beyond_an_allocation_fail_as_on_a_gpu(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    for check in (False, True):
        assert main(["run", WHOLE, *options, *["--check"][:check], "y"]) == check
        said = capfd.readouterr()
        assert said.out == "1 1\n"  # cudaErrorInvalidValue
        assert "run over the end" in said.err or "whole.cu:42: out of bounds: cudaMemcpy" in said.err, said.err


def test_crashes_and_endless_loops_name_their_line(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", WHOLE, *options, "w"]) == 0  # the program goes on, as it would
    assert "whole.cu:13" in (text := capfd.readouterr().err), text
    assert main(["run", WHOLE, *options, "--check", "w"]) == 1
    assert "whole.cu:13: out of bounds in wild" in (text := capfd.readouterr().err), text
    assert main(["run", WHOLE, *options, "h"]) == 128 + 11
    assert "whole.cu:35: Segmentation fault" in (text := capfd.readouterr().err), text
    for check in ([], ["--check"]):
        assert main(["run", WHOLE, *options, *check, "--timeout", "0.5", "s"]) == 124
        assert "whole.cu:10" in (text := capfd.readouterr().err), text


def _runs(process: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_an_interrupt_ends_the_program_too(options: list[str]) -> None:
    command = [sys.executable, "-m", "tools", "run", WHOLE, *options, "--output", "1", "i"]
    heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs are born ignoring it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        child = int(process.stdout.readline())  # it runs, and would for ever
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (130, "")
    deadline = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < deadline, "the program outlives its command"
        time.sleep(0.01)


def test_limits_of_memory_and_output(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", WHOLE, *options, "--memory", "200", "--timeout", "30", "g"]) == 124
    assert "memory limit of 200 MiB reached" in capfd.readouterr().err
    assert main(["run", WHOLE, *options, "--output", "0.25", "--timeout", "30", "b"]) == 124
    said = capfd.readouterr()
    assert "output limit of 262,144 bytes reached" in said.err
    assert len(said.out) == 262_144
    assert main(["run", WHOLE, *options, "--output", "0.25", "a", "short", "text"]) == 0
    assert capfd.readouterr().out == "4 short text\n"


PUBLIC = PROGRAMS / "public.cu"
SEEN = {  # mode: what is said at its line without a check, kind of the report with one
    "cudaMemcpyAsync": ("", "out of bounds"),
    "believes": ("", "global race"),
    "unaligned": ("", "misaligned"),
    "endless": ("time limit of 0.5 s reached in device code", "no progress"),
    "trapped": ("__trap()", "failure"),
    "wild": ("which is not mapped", "out of bounds"),
    "library": ("Segmentation fault", ""),
}


def test_what_public_programs_need(capfd: pytest.CaptureFixture[str]) -> None:
    for order in ([], ["--check"]):
        assert main(["run", str(PUBLIC), *order]) == 0, capfd.readouterr()
        assert capfd.readouterr().out == "PASS\n"


@pytest.mark.parametrize("mode", SEEN)
def test_faults_are_said_at_the_users_line(mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = f"public.cu:{next(i for i, text in enumerate(PUBLIC.read_text().splitlines(), 1) if text.endswith(f'// FAULT of {mode}'))}"
    said, kind = SEEN[mode]
    code = main(["run", str(PUBLIC), "--timeout", "0.5", mode])
    errors = capfd.readouterr().err
    assert (place in errors and said in errors) if said else code == 0, errors
    found = tmp_path / "reports.json"
    assert main(["run", str(PUBLIC), "--check", "--timeout", "0.5", "--json", str(found), mode]) != 0
    reports = json.loads(found.read_text())
    assert [(report["kind"], f"{Path(report['file']).name}:{report['line']}") for report in reports] == ([(kind, place)] if kind else [])
    assert place in capfd.readouterr().err


def test_sources_as_other_editors_write_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A byte order mark, lines that end in CR LF, letters of Latin-1, a folder with a space and a letter beyond ASCII."""
    folder = tmp_path / "m\u00ef x"
    folder.mkdir()
    source = folder / "caf\u00e9.cu"
    kernel = '__global__ void k() { printf("%d\\n", "\u00e9"[0] & 255); }'
    text = "\r\n".join(["#include <cstdio>", "// caf\u00e9", kernel, "int main() {", "  k<<<1, 1>>>();", "}", ""])
    for encoding, first in (("utf-8-sig", 0xC3), ("latin-1", 0xE9)):
        source.write_bytes(text.encode(encoding))
        assert main(["run", str(source)]) == 0, capfd.readouterr()
        assert capfd.readouterr().out == f"{first}\n"


FOLDER = "/no/folder"


@pytest.mark.parametrize(
    "option", ["--arch=sm_1", "--timeout=0", "--memory=-1", "--output=none", f"--trace={FOLDER}/f", f"--json={FOLDER}/f", "--leaks"]
)
def test_options_that_say_nothing_are_refused(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["run", str(PUBLIC), option])
    except SystemExit as error:  # argparse's own
        code = error.code
    said = capfd.readouterr()
    assert (code, said.out) == (2, "")
    assert option.partition("=")[0] in said.err or f"no folder {FOLDER}" in said.err


def test_what_cannot_be_built_or_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.cu"
    source.write_text('int main() {\n  asm("wgmma.fence;");\n}\n')
    assert main(["run", str(source)]) == 2
    assert "a.cu:2: inline asm: wgmma.fence is not modelled" in capfd.readouterr().err
    source.write_text("int main() {\n  undeclared();\n}\n")
    assert main(["run", str(source)]) == 2
    assert "a.cu:2" in capfd.readouterr().err
    assert main(["run", str(tmp_path / "none.cu")]) == 2
    assert "none.cu" in capfd.readouterr().err


def test_trace_of_known_patterns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    assert main(["run", str(PROGRAMS / "patterns.cu"), "--trace", str(out)]) == 0
    assert "patterns.cu:8 " in capfd.readouterr().err
    source = (PROGRAMS / "patterns.cu").read_text().splitlines()
    rows = {}
    for row in json.loads(out.read_text()):
        kernel = next(line.split("(")[0].split()[-1] for line in reversed(source[: row["line"]]) if line.startswith("__global__"))
        rows[kernel, row["space"], row["access"], source[row["line"] - 1].startswith("  for")] = row
    sectors = [(i * i * 2654435761 % 2**32 >> 20) % 512 // 8 for i in range(512)]
    gathered = sum(len(set(sectors[i : i + 32])) for i in range(0, 512, 32)) / 16
    loads = {"coalesced": 4, "stride_2": 8, "stride_32": 32, "gathered": gathered, "misaligned": 5, "broadcast": 1, "vectors": 16}
    for kernel, count in loads.items():
        row = rows[kernel, "global", "read", False]
        bytes_read = 512 if kernel == "vectors" else 128
        assert (row["requests"], row["sectors_per_request"]) == (16, pytest.approx(count, rel=1e-3)), kernel
        assert (row["bytes"], row["efficiency"]) == (16 * bytes_read, pytest.approx(bytes_read / 32 / count, rel=1e-3)), kernel
        assert row["arrays"] == {"x": 16 * bytes_read}
    assert rows["scattered", "global", "write", False]["sectors_per_request"] == 32
    assert rows["vectors", "global", "write", False]["sectors_per_request"] == 16
    conflicts = {"a_bank_a_lane": 0, "two_lanes_a_bank": 1, "one_bank": 31, "padded": 0, "written_to_one_bank": 31, "shared_vectors": 4}
    for kernel, count in conflicts.items():
        row = rows[kernel, "shared", "read", False]
        assert (row["requests"], row["conflicts"]) == (16, 16 * count), kernel
        if kernel in ("written_to_one_bank", "shared_vectors"):
            assert rows[kernel, "shared", "write", False]["conflicts"] == 16 * count, kernel
        else:
            filled = rows[kernel, "shared", "write", True]
            assert (filled["requests"], filled["conflicts"], filled["arrays"]) == (512, 0, {"s": 512 * 128}), kernel
