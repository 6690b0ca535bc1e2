"""From cells to feature columns, as `kernfed.tables.typed_cells` and `kernfed.columns.expand` make them.

A graph cannot refuse a row. What they refuse is NaN here, and so is all that is computed of it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping

import numpy as np

from kernfed.columns.plan import (
    LEVELS_OF_PART,
    MISSING,
    OTHER,
    ColumnKind,
    ColumnPlan,
    DatePart,
    MissingRule,
    UnknownRule,
)
from kernfed.models.onnx.graph import DOUBLE, INTEGER, TEXT, Graph

_EPOCH = datetime.date(1970, 1, 1)
_ERA, _MARCH_0 = 146_097, 719_468
"""Days of 400 years, and from 1 March of the year 0 to 1970-01-01."""

IS_TEXT = frozenset({ColumnKind.CATEGORY, ColumnKind.ORDINAL})
"""Columns whose cells are levels, text; an empty one is a gap. All others are numbers, and NaN is a gap."""


def expanded(graph: Graph, plan: ColumnPlan) -> str:
    """Declare a column of the table as an input, (n, 1), and make its feature columns, (n, P), float64."""
    kind = TEXT if plan.kind in IS_TEXT else DOUBLE
    cells = graph.input(plan.name, kind, ("rows", 1))
    if plan.kind is ColumnKind.CATEGORY:
        return _category(graph, plan, cells)
    number, gap, bad = _READERS[plan.kind](graph, plan, cells)
    parts = []
    if plan.has_number:
        fill = plan.fill if plan.fills else math.nan
        parts.append(graph.where(gap, fill, _transformed(graph, plan, number)))
    parts += [_part(graph, plan, part, number, gap) for part in plan.parts if part in LEVELS_OF_PART]
    if plan.missing is MissingRule.INDICATOR:
        parts.append(graph.cast(gap, DOUBLE))
    return graph.where(bad, math.nan, graph("Concat", *parts, axis=1))


def _number(graph: Graph, plan: ColumnPlan, cells: str) -> tuple[str, str, str]:
    """Numbers, whether each is a gap, and whether it is refused; those of gaps are of no account."""
    gap = graph("IsNaN", cells)
    bad = graph("IsInf", cells)
    if plan.log1p:
        least = graph("Max", cells, plan.clip[0]) if plan.clip else cells
        bad = graph("Or", bad, graph("And", graph("Not", gap), graph("LessOrEqual", least, -1.0)))
    return graph.where(graph("Or", gap, bad), 0.0, cells), gap, bad


def _truth(graph: Graph, plan: ColumnPlan, cells: str) -> tuple[str, str, str]:
    number, gap, bad = _number(graph, plan, cells)
    either = graph("Or", graph("Equal", number, 0.0), graph("Equal", number, 1.0))
    return number, gap, graph("Or", bad, graph("Not", either))


def _ordinal(graph: Graph, plan: ColumnPlan, cells: str) -> tuple[str, str, str]:
    places = {name: place for place, name in enumerate(plan.levels)}
    found = _encoded(graph, cells, {"": -1, **places}, -1 if plan.unknown is UnknownRule.MISSING else -2)
    gap, bad = (graph("Equal", found, np.int64(place)) for place in (-1, -2))
    return graph.cast(found, DOUBLE), gap, bad


def _days(graph: Graph, plan: ColumnPlan, cells: str) -> tuple[str, str, str]:
    """Days since the plan's day, of days since 1970-01-01."""
    number, gap, bad = _number(graph, plan, cells)
    return graph("Sub", number, float((datetime.date.fromisoformat(plan.since) - _EPOCH).days)), gap, bad


_READERS: Mapping[ColumnKind, Callable[[Graph, ColumnPlan, str], tuple[str, str, str]]] = {
    ColumnKind.NUMBER: _number,
    ColumnKind.BOOLEAN: _truth,
    ColumnKind.ORDINAL: _ordinal,
    ColumnKind.DATE: _days,
}


def _encoded(graph: Graph, cells: str, places: Mapping[str, int], other: int) -> str:
    keys, values = list(places), list(places.values())
    return graph(
        "LabelEncoder", cells, domain="ai.onnx.ml", keys_strings=keys, values_int64s=values, default_int64=other
    )


