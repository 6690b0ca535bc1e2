"""The types of a job's columns: `[data.columns]`, and the plan that follows from it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.columns.plan import MIDDLE_RANK, ColumnKind, ColumnPlan, DatePart, MissingRule, UnknownRule
from kernfed.section import Only, Section
from kernfed.wording import is_class_name

_OF_NUMBERS = (MissingRule.MEAN, MissingRule.MEDIAN)
"""What takes the place of gaps and is a number."""


class ColumnSection(Section):
    """The type of a column, and what is made of it."""

    kind: ColumnKind = Field(
        ColumnKind.NUMBER,
        description="number. category: a feature column for each level, `sex=male`. ordinal: the place of the level "
        "among `levels`, from 0. boolean: true and yes are 1, false and no 0. date: days since `since`, or `parts`.",
    )
    unit: Annotated[str, Only(kind="number")] = Field(
        "",
        max_length=64,
        description="Unit of the numbers. A client whose file states another one for the column converts them, or "
        "refuses the job; empty: as they are.",
    )
    clip: Annotated[tuple[float, float] | None, Only(kind="number")] = Field(
        None, description="Least and greatest number; those beyond are taken at these. unset: none."
    )
    transform: Annotated[Literal["none", "log1p", "rank"], Only(kind="number")] = Field(
        "none",
        description="log1p: log(1 + x), after `clip`. rank: the share of all clients' rows that have a smaller number, "
        "from 0 to 1, by quantiles on which the clients agree.",
    )
    levels: Annotated[list[str] | None, Only(kind=("category", "ordinal"))] = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Levels, of an ordinal from the lowest to the highest; unset: those that any client has in enough "
        "rows, at least `least_rows` and its `policy.min_rows`. An ordinal needs them.",
    )
    unknown: Annotated[Literal["refuse", "other", "missing"] | None, Only(kind=("category", "ordinal"))] = Field(
        None,
        description="A level that the job does not know: refuse the data, take it as the level other (of a category), "
        "or as a gap; unset: refuse where `levels` are given, else other.",
    )
    least_rows: Annotated[int, Only(kind="category", levels=None)] = Field(
        1, ge=1, le=2**53, description="Levels that no client has in so many rows are no levels of their own."
    )
    since: Annotated[datetime.date | None, Only(kind="date")] = Field(
        None, description='The day that is 0, in quotes: "2020-01-31". A date needs it where `parts` has days.'
    )
    parts: Annotated[list[DatePart], Only(kind="date")] = Field(
        [DatePart.DAYS],
        min_length=1,
        description="What is made of a date: days, a number; month, a feature column for each, `seen=march`; weekday, "
        "`seen=monday`.",
    )
    missing: MissingRule | None = Field(
        None,
        description="Gaps of this column; unset: as `data.missing` says, of categories, months and weekdays with mean "
        "or median as with indicator.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError(f"clip = [{self.clip[0]:g}, {self.clip[1]:g}]: write the smaller number first")
        if len(set(self.parts)) < len(self.parts):
            raise ValueError("parts names one twice; name each once")
        if self.kind is ColumnKind.DATE and self.since is None and DatePart.DAYS in self.parts:
            raise ValueError('kind = "date" needs since, the day that is 0, e.g. since = "2020-01-31"')
        if self.kind is ColumnKind.ORDINAL and (self.levels is None or len(self.levels) < 2):
            raise ValueError('kind = "ordinal" needs levels, two at least, from the lowest to the highest')
        if self.kind is ColumnKind.ORDINAL and self.unknown == "other":
            raise ValueError(
                'unknown = "other" is for categories: an ordinal has no place for it; use refuse or missing'
            )
        if self.kind is ColumnKind.CATEGORY and self.missing in _OF_NUMBERS:
            raise ValueError(f'missing = "{self.missing}" is for numbers, and a category has none; use "indicator"')
        if self.parts != [DatePart.DAYS] and self.missing in _OF_NUMBERS:
            raise ValueError(
                f'missing = "{self.missing}" is for numbers, and months and weekdays are none; use "indicator"'
            )
        if self.levels is not None and (
            len(set(self.levels)) != len(self.levels)
            or not all(is_class_name(name) and name and name == name.strip() for name in self.levels)
        ):
            raise ValueError("levels must be different names, without blanks around them or control characters")
        return self

    def plan_of(self, name: str, missing: MissingRule) -> ColumnPlan:
        """The plan of a column, by its name and the rule for gaps of all columns."""
        rule = self.missing or missing
        category = self.kind is ColumnKind.CATEGORY
        parts = () if self.parts == [DatePart.DAYS] else tuple(self.parts)
        if (category or parts) and rule in _OF_NUMBERS:
            rule = MissingRule.INDICATOR
        rank = self.transform == "rank"
        since = self.since or (datetime.date(1970, 1, 1) if self.kind is ColumnKind.DATE else None)
        unknown = self.unknown or ("other" if category and self.levels is None else "refuse")
        plan = ColumnPlan(
            name=name,
            kind=self.kind,
            missing=rule,
            unit=self.unit,
            log1p=self.transform == "log1p",
            clip=self.clip or (),
            levels=tuple(self.levels or ()),
            unknown=UnknownRule(unknown),
            least_rows=self.least_rows,
            since="" if since is None else since.isoformat(),
            parts=parts,
            rank=rank,
            fill=MIDDLE_RANK if rank else 0.0,
        )
        return replace(plan, settled=not (plan.agrees_on_levels or plan.agrees_on_fill or plan.agrees_on_quantiles))


def plans_of(
    features: Sequence[str], columns: Mapping[str, ColumnSection], missing: MissingRule
) -> tuple[ColumnPlan, ...]:
    """The plan of each column of a job, in their order; none where all are plain numbers."""
    if not columns and missing in (MissingRule.REFUSE, MissingRule.DROP_ROWS):
        return ()
    plain = ColumnSection()
    return tuple(columns.get(name, plain).plan_of(name, missing) for name in features)


def check_columns(
    columns: Mapping[str, ColumnSection], features: Sequence[str], ranges: Sequence[str], backbone: str | None
) -> None:
    """Refuse types that do not fit the rest of [data].

    Raises:
        ValueError: Names the column and the remedy.
    """
    if columns and backbone is not None:
        raise ValueError(f"columns have types, but backbone {backbone!r} makes the columns; remove one of the two")
    for name, section in columns.items():
        if name not in features:
            raise ValueError(f"columns: {name!r} is no feature; remove it, or add it to features")
        if name in ranges and (section.kind is not ColumnKind.NUMBER or section.transform != "none" or section.clip):
            raise ValueError(
                f"ranges: {name!r} is no plain number by columns; remove one of the two, or use clip there"
            )
