"""Feature columns of the numbers of cells: one for each level of a category, one that says where a value was missing.

The job chooses levels, limits and what takes the place of gaps. Two jobs that choose otherwise would tell by their
difference about the rows in between. So where numbers must not stand for few rows, `least` of them, what becomes of
few rows does not depend on what the job chose.

R columns of the table, P feature columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Floats, Integers
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
from kernfed.maths.few.limits import whole_limit
from kernfed.maths.few.neighbours import neighbour_means


def expand(plans: Sequence[ColumnPlan], x: Floats, least: int = 1) -> Floats:
    """Feature columns (n, P) of the numbers of cells, (n, R); NaN is a gap, and stays one where no rule fills it.

    Args:
        plans: Of the R columns; none: the numbers are the features.
        x: Numbers of cells. A level of a category that the job does not know has a place behind all that it knows.
        least: Fewest rows for which what the job chooses makes a difference. Rows of a level that fewer have are of no
            level of a category or a part of a date, and of the most frequent one of an ordinal. Limits move a multiple
            of so many rows. A rank is that of the mean of so many neighbours. A gap that fewer rows have takes the mean
            of the others.
    """
    if not plans:
        return x
    parts = []
    for values, plan in zip(x.T, plans, strict=True):
        if plan.kind is ColumnKind.CATEGORY:
            parts.append(_levels(values, plan, least))
            continue
        parts.extend(_numbers(values, plan, least))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def transformed(values: Floats, plan: ColumnPlan, least: int = 1) -> Floats:
    """Numbers of cells, (n,), clipped, transformed and without rare levels of an ordinal; gaps stay."""
    if plan.kind is ColumnKind.ORDINAL and least > 1:
        return _without_rare(values, plan, least)
    if plan.clip:
        low, high = plan.clip
        below, above = whole_limit(values, low, least), whole_limit(-values, -high, least)
        values = np.where(values < below, low, np.where(-values < above, high, values))
    if plan.rank and plan.knots:
        return _ranks(values, plan.knots, least)
    found: Floats = np.log1p(values) if plan.log1p else values
    return found


def _ranks(values: Floats, knots: tuple[float, ...], least: int) -> Floats:
    """Shares of all clients' rows below numbers, (n,); of a number that many rows have, the middle one of these."""
    there, at, last = ~np.isnan(values), np.array(knots), len(knots) - 1
    x = neighbour_means(values[there], least)
    below, upto = np.searchsorted(at, x), np.searchsorted(at, x, side="right") - 1
    low, high = np.clip(np.minimum(below, upto), 0, last), np.clip(np.maximum(below, upto), 0, last)
    distance = at[high] - at[low]
    share = np.where(distance > 0, (np.clip(x, at[0], at[-1]) - at[low]) / np.where(distance > 0, distance, 1.0), 0.5)
    found = values.copy()
    found[there] = (low + share * (high - low) + 0.5) / len(knots)
    return found


def _levels(values: Floats, plan: ColumnPlan, least: int) -> Floats:
    gap, num = np.isnan(values), len(plan.cells)
    codes = np.where(gap, -1, values).astype(np.int64)
    beyond = OTHER if plan.unknown is UnknownRule.OTHER else MISSING
    place = plan.cells.index(beyond) if beyond in plan.cells else -1
    hot: Floats = (np.where(codes >= num, place, codes)[:, None] == np.arange(num)).astype(np.float64)
    if least > 1:
        hot[np.bincount(codes + 1)[codes + 1] < least] = 0.0
    hot[gap] = np.nan
    return hot


def _numbers(values: Floats, plan: ColumnPlan, least: int) -> list[Floats]:
    gap = np.isnan(values)
    few = 0 < gap.sum() < least
    columns = [_parts(values, plan, least)] if plan.parts else []
    if plan.has_number:
        found = transformed(values, plan, least)
        if plan.fills:
            there = found[~gap]
            found = np.where(gap, there.mean() if few and there.size else plan.fill, found)
        columns.insert(0, found[:, None])
    if plan.missing is MissingRule.INDICATOR:
        columns.append(np.zeros((len(gap), 1)) if few else gap.astype(np.float64)[:, None])
    return columns


def _parts(values: Floats, plan: ColumnPlan, least: int) -> Floats:
    """Columns of the levels of parts of dates, (n, L); all are 0 where the date is missing, and a rule says so."""
    gap = np.isnan(values)
    days = np.floor(np.where(gap, 0.0, values)).astype("timedelta64[D]") + np.datetime64(plan.since, "D")
    codes = {
        DatePart.MONTH: days.astype("datetime64[M]").astype(np.int64) % 12,
        DatePart.WEEKDAY: (days.astype(np.int64) + 3) % 7,  # 1970-01-01 was a Thursday
    }
    columns = [
        _hot(np.where(gap, -1, codes[part]), len(LEVELS_OF_PART[part]), least)
        for part in plan.parts
        if part in LEVELS_OF_PART
    ]
    found = np.concatenate([np.empty((len(values), 0)), *columns], axis=1)
    if not plan.fills:
        found[gap] = np.nan
    return found


def _hot(codes: Integers, num: int, least: int) -> Floats:
    """A column for each of some codes, (n, num), 0 for those that fewer rows than `least` have; -1 is of none."""
    hot: Floats = (codes[:, None] == np.arange(num)).astype(np.float64)
    if least > 1:
        hot[np.bincount(codes + 1)[codes + 1] < least] = 0.0
    return hot


def _without_rare(values: Floats, plan: ColumnPlan, least: int) -> Floats:
    gap = np.isnan(values)
    codes = values[~gap].astype(np.int64)
    counts = np.bincount(codes, minlength=len(plan.levels))
    if not codes.size:
        return values
    most = min(np.flatnonzero(counts == counts.max()), key=lambda place: plan.levels[place])  # whatever their order
    found = values.copy()
    found[~gap] = np.where(counts[codes] < least, float(most), values[~gap])
    return found
