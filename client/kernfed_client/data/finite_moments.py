"""Moments of the training rows before scaling, and the error of columns that are too large for them."""

from __future__ import annotations

import numpy as np

from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.maths.clipping import clip_rows
from kernfed.maths.statistics import Moments, moments
from kernfed_client.data.reading.partitions import LocalData


def clips_scales(schema: DataSchema) -> bool:
    """Whether training rows that stand far out set no scale; those of a stream never do."""
    return schema.clipped or schema.on_stream


def finite_moments(data: LocalData, schema: DataSchema, dataset: str) -> tuple[Moments, tuple[int, ...]]:
    """Compute the moments of each feature column over the training rows, without those far out where the job says so.

    Returns:
        Moments; and how many rows stand far out per column, empty where none does.

    Raises:
        DataError: The squares of a column exceed the range of numbers.
    """
    x, far = data.train.x, None
    with np.errstate(over="ignore", invalid="ignore"):
        m = moments(x)
        if clips_scales(schema) and np.isfinite(m.sum_squares).all():
            x, far = clip_rows(x)
            m = moments(x) if far.any() else m
    for name, finite in zip(schema.features, np.isfinite(m.mean) & np.isfinite(m.sum_squares), strict=True):
        if not finite:
            raise DataError(
                f"data set {dataset}: squares of column {name!r} exceed the range of numbers; "
                "divide the column by a constant at every client"
            )
    return m, tuple(far.tolist()) if far is not None and far.any() else ()
