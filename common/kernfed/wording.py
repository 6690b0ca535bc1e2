"""Numbers, times, settings, lists of names and text from elsewhere as text, for commands, reports and messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

MAX_LISTED = 12
"""Names in a sentence, unless the caller wants fewer."""

MAX_CLASS_NAME = 256
"""Characters of a class's name."""
_LEAST_P = 1e-4
"""A p-value below it is told so."""


def clean(text: str) -> str:
    """Text from elsewhere without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def is_class_name(text: str) -> bool:
    """Whether a text may name a class: it steers nobody's terminal, table or page."""
    return len(text) <= MAX_CLASS_NAME and text.isprintable()


def number(value: float) -> str:
    """A number for reading: four significant digits."""
    return f"{value:.4g}"


def with_error(value: float, error: float, sign: str = "") -> str:
    """A number and its standard error for reading, which has two digits: `0.0232 ± 0.0058`.

    Args:
        value: The number.
        error: At least 0; of 0 the number has the digits of `number`.
        sign: `+`: one above 0 has its sign too.
    """
    if not 0.0 < error < math.inf:
        return f"{value:{sign}.4g} ± {number(error)}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > 6 or max(abs(value), error) >= 1e6:
        return f"{value:{sign}.4g} ± {error:.2g}"
    return f"{value:{sign}.{digits}f} ± {error:.{digits}f}"


def p_value(value: float, equal: str = "") -> str:
    """A p-value for reading: four digits behind the point, or that it is below all of them.

    Args:
        value: Between 0 and 1.
        equal: What comes before a number that is told.
    """
    return f"< {_LEAST_P:g}" if value < _LEAST_P else f"{equal}{value:.4f}"


def duration(seconds: float, digits: int = 1) -> str:
    """A duration for reading, such as `3.2 s`, `1 min 5 s` or `2 h 30 min`.

    Args:
        seconds: At least 0.
        digits: Least number of digits of the second number, e.g. 2 in a column of a table.
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:0{digits}} min" if hours else f"{minutes} min {rest:0{digits}} s"


def moment(when: datetime) -> str:
    """A time in UTC for reading, to the minute."""
    return f"{when:%Y-%m-%d %H:%M} UTC"


def listed(names: Sequence[str], limit: int = MAX_LISTED, more: str = "") -> str:
    """Names with commas between them: the first `limit`, then `more`, in which `{left}` is the number left out."""
    shown = ", ".join(names[:limit])
    return shown + more.format(left=len(names) - limit) if len(names) > limit else shown


def flat(settings: Mapping[str, Any], unset: str = "", prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings as dotted keys and values; `unset` stands for None and for an empty text."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, unset, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield f"{prefix}{key}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{key}", unset if value is None or value == "" else str(value)
