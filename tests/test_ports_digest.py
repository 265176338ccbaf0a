"""What recordings of ports are bound to: the code of a port and of what it imports, not the words around it."""

from __future__ import annotations

import pytest

from tools import ports

TEXT = '''"""Module."""

from emu.simt import device  # how


@device
def f(x):
    """Doubles,
    twice."""
    mark = "# no comment"  # a comment
    return x * 4, mark


class A:
    """Holds."""
    size = 4
'''


def test_comments_and_docstrings_are_no_code() -> None:
    without = TEXT.replace('"""Module."""', '"""Another module."""').replace("Doubles,\n    twice", "Adds").replace("# a comment", "")
    assert ports.code(without.replace('"""Holds."""', '"""Is."""')) == ports.code(TEXT)
    assert '"# no comment"' in ports.code(TEXT)


@pytest.mark.parametrize(("old", "new"), [("x * 4", "x * 5"), ("# no comment", "# none"), ("@device\n", ""), ("size = 4", "size = 8")])
def test_everything_else_is(old: str, new: str) -> None:
    assert ports.code(TEXT.replace(old, new)) != ports.code(TEXT)


def test_a_function_in_one_line_stays() -> None:
    assert ports.code('def f(): "text"\n') == 'def f(): "text"'


def test_a_gpu_does_without_the_scheduler() -> None:
    found = ports.texts("paged_attention_v1")
    assert {"emu/paged_attention_v1.py", "emu/simt/__init__.py"} <= set(found)
    assert not {"emu/simt/kernel.py", "emu/simt/block.py", "emu/simt/checked.py"} & set(found)
