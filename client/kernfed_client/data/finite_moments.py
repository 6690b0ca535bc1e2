"""Moments of the training rows before scaling, and the error of columns that are too large for them."""

from __future__ import annotations

import numpy as np

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.maths.statistics import Moments, moments
from kernfed_client.data.partitions import LocalData


def finite_moments(data: LocalData, schema: DataSchema, dataset: str) -> Moments:
    """Compute the moments of each feature column over the training rows.

    Raises:
        DataError: The squares of a column exceed the range of numbers.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        m = moments(data.train.x)
    for name, finite in zip(schema.features, np.isfinite(m.mean) & np.isfinite(m.sum_squares), strict=True):
        if not finite:
            raise DataError(
                f"data set {dataset}: squares of column {name!r} exceed the range of numbers; "
                "divide the column by a constant at every client"
            )
    return m
