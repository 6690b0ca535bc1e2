"""Numbers, durations, settings and lists of names as text."""

from __future__ import annotations

import pytest

from kernfed.wording import duration, flat, listed, number, with_error


@pytest.mark.parametrize(
    ("seconds", "text", "in_a_column"),
    [
        (0.25, "0.2 s", "0.2 s"),
        (59.94, "59.9 s", "59.9 s"),
        (61.4, "1 min 1 s", "1 min 01 s"),
        (3725, "1 h 2 min", "1 h 02 min"),
    ],
)
def test_durations(seconds: float, text: str, in_a_column: str) -> None:
    """By the two largest units; in a column the second has two digits."""
    assert duration(seconds) == text
    assert duration(seconds, digits=2) == in_a_column


def test_numbers() -> None:
    """Four significant digits."""
    assert [number(v) for v in (0.876543, 12345678.0, 1e-05, 3.0)] == ["0.8765", "1.235e+07", "1e-05", "3"]


def test_names() -> None:
    """The first few; the caller says how the rest is told of."""
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcd", 2) == "a, b"
    assert listed("abcd", 2, ", …") == "a, b, …"
    assert listed("abcd", 3, " and {left} more") == "a, b, c and 1 more"
    assert listed("ab", 2, " and {left} more") == "a, b"


def test_settings() -> None:
    """Tables become dotted keys, lists are joined, and a key that is not set says so in the caller's words."""
    settings = {"a": {"b": [1, 2], "c": {"d": True}}, "e": None}
    assert dict(flat(settings)) == {"a.b": "1, 2", "a.c.d": "True", "e": ""}
    assert dict(flat(settings, "not set"))["e"] == "not set"


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0.0232171, 0.0058123, "0.0232 ± 0.0058"),
        (12.345, 1.26, "12.3 ± 1.3"),
        (1234.6, 240.0, "1235 ± 240"),
        (2e7, 3e5, "2e+07 ± 3e+05"),
        (0.5, 0.0, "0.5 ± 0"),
    ],
)
def test_an_error_has_two_digits_and_its_number_no_more(value: float, error: float, words: str) -> None:
    """Digits that the error makes worthless are not shown."""
    assert with_error(value, error) == words
