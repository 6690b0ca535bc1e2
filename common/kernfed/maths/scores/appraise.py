"""What a model's scores on test rows are worth: for each learning task its metrics, each with a standard error.

A number of fewer rows, or of rows of fewer groups, than may be told of is left out, and its name is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernfed.arrays import Flags, Floats, Integers
from kernfed.maths.metrics import binary_log_losses, class_log_losses
from kernfed.maths.scores.calibration import calibration
from kernfed.maths.scores.estimate import Estimate, mean_of, num_groups
from kernfed.maths.scores.ranking import auc_of, average_precision, average_precision_error
from kernfed.rng import Stream

COMPARED = ("auc", "brier", "log_loss", "mse", "mae", "accuracy")
"""Metrics of which differences between two models have an error."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The rows behind scores, and what may be told of them."""

    group: Integers
    """Number of each row's group, (n,), from 0; without groups each row is one."""
    draw: Stream
    """Of resamples."""
    least: int = 1
    """Fewest rows that a number may be of."""
    least_groups: int = 1
    """Fewest groups of them."""
    threshold: float | None = None
    """Score from which on a row of two classes is called positive; None: none could be chosen."""

    def enough(self, chosen: Flags) -> bool:
        """Whether a number may be of these rows."""
        return int(chosen.sum()) >= self.least and num_groups(self.group, chosen) >= self.least_groups


@dataclass(slots=True)
class Appraised:
    """Metrics of one model."""

    estimates: dict[str, Estimate] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Metrics that would be of fewer rows than may be told of."""

    def add(self, name: str, found: Estimate | None) -> None:
        """Take a metric where it exists."""
        if found is not None:
            self.estimates[name] = found

    def differences(self, other: Appraised) -> Iterator[tuple[str, Estimate]]:
        """Each metric that both have, less the other's, on the same rows."""
        for name in COMPARED:
            if name in self.estimates and name in other.estimates:
                yield name, self.estimates[name].minus(other.estimates[name])


def of_numbers(predictions: Floats, targets: Floats, rows: Behind) -> Appraised:
    """Mean squared and absolute error, and R² against the mean of these rows' targets; (n,) both."""
    found = Appraised()
    errors, apart = predictions - targets, np.square(targets - targets.mean())
    found.add("mse", mse := mean_of(np.square(errors), rows.group))
    found.add("mae", mean_of(np.abs(errors), rows.group))
    if mse is not None and (variance := float(apart.mean())) > 0:
        ratio = mse.value / variance
        change = mean_of(np.square(errors) - ratio * apart, rows.group)
        assert change is not None  # noqa: S101  # as the mean squared error
        found.add("r2", Estimate(1.0 - ratio, -change.influence / variance, mse.behind))
    return found


def of_two_classes(scores: Floats, probability: Floats, positive: Flags, rows: Behind) -> Appraised:
    """Ranking, calibration, and rates at the threshold.

    Args:
        scores: Of the positive class, (n,).
        probability: The same as probabilities, (n,).
        positive: Whether each row is of that class, (n,).
        rows: Behind them.
    """
    found, group = Appraised(), rows.group
    found.add("accuracy", mean_of(((scores >= 0.5) == positive).astype(np.float64), group))
    found.add("brier", mean_of(np.square(probability - positive), group))
    found.add("log_loss", mean_of(binary_log_losses(scores, positive), group))
    if rows.enough(positive) and rows.enough(~positive):
        found.add("auc", auc_of(scores, positive, group))
        precision, num = average_precision(scores, positive), int(positive.sum())
        error = average_precision_error(scores, positive, group, rows.draw)
        found.add("average_precision", Estimate(precision, np.zeros(len(scores)), num, error))
        slope, intercept = calibration(probability, positive, group)
        found.add("calibration_slope", slope)
        found.add("calibration_intercept", intercept)
    else:
        found.left_out += ["auc", "average_precision", "calibration_slope", "calibration_intercept"]
    if rows.threshold is not None:
        called = scores >= rows.threshold
        rates = (
            ("sensitivity", called, positive),
            ("specificity", ~called, ~positive),
            ("ppv", positive, called),
            ("npv", ~positive, ~called),
        )
        if all(rows.enough(chosen) for _, _, chosen in rates):  # else three of them would tell the fourth
            for name, right, chosen in rates:
                found.add(name, mean_of(right.astype(np.float64), group, chosen))
        else:
            found.left_out += [name for name, _, _ in rates]
    return found


def of_classes(scores: Floats, probability: Floats, targets: Floats, rows: Behind) -> Appraised:
    """Accuracy, Brier score (summed over classes) and log-loss of several classes, (n, C) each."""
    found, truth = Appraised(), targets.argmax(axis=1)
    found.add("accuracy", mean_of((scores.argmax(axis=1) == truth).astype(np.float64), rows.group))
    found.add("brier", mean_of(np.square(probability - targets).sum(axis=1), rows.group))
    found.add("log_loss", mean_of(class_log_losses(scores, truth), rows.group))
    return found
