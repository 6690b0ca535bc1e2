"""How many examples a property is tried on: its own number, or five times that in the profile `thorough`."""

from __future__ import annotations

from hypothesis import settings

EVERYDAY = 100
"""Hypothesis's own number, for a property that names none."""


def examples(num: int) -> int:
    """A property's number of examples, in the profile that is loaded."""
    assert settings.default is not None
    return num * settings.default.max_examples // EVERYDAY
