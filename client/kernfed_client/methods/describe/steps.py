"""The client's half of statistics of columns: what no single row decides, by the policy's least number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import WireError
from kernfed.maths.few.neighbours import group_means, group_sizes
from kernfed.maths.few.rows import few_products
from kernfed.maths.statistics import constant_columns, moments
from kernfed.methods.describe.messages import (
    ColumnsDescribed,
    DescribeColumnsRequest,
    DescribePairsRequest,
    PairsDescribed,
    ValueCounts,
)
from kernfed.methods.describe.ranks import value_counts
from kernfed_client.data.guards.told import greatest, smallest, told
from kernfed_client.data.local_job import LocalJob


def describe_columns(job: LocalJob, request: DescribeColumnsRequest) -> ColumnsDescribed:
    """Statistics of each column over the training rows."""
    values, least = _values(job, request), job.file.policy.min_rows
    found = moments(values)
    sizes = group_sizes(len(values), request.num_groups, least)
    classes = np.bincount(job.targets_train, minlength=len(job.classes)) if job.classes else np.zeros(0, np.int64)
    return ColumnsDescribed(
        num_rows=job.num_rows,
        gaps=tuple(told(count, least) for count in job.data.train.gaps),
        class_counts=tuple(classes.tolist()),
        mean=found.mean,
        deviation=found.deviation,
        smallest=np.array([smallest(column, least) for column in values.T]),
        greatest=np.array([greatest(column, least) for column in values.T]),
        group_rows=sizes,
        group_means=group_means(values, sizes),
        value_counts=tuple(_counted(column, request.num_levels, least) for column in values.T),
    )


def describe_pairs(job: LocalJob, request: DescribePairsRequest) -> PairsDescribed:
    """Correlations of columns; a combination of few rows, of two columns of few values, is told of by none."""
    values = _values(job, request)
    found = moments(values)
    deviation = np.where(constant_columns(found), np.inf, found.deviation)
    scaled = (values - found.mean) / deviation
    correlations = scaled.T @ scaled / len(scaled)
    rare = few_products(values, job.file.policy.min_rows)
    few = np.triu(rare.few, 1)
    j, k = np.nonzero(few)
    # Where (x_j - a)(x_k - b) is taken as 0 in every row, the covariance is -(m_j - a)(m_k - b).
    without = -(found.mean[j] - rare.a[few]) * (found.mean[k] - rare.b[few]) / (deviation[j] * deviation[k])
    correlations[j, k] = correlations[k, j] = without
    np.fill_diagonal(correlations, 1.0)
    return PairsDescribed(
        num_rows=job.num_rows, correlations=np.clip(correlations, -1.0, 1.0), few_pairs=int(few.sum())
    )


def _counted(column: Floats, most: int, least: int) -> ValueCounts:
    found = value_counts(column, most, least)
    values, counts, others = found if found is not None else ((), (), 0)
    return ValueCounts(values=values, counts=counts, others=others)


def _values(job: LocalJob, request: DescribeColumnsRequest | DescribePairsRequest) -> Floats:
    """Columns of numbers of the training rows, in their own units, (n, K): the features, and a regression's target."""
    rows = job.data.train
    found = rows.x if rows.y is None else np.column_stack([rows.x, rows.y])
    if found.shape[1] != request.num_columns:
        raise WireError(f"{request.step} is for {request.num_columns} columns, and the job has {found.shape[1]} here")
    return found


STEPS: dict[type[Any], Any] = {DescribeColumnsRequest: describe_columns, DescribePairsRequest: describe_pairs}
"""Steps of this module, by the request that they answer."""
