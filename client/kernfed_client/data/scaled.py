"""The second stage of a job at a client: rows scaled and classes numbered, both as all clients agreed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import DataError, InvalidTensorError, WireError
from kernfed.federation.messages.data import DataSchema, LearningTask
from kernfed.maths.clipping import clip_rows
from kernfed.maths.few.limits import whole_limit
from kernfed.maths.few.rows import without_few
from kernfed.maths.tasks import TASKS
from kernfed_client.data.described import Described
from kernfed_client.data.finite_moments import clips_scales
from kernfed_client.data.guards.split import COMBINED_RULES
from kernfed_client.data.reading.partition_data import PartitionData


@dataclass(frozen=True, slots=True)
class Scaled:
    """Standardised rows, and targets by number."""

    task: LearningTask
    """The learning task."""
    classes: tuple[str, ...]
    """Classes agreed on by all clients; of a binary task the second is the positive one. Empty for regression."""
    mean: Floats
    """Values subtracted from the feature columns, (P,)."""
    deviation: Floats
    """By what the feature columns are divided, (P,)."""
    x_train: Floats
    """Training rows, (n, P)."""
    x_test: Floats
    """Test rows, scaled like the training rows, (m, P)."""
    targets_train: Array
    """Training targets: values, float64 (n,), or indices into `classes`, int64 (n,)."""
    targets_test: Array
    """Test targets, in the same form, (m,)."""


def scale(
    described: Described,
    classes: tuple[str, ...],
    mean: Array,
    deviation: Array,
    bounds: tuple[float, ...] = (),
    least: int = 1,
) -> Scaled:
    """Scale rows to (x - mean) / deviation, and number classes as agreed.

    Args:
        described: The rows, P feature columns.
        classes: Names of all clients' classes.
        mean: Per feature column, (P,).
        deviation: Per feature column, (P,), above 0.
        bounds: Per feature column, training rows are taken at most so far from 0 once scaled, 0: as they are; empty:
            all are.
        least: Fewest training rows that stand out in a column once they are bounded; each bound is one for a multiple
            of so many, the outermost, unless the job was begun before that was a rule.

    Raises:
        WireError: Another number of columns, or a deviation that is not above 0.
        DataError: A class of this client is not among `classes`, they do not fit the task, or a scaled value exceeds
            the range of numbers.
    """
    data, schema = described.data, described.schema
    num_columns = len(schema.features)
    if mean.shape != (num_columns,) or deviation.shape != (num_columns,):
        raise InvalidTensorError(
            f"data.standardise has means {mean.shape} and deviations {deviation.shape} "
            f"for {num_columns} feature columns"
        )
    if len(bounds) not in (0, num_columns):
        raise WireError(f"data.standardise has {len(bounds)} bounds for {num_columns} feature columns")
    centre, divisor = mean.astype(np.float64), deviation.astype(np.float64)
    if not (divisor > 0).all():
        column = schema.features[int(np.argmin(divisor > 0))]
        raise WireError(
            f"data.standardise: the deviation of column {column!r} is not above 0; give 1 where it is constant"
        )
    _check_classes(classes, schema.task, data.classes)
    index = {name: i for i, name in enumerate(classes)}
    x_train = clip_rows(data.train.x)[0] if clips_scales(schema) else data.train.x
    multiple = least if data.rules >= COMBINED_RULES else 1
    return Scaled(
        task=schema.task,
        classes=classes,
        mean=centre,
        deviation=divisor,
        x_train=_bounded(_standardised(x_train, centre, divisor, schema), bounds, least, multiple),
        x_test=_standardised(data.test.x, centre, divisor, schema),
        targets_train=_targets(data.train, index),
        targets_test=_targets(data.test, index),
    )


def _check_classes(classes: tuple[str, ...], task: LearningTask, own: tuple[str, ...]) -> None:
    if not TASKS[task].has_classes:
        if classes:
            raise DataError(f"the task is regression, but {len(classes)} classes are agreed on; name none")
        return
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise DataError(
            f"{len(classes)} classes are agreed on, want at least two different ones; "
            "do all clients have the same single class?"
        )
    if task is LearningTask.BINARY and len(classes) != 2:
        raise DataError(f'the task is binary but the clients have {len(classes)} classes; use task = "classification"')
    again = "submit the job again, so that classes are agreed on anew, or name them in data.classes"
    if lacking := set(own) - set(classes):
        raise DataError(
            f"{len(lacking)} of this client's classes are not among the {len(classes)} agreed on; {again}",
            public=f"this client has rows of classes that are not among the {len(classes)} agreed on; {again}",
        )


def _targets(rows: PartitionData, index: dict[str, int]) -> Array:
    if rows.y is not None:
        return rows.y
    return np.array([index[label] for label in rows.labels or ()], dtype=np.int64)


def _bounded(x: Floats, bounds: tuple[float, ...], least: int, multiple: int) -> Floats:
    if not any(bounds):
        return x
    limit = np.where(np.array(bounds) > 0, bounds, np.inf)
    bounded = np.clip(x, -limit, limit)
    for j in np.flatnonzero(np.isfinite(limit)):
        # Two jobs with bounds on two sides of a row would tell it, so that each bound takes whole multiples of rows.
        low, high = (whole_limit(values, -limit[j], multiple) for values in (x[:, j], -x[:, j]))
        bounded[x[:, j] < low, j] = -limit[j]
        bounded[-x[:, j] < high, j] = limit[j]
    return without_few(bounded, least)[0]


def _standardised(x: Floats, centre: Floats, divisor: Floats, schema: DataSchema) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Floats = (x - centre) / divisor
    finite = np.isfinite(scaled).all(axis=0)
    if not finite.all():
        column = schema.features[int(np.argmin(finite))]
        raise DataError(
            f"column {column!r} exceeds the range of numbers when standardised; check its units at every client"
        )
    return scaled
