"""The guide docs/step-through-a-kernel.md: its commands are run, and what they print is what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tools.cases import ROOT

GUIDE = ROOT / "docs" / "step-through-a-kernel.md"
PROMPT = "(Pdb) "
INSTALLED = os.environ | {"PYTHONPATH": str(ROOT)}  # as if the project were installed in this Python


def blocks() -> list[list[str]]:
    """The lines of the guide's console blocks."""
    return [block.splitlines() for block in re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.S)]


def shown(answer: str) -> list[str]:
    """What the guide shows of an answer of the debugger: values and source lines, no places and no breakpoints' numbers."""
    lines = [line.rstrip() for line in answer.splitlines()]
    hidden = re.compile(r"> .*\(\d+\)|Breakpoint \d+ at|Deleted breakpoint|--Return--|The program |\[?<?frozen|$")
    return [line for line in lines if not hidden.match(line)]


def session(commands: list[str]) -> list[list[str]]:
    """The answers to the commands, typed into pdb one after another."""
    command = [sys.executable, "-m", "pdb", "docs/worked_example.py"]
    typed = "\n".join([*commands, "quit", ""])
    done = subprocess.run(command, input=typed, capture_output=True, text=True, cwd=ROOT, env=INSTALLED, check=False, timeout=120)
    return [shown(answer) for answer in done.stdout.split(PROMPT)[1 : len(commands) + 1]]


def test_the_session_is_as_it_is_written() -> None:
    written: list[tuple[str, list[str]]] = []
    for line in (line for block in blocks() for line in block if not line.startswith("$")):
        if line.startswith(PROMPT):
            written.append((line.removeprefix(PROMPT), []))
        else:
            written[-1][1].append(line)
    assert len(written) > 30
    answers = session([command for command, _ in written])
    for (command, wanted), got in zip(written, answers, strict=True):
        if command == "continue" and got[:1] == ["out[0, 5, :4] [ 0.2212  -0.0935  -0.07007  0.4036 ]"]:
            got = got[:3]  # the program has ended and begins again
        assert got == wanted, f"{PROMPT}{command}"


def test_the_checked_run_is_silent() -> None:
    (line,) = [line for block in blocks() for line in block if line.startswith("$ python -m emu.simt")]
    done = subprocess.run([sys.executable, *line.split()[2:]], capture_output=True, text=True, cwd=ROOT, env=INSTALLED, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "equal bytes   True"


def test_the_numbers_of_the_text_are_those_of_the_example() -> None:
    """What the guide says of token 20, head 5 and thread 41 follows from the mapping."""
    from pyref.classic import Mapping

    size = Mapping(128, 16, 2)
    token, table = 20, (7, 2, 9)
    page, slot = table[token // 16], token % 16
    lanes = range(slot * size.group, (slot + 1) * size.group)
    assert (page, slot, list(lanes), 5 // (8 // 2), token // 16 * 32 + lanes[1]) == (2, 4, [8, 9], 1, 41)
