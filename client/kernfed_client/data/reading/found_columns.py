"""What a client has in columns that the clients are to agree on: levels of categories, means and quantiles of numbers.

It is read from the training partition, before it is known which rows are held out, and which are left out by other
columns. Nothing may follow about these few rows from the difference to other numbers of the job. So nobody is told how
many rows a level has, and means are rounded to a sixteenth of the column's deviation. Quantiles are those of means of
neighbours, rounded to a sixteenth of the distance in which a third of the rows lies about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.columns.expand import transformed
from kernfed.columns.plan import NUM_QUANTILES, ColumnFound, ColumnKind, ColumnPlan, feature_names
from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import ClientFile, PolicySection
from kernfed.maths.few.neighbours import neighbour_means
from kernfed.tables.raw_table import RawTable, Source
from kernfed.tables.read import read
from kernfed_client.data.reading.partition_data import MAX_CLASSES, groups_of, partition_source

_STEPS = 16
"""Parts of a deviation to which means are rounded."""
_SIXTH = NUM_QUANTILES // 6
"""Quantiles on either side of one between which a third of the rows lies."""

Finder = Callable[[str, Sequence[ColumnPlan]], tuple[ColumnFound, ...]]
"""(name of the data set, plans of columns) -> what is in them."""


@dataclass
class GivenColumns:
    """Where a job's columns are looked at if not in files of the client file, kept by `LocalJob.memory`."""

    find: Finder | None = None


def find_columns(file: ClientFile, dataset: str, plans: Sequence[ColumnPlan]) -> tuple[ColumnFound, ...]:
    """Look at columns of a data set's training partition.

    Args:
        file: The client file.
        dataset: Name of the data set.
        plans: What the job makes of the columns.

    Raises:
        DataError: The data set is not offered, or a cell does not fit; names file, column, row and remedy.
    """
    section = file.datasets.get(dataset)
    if section is None:
        raise DataError(
            f"data set {dataset!r} is not offered here; add [datasets.{dataset}.train] to the client file, or correct "
            "cohort.dataset in the job"
        )
    source = columns_source(partition_source(section.train, schema_of(plans), dataset, "train", groups_of(section)))
    return found_in(source, read(source), plans, file.policy)


def schema_of(plans: Sequence[ColumnPlan]) -> DataSchema:
    """A schema of these columns alone."""
    return DataSchema(
        task=LearningTask.REGRESSION,
        target="",
        features=feature_names(plans),
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.0,
        seed=0,
        columns=tuple(plans),
    )


def columns_source(source: Source) -> Source:
    """The same file, of which no target is wanted."""
    return replace(source, target=None, has_labels=False, with_records=False)


def found_in(
    source: Source, table: RawTable, plans: Sequence[ColumnPlan], policy: PolicySection
) -> tuple[ColumnFound, ...]:
    """What is in the columns of a table, as far as the policy lets it be told.

    Args:
        source: The file, whose readers have seen the levels.
        table: Its rows.
        plans: Of its columns, in their order.
        policy: How many rows a number must stand for.

    Raises:
        DataError: A column looks like one of names, and not of levels.
    """
    found = []
    groups = None if table.group is None else np.unique(table.group, return_inverse=True)[1].ravel()
    for plan, values in zip(plans, table.x.T, strict=True):
        if plan.kind is ColumnKind.CATEGORY:
            found.append(_levels(source, plan, values, groups, policy))
        else:
            numbers = transformed(values, plan)
            stated = _mean(numbers, groups, policy)
            told = _quantiles(numbers, policy) if plan.agrees_on_quantiles and stated.num_rows else ()
            found.append(replace(stated, quantiles=told))
    return tuple(found)


def _levels(
    source: Source, plan: ColumnPlan, values: Floats, groups: Integers | None, policy: PolicySection
) -> ColumnFound:
    known = sorted((place, name) for name, place in source.readers[plan.name].levels.items())
    codes = values[~np.isnan(values)].astype(np.int64)
    counts = np.bincount(codes, minlength=len(known))
    least = max(plan.least_rows, policy.min_rows)
    enough = counts >= least
    if groups is not None and policy.least_groups > 1:
        pairs = np.unique(np.stack([codes, groups[~np.isnan(values)]]), axis=1)
        enough &= np.bincount(pairs[0], minlength=len(known)) >= policy.least_groups
    levels = sorted(name for place, name in known if enough[place])
    num = len(levels)
    if num > MAX_CLASSES or (num > 20 and 2 * num > len(codes)):
        remedy = "name the levels in data.columns of the job, or leave the column out"
        source.refuse(
            f"{source.shown(plan.name)} has {num:,} different values in {len(codes):,} rows, which look like names; "
            f"{remedy}",
            public=f"column {plan.name!r} has so many different values that they look like names; {remedy}",
        )
    return ColumnFound(levels=tuple(levels), num_rows=0, mean=0.0, deviation=0.0)


def _mean(values: Floats, groups: Integers | None, policy: PolicySection) -> ColumnFound:
    there = np.isfinite(values)
    num, least = int(there.sum()), policy.min_rows
    few_groups = groups is not None and len(np.unique(groups[there])) < policy.least_groups
    if num < max(least, 1) or few_groups:
        return ColumnFound(levels=(), num_rows=0, mean=0.0, deviation=0.0)
    with np.errstate(over="ignore"):
        mean, deviation = float(values[there].mean()), float(values[there].std())
    if not (math.isfinite(mean) and math.isfinite(deviation)):
        raise DataError("squares of a column exceed the range of numbers; divide the column by a constant everywhere")
    if least > 1:
        num -= num % least
        deviation = 0.0 if deviation == 0 else float(2.0 ** round(math.log2(deviation)))
        step = deviation / _STEPS
        mean = mean if step == 0 else round(mean / step) * step
    return ColumnFound(levels=(), num_rows=num, mean=mean, deviation=deviation)


def _quantiles(values: Floats, policy: PolicySection) -> tuple[float, ...]:
    """Quantiles of a column of as many rows as a number must stand for, ascending."""
    least, there = policy.min_rows, values[np.isfinite(values)]
    found = np.quantile(neighbour_means(there, least), (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES)
    if least > 1:
        places = np.arange(NUM_QUANTILES)
        reach = found[np.minimum(places + _SIXTH, NUM_QUANTILES - 1)] - found[np.maximum(places - _SIXTH, 0)]
        step = np.exp2(np.round(np.log2(np.where(reach > 0, reach, 1.0)))) / _STEPS
        found = np.maximum.accumulate(np.where(reach > 0, np.round(found / step) * step, found))
    return tuple(found.tolist())
