"""How many examples a property is tried on: its own number, or that of the profile: a fifth, or five times."""

from __future__ import annotations

from hypothesis import settings

EVERYDAY = 100
"""Hypothesis's own number, for a property that names none."""


def examples(num: int) -> int:
    """A property's number of examples, in the profile that is loaded."""
    assert settings.default is not None
    return max(1, num * settings.default.max_examples // EVERYDAY)
