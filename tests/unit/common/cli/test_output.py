"""What commands print for programs."""

from __future__ import annotations

import json
import re
import sys

import pytest

from kernfed.cli.output import print_folded, print_json, print_table


def test_signs_that_nobody_sees_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Marks of direction and signs of no width come as escapes, letters as they are; the value stays the same."""
    value = {"client": "Zürich \u202e\u200b\x9b \U000e0001", "rows": [1]}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "Zürich" in printed
    assert all(c.isprintable() or c == "\n" for c in printed)


@pytest.mark.parametrize(("width", "lines", "ruled"), [(120, 6, True), (80, 4, False), (50, 2, False)])
def test_a_narrow_terminal_cuts_no_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, lines: int, ruled: bool
) -> None:
    """Rules go first, then cells are wrapped at blanks; where words do not fit, the terminal wraps plain lines."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = ["switzerland", "connected", "heart", "cpu (1 threads)", "0.1.0", "2026-11-29 20:52", "90 days left"]
    print_table(["client", "state", "data sets", "device", "release", "last seen", "valid"], [row])
    printed = re.sub("\x1b[^m]*m", "", capsys.readouterr().out)
    assert all(word in printed for word in " ".join(row).split())
    assert ("│" in printed) is ruled
    assert len(printed.splitlines()) <= lines
    assert not ruled or max(map(len, printed.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 110])
def test_long_lines_are_folded_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """At blanks and beside the head, with all words; piped, a line stays a line."""
    head, text = "clients    ", " ".join(f"hospital-{i}," for i in range(30))
    print_folded(head, text)
    assert capsys.readouterr().out == f"{head}{text}\n"
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_folded(head, text)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(head)
    assert all(line.startswith(" " * len(head)) for line in rest)
    assert max(map(len, [first, *rest])) <= width
    assert " ".join([first, *rest]).split() == f"{head}{text}".split()
