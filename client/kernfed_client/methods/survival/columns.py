"""Columns of a job as times to an event take them: whether the event came, and the group of each row."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Flags, Floats, Integers
from kernfed.columns.plan import OTHER, ColumnKind, ColumnPlan
from kernfed.errors import DataError, WireError
from kernfed.methods.survival.messages import MOST_GROUPS
from kernfed_client.data.local_job import LocalJob


def times_of(job: LocalJob) -> Floats:
    """The training rows' times, (n,)."""
    if job.classes:
        raise WireError("survival: the job's target has classes, and holds no times")
    return np.asarray(job.targets_train, dtype=np.float64)


def came(job: LocalJob, name: str) -> Flags:
    """Whether the event came, by training row, (n,); without a column it came in each.

    Raises:
        DataError: The column holds other numbers than 0 and 1.
        WireError: The job has none of the name.
    """
    if not name:
        return np.ones(job.num_rows, dtype=np.bool_)
    values = _values(job, (name,), name)[:, 0]
    if not np.isin(values, (0.0, 1.0)).all():
        raise DataError(
            f"data set {job.dataset}: column {name!r} holds other numbers than 0 (last seen) and 1 (the event came); "
            'write it so, make it a boolean in data.columns, and set missing = "drop-rows" for it if it has gaps'
        )
    found: Flags = values == 1.0
    return found


def groups_of(job: LocalJob, name: str, least: int) -> tuple[tuple[str, ...], Integers, bool]:
    """Names of the groups here, the place of each training row's in them, (n,), and whether small ones were joined.

    Args:
        job: This client's.
        name: Column of the groups; empty: all rows are one.
        least: Fewest rows of a group; those of a smaller one are counted with the largest.

    Raises:
        DataError: The column holds more values than there may be groups.
        WireError: The job has none of the name.
    """
    if not name:
        return ("",), np.zeros(job.num_rows, dtype=np.int64), False
    plan = next((plan for plan in job.schema.columns if plan.name == name), None)
    if plan is not None and plan.kind is ColumnKind.CATEGORY:
        levels, codes = _levels(_values(job, plan.names, name), plan)
    else:
        values, codes = np.unique(_values(job, (name,), name)[:, 0], return_inverse=True)
        levels = tuple(group_name(float(value), plan) for value in values[: MOST_GROUPS + 1])
    counts = np.bincount(codes, minlength=len(levels))
    few = (counts > 0) & (counts < least)
    few[int(counts.argmax())] = False
    codes = np.where(few[codes], int(counts.argmax()), codes)
    kept, codes = np.unique(codes, return_inverse=True)
    if len(kept) > MOST_GROUPS:
        raise DataError(
            f"data set {job.dataset}: column {name!r}, which method.by names, holds more than {MOST_GROUPS} values; "
            "name a column of groups, or bring it to a few levels"
        )
    return tuple(levels[k] for k in kept), codes.astype(np.int64), bool(few.any())


def _levels(hot: Floats, plan: ColumnPlan) -> tuple[tuple[str, ...], Integers]:
    """Levels of a category, with one for rows of none of them."""
    cells = plan.cells if OTHER in plan.cells else (*plan.cells, OTHER)
    return cells, np.where(hot.any(axis=1), hot.argmax(axis=1), cells.index(OTHER)).astype(np.int64)


def group_name(value: float, plan: ColumnPlan | None) -> str:
    """Name of the group with a value in a column, by what the job says of the column."""
    if plan is not None and plan.kind is ColumnKind.ORDINAL and value in range(len(plan.levels)):
        return plan.levels[int(value)]
    if plan is not None and plan.kind is ColumnKind.BOOLEAN and value in (0.0, 1.0):
        return "true" if value else "false"
    return f"{value:.15g}"


def _values(job: LocalJob, names: tuple[str, ...], column: str) -> Floats:
    """Feature columns in their own units, (n, number of names)."""
    features = job.schema.features
    if not names or any(name not in features for name in names):
        raise WireError(f"survival: column {column!r} is not among the job's features")
    return job.data.train.x[:, [features.index(name) for name in names]]