def _category(graph: Graph, plan: ColumnPlan, cells: str) -> str:
    places = {name: place for place, name in enumerate(plan.cells)}
    beyond = {UnknownRule.OTHER: places.get(OTHER, -1), UnknownRule.MISSING: places.get(MISSING, -1)}
    gap = places[MISSING] if plan.missing is MissingRule.INDICATOR else -1
    known = {"": gap, **{name: places[name] for name in plan.levels}}
    found = _encoded(graph, cells, known, beyond.get(plan.unknown, -1))
    return graph.where(graph("Less", found, np.int64(0)), math.nan, _hot(graph, found, len(places)))


def _hot(graph: Graph, codes: str, num: int) -> str:
    return graph.cast(graph("Equal", codes, np.arange(num, dtype=np.int64)[None]), DOUBLE)


def _transformed(graph: Graph, plan: ColumnPlan, number: str) -> str:
    """See `kernfed.columns.expand.transformed`, of whose rows each stands alone here."""
    if plan.clip:
        number = graph("Min", graph("Max", number, plan.clip[0]), plan.clip[1])
    if plan.rank:
        return _ranks(graph, np.array(plan.knots), number)
    return graph("Log", graph("Add", number, 1.0)) if plan.log1p else number


def _ranks(graph: Graph, knots: np.typing.NDArray[np.float64], number: str) -> str:
    """See `kernfed.columns.expand`; (n, 1)."""
    last, one = np.int64(len(knots) - 1), np.array([1])
    below = _counted(graph, graph("Less", graph.constant(knots[None]), number), one)
    upto = graph("Sub", _counted(graph, graph("LessOrEqual", graph.constant(knots[None]), number), one), np.int64(1))
    low, high = (graph("Min", graph("Max", graph(kind, below, upto), np.int64(0)), last) for kind in ("Min", "Max"))
    at_low, at_high = (graph("Gather", knots, place) for place in (low, high))
    distance = graph("Sub", at_high, at_low)
    apart = graph("Greater", distance, 0.0)
    inside = graph("Sub", graph("Min", graph("Max", number, knots[0]), knots[-1]), at_low)
    share = graph.where(apart, graph("Div", inside, graph.where(apart, distance, 1.0)), 0.5)
    steps = graph.cast(graph("Sub", high, low), DOUBLE)
    place = graph("Add", graph("Add", graph.cast(low, DOUBLE), graph("Mul", share, steps)), 0.5)
    return graph("Div", place, float(len(knots)))


def _counted(graph: Graph, flags: str, axis: np.typing.NDArray[np.int64]) -> str:
    return graph("ReduceSum", graph.cast(flags, INTEGER), axis, keepdims=1)


def _part(graph: Graph, plan: ColumnPlan, part: DatePart, days: str, gap: str) -> str:
    since = float((datetime.date.fromisoformat(plan.since) - _EPOCH).days)
    whole = graph.cast(graph("Add", graph("Floor", days), since), INTEGER)
    codes = _month(graph, whole) if part is DatePart.MONTH else _weekday(graph, whole)
    hot = _hot(graph, graph.where(gap, np.int64(-1), codes), len(LEVELS_OF_PART[part]))
    return hot if plan.fills else graph.where(gap, math.nan, hot)


def _weekday(graph: Graph, days: str) -> str:
    """0 is Monday; 1970-01-01 was a Thursday."""
    return graph("Mod", graph("Add", days, np.int64(3)), np.int64(7))


def _month(graph: Graph, days: str) -> str:
    """0 is January. Years begin on 1 March, so that a leap day is their last; Hinnant's `civil_from_days`."""

    def div(value: str, by: int) -> str:
        return graph("Div", value, np.int64(by))

    of_era = graph("Mod", graph("Add", days, np.int64(_MARCH_0)), np.int64(_ERA))
    leaps = graph(
        "Sub", graph("Add", graph("Sub", of_era, div(of_era, 1460)), div(of_era, 36_524)), div(of_era, 146_096)
    )
    year = div(leaps, 365)
    begun = graph("Sub", graph("Add", graph("Mul", year, np.int64(365)), div(year, 4)), div(year, 100))
    of_year = graph("Sub", of_era, begun)
    month = div(graph("Add", graph("Mul", of_year, np.int64(5)), np.int64(2)), 153)
    return graph("Mod", graph("Add", month, np.int64(2)), np.int64(12))
