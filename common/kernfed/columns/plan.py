"""What a job makes of each column of a table: its type, its levels, and what takes the place of a gap.

A cell becomes one number per column (`kernfed.tables.typed_cells`): the number itself, days since a day, 0 or 1, or the
place of a level. Of these numbers come feature columns (`kernfed.columns.expand`). Clients, models and whoever predicts
do the same, by the same plan.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from kernfed.federation.messages.base import MaxLength, Name, Names, Range

OTHER, MISSING = "other", "missing"
"""Levels that a job adds: of all levels that it does not know, and of gaps."""
NUM_QUANTILES = 101
"""Quantiles that a client tells of a column, at levels (q + 1/2) / 101; the middle one is the median."""
MIDDLE_RANK = 0.5
"""Takes the place of a gap among ranks: their mean, and their median."""


class MissingRule(enum.StrEnum):
    """Treatment of a row with a missing value in a column that the job uses."""

    REFUSE = "refuse"
    DROP_ROWS = "drop-rows"
    MEAN = "mean"
    INDICATOR = "indicator"
    MEDIAN = "median"


_FILLING = (MissingRule.MEAN, MissingRule.MEDIAN, MissingRule.INDICATOR)


class ColumnKind(enum.StrEnum):
    """Type of a column."""

    NUMBER = "number"
    CATEGORY = "category"
    ORDINAL = "ordinal"
    BOOLEAN = "boolean"
    DATE = "date"


class DatePart(enum.StrEnum):
    """What is made of a date."""

    DAYS = "days"
    MONTH = "month"
    WEEKDAY = "weekday"


LEVELS_OF_PART: Mapping[DatePart, tuple[str, ...]] = {
    DatePart.MONTH: (
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ),
    DatePart.WEEKDAY: ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
}
"""Parts of a date that have a feature column for each of their values, in this order."""


class UnknownRule(enum.StrEnum):
    """Treatment of a level that the job does not know."""

    REFUSE = "refuse"
    OTHER = "other"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What becomes of a column of the table."""

    name: Name
    """Of the column, in the job."""
    kind: ColumnKind
    """Its type."""
    missing: MissingRule
    """What becomes of gaps."""
    settled: bool = False
    """Whether levels and `fill` are those to use; else the clients are still to agree on them."""
    fill: float = 0.0
    """Takes the place of a gap, in units of the feature column."""
    unit: Name = ""
    """Of a number; empty: the job states none."""
    log1p: bool = False
    """Whether a number x becomes log(1 + x)."""
    clip: Annotated[tuple[float, ...], MaxLength(2)] = ()
    """Least and greatest number, which those beyond are taken at, before `log1p`; empty: none."""
    levels: Names = ()
    """Of a category or an ordinal, in the order of their places."""
    unknown: UnknownRule = UnknownRule.REFUSE
    """What becomes of other levels."""
    least_rows: Annotated[int, Range(1, 2**53)] = 1
    """Fewest rows of a level at one client at least, for the clients to agree on it."""
    since: Name = ""
    """Of a date, the day that is 0, e.g. 2020-01-31."""
    parts: tuple[DatePart, ...] = ()
    """Of a date, what is made of it; empty: its days."""
    rank: bool = False
    """Whether a number becomes the share of all clients' rows below it, after `clip`."""
    knots: Annotated[tuple[float, ...], MaxLength(101)] = ()
    """Of ranks, quantiles of the numbers at levels (q + 1/2) / Q, ascending, Q of them; empty: the clients are still
    to agree on them."""

    @property
    def cells(self) -> tuple[str, ...]:
        """All levels of a category, with those that the job adds, in the order of their places."""
        more = [OTHER] if self.unknown is UnknownRule.OTHER else []
        more += [MISSING] if self.missing is MissingRule.INDICATOR else []
        return (*self.levels, *(name for name in more if name not in self.levels))

    @property
    def fills(self) -> bool:
        """Whether a number takes the place of gaps; those of a category are a level, or none."""
        return self.kind is not ColumnKind.CATEGORY and self.missing in _FILLING

    @property
    def has_number(self) -> bool:
        """Whether one of its feature columns is a number, and not a level."""
        return self.kind is not ColumnKind.CATEGORY and (not self.parts or DatePart.DAYS in self.parts)

    @property
    def agrees_on_levels(self) -> bool:
        """Whether the clients agree on its levels."""
        return self.kind is ColumnKind.CATEGORY and not self.levels

    @property
    def agrees_on_fill(self) -> bool:
        """Whether the clients agree on what takes the place of gaps; of ranks it is the middle one."""
        return self.fills and self.has_number and not self.rank

    @property
    def agrees_on_quantiles(self) -> bool:
        """Whether the clients tell quantiles of it, to agree on ranks or on a median."""
        return self.rank or (self.agrees_on_fill and self.missing is MissingRule.MEDIAN)

    @property
    def families(self) -> tuple[tuple[str, ...], ...]:
        """Feature columns of levels; those of each family add up to 1 where no gap is left."""
        if self.kind is ColumnKind.CATEGORY:
            return (tuple(f"{self.name}={level}" for level in self.cells),)
        return tuple((*(f"{self.name}={level}" for level in levels), *self._gap) for levels in self.levels_of_parts)

    @property
    def levels_of_parts(self) -> tuple[tuple[str, ...], ...]:
        """Levels of those parts of a date that have some."""
        return tuple(LEVELS_OF_PART[part] for part in self.parts if part in LEVELS_OF_PART)

    @property
    def _gap(self) -> tuple[str, ...]:
        """The feature column that says where a value was missing, of all but categories; empty: there is none."""
        return (f"{self.name}={MISSING}",) if self.missing is MissingRule.INDICATOR else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its feature columns."""
        if self.kind is ColumnKind.CATEGORY:
            return self.families[0]
        number = (self.name,) if self.has_number else ()
        return (*number, *(f"{self.name}={level}" for levels in self.levels_of_parts for level in levels), *self._gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFound:
    """What a client has in a column that the clients are to agree on."""

    levels: Names
    """Of a category without given levels: those of enough rows here, sorted."""
    num_rows: Annotated[int, Range(0, 2**53)]
    """Rows with a value, a multiple of those that the client's policy lets a number stand for; 0 for levels."""
    mean: float
    """Of their numbers, rounded unless single rows may be told of."""
    deviation: Annotated[float, Range(0)]
    """Of their numbers, rounded as well."""
    quantiles: Annotated[tuple[float, ...], MaxLength(101)] = ()
    """Of their numbers, ascending, at levels (q + 1/2) / 101, of means of neighbours and rounded as well; empty: none
    were asked for, or there are no such rows."""


