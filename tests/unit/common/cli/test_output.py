"""What commands print for programs."""

from __future__ import annotations

import json

import pytest

from kernfed.cli.output import print_json


def test_signs_that_nobody_sees_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Marks of direction and signs of no width come as escapes, letters as they are; the value stays the same."""
    value = {"client": "Zürich \u202e\u200b\x9b \U000e0001", "rows": [1]}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "Zürich" in printed
    assert all(c.isprintable() or c == "\n" for c in printed)
