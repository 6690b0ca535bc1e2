"""Curves of a job under way as inline SVG: by classes of the style sheet alone, so that no page needs styles inside it.

The report's pictures are drawn by matplotlib once, when a job ends. These are drawn anew whenever a round closes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from kernfed.report.charts import Series
from kernfed.wording import number

_KNOWN: Final = ("global", "local", "personal", "central", "training", "fedavg", "own")
_MARKED: Final = 40
"""Points of a line up to which each has a mark."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a picture, in units of its own; text has 12 or 11 of them."""

    width: int
    height: int
    left: int
    bottom: int
    ticks: int


LARGE: Final = Size(340, 200, 58, 26, 5)
SMALL: Final = Size(240, 130, 52, 22, 3)

_TOP: Final = 10
_RIGHT: Final = 14


def curves(title: str, lines: Sequence[Series], size: Size = LARGE, *, log: bool = False) -> Markup:
    """Values over rounds.

    Args:
        title: For readers who do not see the picture.
        lines: At least one, each of at least one round.
        size: Of the picture.
        log: Whether the axis of values is logarithmic; all values are then above 0.
    """
    scale = _Scale(lines, size, log)
    parts = [_axes(scale, size)]
    parts += [_line(line, scale) for line in lines]
    head = Markup('<svg class="curves" role="img" aria-label="{}" viewBox="0 0 {} {}"><title>{}</title>')
    return head.format(title, size.width, size.height, title) + Markup("").join(parts) + Markup("</svg>")


def class_of(model: str) -> str:
    """Class of a model's line in the style sheet."""
    return model if model in _KNOWN else "other"


class _Scale:
    """Places of rounds and values in a picture."""

    def __init__(self, lines: Sequence[Series], size: Size, log: bool) -> None:
        rounds = [r for line in lines for r in line.rounds]
        values = [self._as_drawn(v, log) for line in lines for v in line.values]
        self._size, self._log = size, log
        self.first, self.last = min(rounds), max(rounds)
        low, high = min(values), max(values)
        least = 0.1 if not log and low >= 0 and high <= 1 else 1e-9 * max(abs(low), abs(high), 1e-300)
        margin = max(least - (high - low), 0.08 * (high - low)) / 2  # else noise would look like news
        self.low, self.high = low - margin, high + margin

    @staticmethod
    def _as_drawn(value: float, log: bool) -> float:
        return math.log10(value) if log else value

    def x(self, round_num: float) -> float:
        """Across, from the left."""
        inside = self._size.width - self._size.left - _RIGHT
        share = (round_num - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return round(self._size.left + share * inside, 1)

    def y(self, value: float) -> float:
        """Down, from the top."""
        inside = self._size.height - _TOP - self._size.bottom
        drawn = self._as_drawn(value, self._log)
        return round(_TOP + (self.high - drawn) / (self.high - self.low) * inside, 1)

    def values(self) -> list[float]:
        """Where the axis of values has ticks."""
        found = _ticks(self.low, self.high, self._size.ticks)
        if not self._log:
            return found
        decades = range(math.ceil(self.low), math.floor(self.high) + 1)
        whole = [10.0**d for d in decades][:: max(1, len(decades) // self._size.ticks)]
        return whole or [10.0**v for v in found]

    def rounds(self) -> list[int]:
        """Where the axis of rounds has ticks: whole numbers."""
        found = _ticks(self.first, self.last, self._size.ticks) if self.last > self.first else [self.first]
        return sorted({int(r) for r in found if r == int(r)} or {int(self.first), int(self.last)})


def _axes(scale: _Scale, size: Size) -> Markup:
    base = size.height - size.bottom
    parts = []
    for value in scale.values():
        y = scale.y(value)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(size.left, size.width - 4, y, y)
        )
        parts.append(
            Markup('<text x="{}" y="{}" class="of-value">{}</text>').format(size.left - 6, y + 4, number(value))
        )
    below = Markup('<text x="{}" y="{}" class="of-round">{}</text>')
    parts += [below.format(scale.x(round_num), base + 16, round_num) for round_num in scale.rounds()]
    return Markup("").join(parts)


def _line(line: Series, scale: _Scale) -> Markup:
    points = [(scale.x(r), scale.y(v)) for r, v in zip(line.rounds, line.values, strict=True)]
    path = " ".join(f"{x},{y}" for x, y in points)
    name = class_of(line.name)
    drawn = [Markup('<polyline class="line {}" points="{}"/>').format(name, path)]
    if len(points) <= _MARKED:
        drawn += [Markup('<circle class="mark {}" cx="{}" cy="{}" r="2.6"/>').format(name, x, y) for x, y in points]
    return Markup("").join(drawn)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers between two limits."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10, 20) if (high - low) / (m * power) <= most)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def legend(models: Iterable[str]) -> Markup:
    """Names of the lines, each with a piece of its line."""
    one = Markup(
        '<li><svg class="key" viewBox="0 0 28 10" aria-hidden="true">'
        '<polyline class="line {}" points="0,5 28,5"/></svg> {}</li>'
    )
    items = [one.format(class_of(model), escape(model)) for model in models]
    return Markup('<ul class="legend">') + Markup("").join(items) + Markup("</ul>")