def columns_of(plans: Sequence[ColumnPlan], features: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the table behind feature columns, which are columns of the table where there is no plan."""
    return tuple(plan.name for plan in plans) or features


def feature_names(plans: Sequence[ColumnPlan]) -> tuple[str, ...]:
    """The feature columns of all plans, in their order."""
    return tuple(name for plan in plans for name in plan.names)


def without_coefficient(
    plans: Sequence[ColumnPlan], features: Sequence[str], mean: Iterable[float], *, reference: bool = True
) -> frozenset[str]:
    """Feature columns that have no coefficient in a model of statistics.

    Those of all levels of a category, or of a part of a date, add up to a constant, so the others are compared with the
    first level, of a date with the first that a row has. A level that no job file lists has none where no row is of it.

    Args:
        plans: Of the columns.
        features: Names of the P feature columns.
        mean: Of each over the rows of all clients, (P,).
        reference: Whether the model has an intercept or a baseline, which that constant repeats.
    """
    added = {f"{plan.name}={level}" for plan in plans for level in (OTHER, MISSING) if level not in plan.levels}
    added |= {name for plan in plans if plan.parts for family in plan.families for name in family}
    empty = {name for name, share in zip(features, mean, strict=True) if name in added and share == 0.0}
    families = [family for plan in plans if reference for family in plan.families]
    first = {next((name for name in family if name not in empty), family[0]) for family in families}
    return frozenset(empty | first)


def as_asked(agreed: Sequence[ColumnPlan], plans: Sequence[ColumnPlan]) -> tuple[ColumnPlan, ...]:
    """Agreed plans without what clients were to agree on, by the plans of a job: the same as these where it is its."""
    found = []
    for plan, asked in zip(agreed, plans, strict=False):
        levels = plan.levels if asked.settled or asked.levels else ()
        as_left_open = replace(plan, levels=levels, fill=asked.fill, knots=asked.knots, settled=False)
        found.append(plan if asked.settled else as_left_open)
    return (*found, *agreed[len(plans) :])


def fault(plans: Sequence[ColumnPlan], features: Sequence[str] | None = None) -> str:
    """Why these are no plans that a job file makes, or not those of feature columns; empty: they are."""
    for plan in plans:
        ordinal, category = plan.kind is ColumnKind.ORDINAL, plan.kind is ColumnKind.CATEGORY
        if len(plan.clip) not in (0, 2) or (plan.clip and not plan.clip[0] < plan.clip[1]):
            return f"column {plan.name!r} is clipped to no range"
        if (plan.levels and not (ordinal or category)) or (plan.settled and not plan.levels and (ordinal or category)):
            return f"column {plan.name!r} has levels where it has no place for them, or lacks them"
        if twice(plan.levels) or (ordinal and plan.unknown is UnknownRule.OTHER):
            return f"column {plan.name!r} has a level twice, or none where others would go"
        if (plan.clip or plan.log1p or plan.rank) and plan.kind is not ColumnKind.NUMBER:
            return f"column {plan.name!r} is clipped or transformed, and holds no numbers"
        if (plan.log1p and plan.rank) or bool(plan.knots) != (plan.rank and plan.settled):
            return f"column {plan.name!r} is transformed twice, or has quantiles where it has no place for them"
        if list(plan.knots) != sorted(plan.knots):
            return f"column {plan.name!r} has quantiles that are not in their order"
        if plan.parts and (plan.kind is not ColumnKind.DATE or twice(plan.parts)):
            return f"column {plan.name!r} has parts, and is no date, or has one twice"
        if (plan.kind is ColumnKind.DATE) != bool(plan.since) or not _is_day(plan.since):
            return f"column {plan.name!r} counts days from no day"
    if features is not None and plans and feature_names(plans) != tuple(features):
        return "the columns of the table do not make the feature columns"
    return f"column {name!r} stands twice" if (name := twice(columns_of(plans, ()))) else ""


def _is_day(text: str) -> bool:
    try:
        return not text or datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def twice(names: Sequence[str]) -> str:
    """A name that stands twice; empty: none does."""
    return next((name for name in names if list(names).count(name) > 1), "") if len(set(names)) < len(names) else ""
