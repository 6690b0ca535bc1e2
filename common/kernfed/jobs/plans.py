"""What two jobs ask for, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_TOLD = 10
"""Differing keys that a message names."""


def parts_of(
    plan: Mapping[str, Any], tables: tuple[str, ...], free: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, Any]]:
    """Tables of a job's plan without the keys in which two jobs may differ."""
    return {t: {k: v for k, v in plan.get(t, {}).items() if k not in free.get(t, ())} for t in tables}


def differing_keys(earlier: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Keys in which two of `parts_of` differ, as they are written, with both values."""
    found = []
    for table in sorted({*earlier, *now}):
        one, other = earlier.get(table, {}), now.get(table, {})
        found += [
            f"{table}.{key} = {other.get(key)!r} (there {one.get(key)!r})"
            for key in sorted({*one, *other})
            if one.get(key) != other.get(key)
        ]
    return found
