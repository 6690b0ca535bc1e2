"""Metrics of a client's test rows as sums that may be pooled: no score and no label leaves a site.

Predictions are scores, shape (n, C), in the units of the targets; `kernfed.maths.tasks` says what they predict.

Log-loss needs probabilities, and least-squares scores are not: binary scores are clipped to [1e-3, 1 - 1e-3];
classification scores are clipped to [1e-3, 1] and divided by their sum. It compares models; it calibrates nothing.

AUC is the share of (positive, negative) pairs that the score orders rightly, ties counting one half (the rank
statistic); for classification the mean over the classes that have a positive and a negative row, each against the
rest. The pooled AUC is the mean of the clients' AUCs weighted by their pairs: pairs across clients would need the
scores themselves, so it does not see scores that are shifted between clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import GREATEST, Floats
from kernfed.errors import DataError, DivergedError, NumericalError
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.maths.tasks import TASKS


def measure(model: str, task: LearningTask, predictions: Floats, targets: Floats) -> MetricSums:
    """Sum a model's errors over rows.

    Args:
        model: Which model was measured: `global`, `local` or `personal`.
        task: What is learned.
        predictions: Scores, shape (n, C); n may be 0, which gives zeros.
        targets: Shape (n, C).

    Raises:
        DataError: Shapes do not fit the task.
        NumericalError: A prediction is NaN, or beyond use; a DivergedError unless it is of the model `local`.
    """
    p = np.asarray(predictions, dtype=np.float64)
    y = np.asarray(targets, dtype=np.float64)
    if p.ndim != 2 or p.shape != y.shape:
        raise DataError(f"predictions of shape {p.shape} for targets of shape {y.shape}; want (rows, outputs) of both")
    if task is not LearningTask.CLASSIFICATION and p.shape[1] != 1:
        raise DataError(f"{p.shape[1]} outputs for a {task} task, which has one")
    of_use = np.abs(p) <= GREATEST  # not where it is NaN
    if not of_use.all():
        row = int(np.flatnonzero(~of_use.all(axis=1))[0])
        error = NumericalError if model == "local" else DivergedError  # the former is of this client alone
        raise error(
            f"the {model} model's prediction for test row {row + 1} (counted from 1) is NaN, or beyond {GREATEST:g}"
        )
    if p.shape[0] == 0:
        return MetricSums(
            model=model,
            num_rows=0,
            squared_error=0.0,
            target_mean=0.0,
            target_sum_squares=0.0,
            num_correct=0,
            log_loss=0.0,
            auc=0.0,
            auc_pairs=0.0,
        )
    mean = float(y[:, 0].mean())
    of_classes = TASKS[task].sums(p, y)
    return MetricSums(
        model=model,
        num_rows=p.shape[0],
        squared_error=float(np.square(p - y).sum()),
        target_mean=mean,
        target_sum_squares=float(np.square(y[:, 0] - mean).sum()),
        num_correct=of_classes.num_correct,
        log_loss=of_classes.log_loss,
        auc=of_classes.auc,
        auc_pairs=of_classes.auc_pairs,
    )


def metrics(sums: MetricSums, task: LearningTask) -> dict[str, float]:
    """Compute metrics from sums, of one client or pooled.

    Returns:
        Regression: `mse`, `rmse`, `r2` (1 - squared error over that of the mean of these rows' targets). Binary and
        classification: `accuracy`, `auc`, `log_loss`, `mse` (per row, summed over one-hot columns). A metric that is
        not defined (no rows; r2 of constant targets; auc of one class) is left out.
    """
    n = sums.num_rows
    if n == 0:
        return {}
    mse = sums.squared_error / n
    if not TASKS[task].has_classes:
        found = {"mse": mse, "rmse": float(np.sqrt(mse))}
        if sums.target_sum_squares > 0:
            found["r2"] = 1.0 - sums.squared_error / sums.target_sum_squares
        return found
    found = {"accuracy": sums.num_correct / n}
    if sums.auc_pairs > 0:
        found["auc"] = sums.auc
    return found | {"log_loss": sums.log_loss / n, "mse": mse}


def pool_sums(parts: Sequence[MetricSums]) -> MetricSums:
    """Merge the sums of disjoint rows, in the given order (clients: by name).

    Args:
        parts: Of one model; at least one.

    Raises:
        DataError: There are none, or they measure different models.
    """
    if not parts or len({part.model for part in parts}) != 1:
        raise DataError(f"cannot pool metrics of models {sorted({part.model for part in parts})}; want one model")
    num_rows, mean, squares = 0, 0.0, 0.0
    for part in parts:
        if part.num_rows:
            num_rows += part.num_rows
            share = part.num_rows / num_rows
            delta = part.target_mean - mean
            squares += part.target_sum_squares + delta * delta * (num_rows - part.num_rows) * share
            mean += delta * share
    pairs = sum(part.auc_pairs for part in parts)
    return MetricSums(
        model=parts[0].model,
        num_rows=num_rows,
        squared_error=sum(part.squared_error for part in parts),
        target_mean=mean,
        target_sum_squares=squares,
        num_correct=sum(part.num_correct for part in parts),
        log_loss=sum(part.log_loss for part in parts),
        auc=min(1.0, sum(part.auc * part.auc_pairs for part in parts) / pairs) if pairs else 0.0,
        auc_pairs=pairs,
    )


def pool(parts: Sequence[MetricSums], task: LearningTask) -> dict[str, float]:
    """Compute the metrics of all clients' rows together: `metrics(pool_sums(parts), task)`."""
    return metrics(pool_sums(parts), task)
