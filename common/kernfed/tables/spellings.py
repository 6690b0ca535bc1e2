"""Names that were written by different people: which are likely one name, and the order of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kernfed.tables.cells import bare_label


def alike(found: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Names that differ only by case, blanks, width or decimals, by the names that each client has."""
    spellings: dict[str, dict[str, None]] = {}
    for client in sorted(found):
        for name in found[client]:
            spellings.setdefault(bare_label(name), {})[name] = None
    return [tuple(names) for names in spellings.values() if len(names) > 1]


def told_alike(spelt: Sequence[Sequence[str]]) -> tuple[str, str]:
    """The first of such names for a message: which they are, and the table that maps each to the first of its kind."""
    few = spelt[:4]
    told = "; ".join(" and ".join(repr(name) for name in names) for names in few)
    return told, ", ".join(f'"{name}" = "{names[0]}"' for names in few for name in names[1:])


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order of numbers where every one is a number ("2" before "10"), else in that of texts."""

    def number(name: str) -> float:
        value = float(name)
        if not math.isfinite(value):
            raise ValueError(name)
        return value

    found = list(names)
    try:
        return sorted(found, key=lambda name: (number(name), name))
    except ValueError:
        return sorted(found)
