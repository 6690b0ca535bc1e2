"""Feature columns of the numbers of cells: one for each level of a category, one that says where a value was missing.

The job chooses levels, limits and what takes the place of gaps. Two jobs that choose otherwise would tell by their
difference about the rows in between. So where numbers must not stand for few rows, `least` of them, what becomes of
few rows does not depend on what the job chose.

R columns of the table, P feature columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Floats
from kernfed.columns.plan import MISSING, OTHER, ColumnKind, ColumnPlan, MissingRule, UnknownRule
from kernfed.maths.few.limits import whole_limit


def expand(plans: Sequence[ColumnPlan], x: Floats, least: int = 1) -> Floats:
    """Feature columns (n, P) of the numbers of cells, (n, R); NaN is a gap, and stays one where no rule fills it.

    Args:
        plans: Of the R columns; none: the numbers are the features.
        x: Numbers of cells. A level of a category that the job does not know has a place behind all that it knows.
        least: Fewest rows for which what the job chooses makes a difference. Rows of a level that fewer have are of no
            level of a category, and of the most frequent one of an ordinal. Limits move a multiple of so many rows. A
            gap that fewer rows have takes the mean of the others.
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
    found: Floats = np.log1p(values) if plan.log1p else values
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
    found, few = transformed(values, plan, least), 0 < gap.sum() < least
    if plan.fills:
        there = found[~gap]
        found = np.where(gap, there.mean() if few and there.size else plan.fill, found)
    columns = [found[:, None]]
    if plan.missing is MissingRule.INDICATOR:
        columns.append(np.zeros((len(gap), 1)) if few else gap.astype(np.float64)[:, None])
    return columns


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
