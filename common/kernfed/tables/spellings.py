"""Names that were written by different people: which are likely one name, and the order of all of them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from kernfed.tables.cells import bare_label

SPELT = "case, blanks, width, accents, hyphens or zeros of a number"
"""What spellings of one name differ by, for messages."""

_NUMBER = re.compile(r"\+?(-?)0*([0-9]+)(?:\.([0-9]*?)0*)?")
_JOIN = re.compile(r"(?<=[^\W_]) ?[-_\u2010-\u2015] ?(?=[^\W_])")
"""A hyphen, a dash or a low line between two words."""
_ACCENTS = range(0x300, 0x370)
"""Marks over letters of Latin, Greek and Cyrillic; those of other scripts make other letters."""


def alike(found: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Names that are likely spellings of one, by the names that each client has."""
    spellings: dict[str, dict[str, None]] = {}
    for client in sorted(found):
        for name in found[client]:
            spellings.setdefault(_bare(name), {})[name] = None
    return [tuple(names) for names in spellings.values() if len(names) > 1]


def _bare(name: str) -> str:
    """A name without what people write in two ways: as `bare_label`, and accents, hyphens and a number's zeros."""
    bare = " ".join("".join(_plain(sign) for sign in unicodedata.normalize("NFKD", bare_label(name))).split())
    if number := _NUMBER.fullmatch(bare):
        sign, whole, rest = number.groups(default="")
        return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"
    return _JOIN.sub(" ", bare)


def _plain(sign: str) -> str:
    """A sign without accents, digits as those of ASCII; empty for what does not show."""
    if ord(sign) in _ACCENTS or (kind := unicodedata.category(sign)) == "Cf":
        return ""
    return str(unicodedata.decimal(sign)) if kind == "Nd" else sign


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
