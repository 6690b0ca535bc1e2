"""The learning tasks, one class each: how labels become targets, and scores predictions and metrics.

Targets and scores have shape (n, C): numbers; 0/1; or one column per class, of which one is 1. A score near 1 is for
the positive class, which is predicted from 1/2 on; of several classes the largest score wins (the first of equals).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Array, Flags, Floats
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link
from kernfed.maths.metrics import auc, binary_log_losses, class_log_losses, macro_auc
from kernfed.maths.scores.appraise import Appraised, Behind, of_classes, of_numbers, of_two_classes


class ClassSums(NamedTuple):
    """Sums over rows of classes; zeros for numbers."""

    num_correct: int = 0
    log_loss: float = 0.0
    auc: float = 0.0
    auc_pairs: float = 0.0


class Reach(NamedTuple):
    """How far the truth of n rows may lie from their predictions."""

    within: Floats
    """Distance that holds as often as was asked for, (n,), in the sense of `Task.misfits`."""
    deviation: Floats
    """Root of the mean square distance that is expected, (n,)."""


class Task(Protocol):
    """What is learned; by default there is one output, of which labels are the targets."""

    has_classes: bool
    """Whether labels are classes and not numbers."""
    link: Link
    """From linear scores to predictions, where the loss is cross-entropy."""
    main_metric: str
    """The one to follow over rounds and to compare settings by."""
    range_names: tuple[str, ...] = ("plausible",)
    """Names of the columns that tell how far the truth may lie: all classes that may be it, or deviation and bounds."""

    def num_outputs(self, classes: Sequence[str]) -> int:
        """Count the columns of targets and scores C."""
        return 1

    def encode(self, labels: npt.NDArray[Any], classes: Sequence[str]) -> Floats:
        """Turn numbers or class indices, shape (n,), into targets, shape (n, C)."""
        return np.asarray(labels, dtype=np.float64).reshape(-1, 1)

    def predictions(self, scores: Floats, classes: Sequence[str]) -> npt.NDArray[Any]:
        """What scores predict: numbers, or names of classes, shape (n,)."""
        ...

    def score_names(self, classes: Sequence[str]) -> list[str]:
        """Names of the columns of scores beside a prediction; none where the score is the prediction."""
        return []

    def probabilities(self, scores: Floats) -> Floats:
        """Scores as probabilities of the classes, (n, number of classes), at least 0 and of sum 1.

        Those of a link are that already and stay as they are. Least-squares fits are cut off at 0, and divided by
        their sum; the class that is predicted keeps the largest.
        """
        return scores[:, :0]

    def sums(self, scores: Floats, targets: Floats) -> ClassSums:
        """Sum what the metrics of classes are made of; at least one row."""
        return ClassSums()

    def positives(self, targets: Floats) -> Flags | None:
        """Whether each row is of the positive class, (n,); None: there are not two classes."""
        return None

    def appraise(self, scores: Floats, targets: Floats, rows: Behind) -> Appraised:
        """Metrics with their standard errors; at least one row."""
        ...

    def misfits(self, errors: Floats, targets: Floats) -> Floats:
        """How badly the truth of rows fits, (n,): the size of an error, or what the true class's score lacks.

        Args:
            errors: Targets less scores, (n, C).
            targets: (n, C).
        """
        ...

    def ranges(self, scores: Floats, reach: Reach, classes: Sequence[str]) -> dict[str, list[Any]]:
        """Columns that tell how far the truth may lie, by `range_names`: bounds, or the names of classes."""
        ...


class Regression(Task):
    """Numbers; the score is the prediction."""

    has_classes = False
    link = Link.IDENTITY
    main_metric = "mse"
    range_names = ("deviation", "lower", "upper")

    def predictions(self, scores: Floats, classes: Sequence[str]) -> npt.NDArray[Any]:
        """See `Task`."""
        return scores[:, 0]

    def appraise(self, scores: Floats, targets: Floats, rows: Behind) -> Appraised:
        """See `Task`."""
        return of_numbers(scores[:, 0], targets[:, 0], rows)

    def misfits(self, errors: Floats, targets: Floats) -> Floats:
        """See `Task`."""
        sizes: Floats = np.abs(errors[:, 0])
        return sizes

    def ranges(self, scores: Floats, reach: Reach, classes: Sequence[str]) -> dict[str, list[Any]]:
        """See `Task`."""
        bounds = reach.deviation, scores[:, 0] - reach.within, scores[:, 0] + reach.within
        return {name: list(column) for name, column in zip(self.range_names, bounds, strict=True)}


class Binary(Task):
    """Two classes, negative and positive, and one score."""

    has_classes = True
    link = Link.LOGISTIC
    main_metric = "auc"

    def predictions(self, scores: Floats, classes: Sequence[str]) -> npt.NDArray[Any]:
        """See `Task`."""
        named: npt.NDArray[Any] = np.array(classes)[(scores[:, 0] >= 0.5).astype(np.intp)]
        return named

    def score_names(self, classes: Sequence[str]) -> list[str]:
        """See `Task`."""
        return ["score"]

    def probabilities(self, scores: Floats) -> Floats:
        """See `Task`."""
        positive = np.clip(scores, 0.0, 1.0)
        return np.hstack([1.0 - positive, positive])

    def sums(self, scores: Floats, targets: Floats) -> ClassSums:
        """See `Task`."""
        p, positive = scores[:, 0], targets[:, 0] >= 0.5
        correct, loss = int(((p >= 0.5) == positive).sum()), float(binary_log_losses(p, positive).sum())
        return ClassSums(correct, loss, *auc(p, positive))

    def positives(self, targets: Floats) -> Flags | None:
        """See `Task`."""
        flags: Flags = targets[:, 0] >= 0.5
        return flags

    def appraise(self, scores: Floats, targets: Floats, rows: Behind) -> Appraised:
        """See `Task`."""
        return of_two_classes(scores[:, 0], self.probabilities(scores)[:, 1], targets[:, 0] >= 0.5, rows)

    def misfits(self, errors: Floats, targets: Floats) -> Floats:
        """See `Task`."""
        lacking: Floats = np.where(targets[:, 0] >= 0.5, errors[:, 0], -errors[:, 0])
        return lacking

    def ranges(self, scores: Floats, reach: Reach, classes: Sequence[str]) -> dict[str, list[Any]]:
        """See `Task`."""
        return _plausible(np.hstack([1.0 - scores, scores]), scores[:, 0] >= 0.5, reach, classes)


class Classification(Task):
    """Any classes, and one score each."""

    has_classes = True
    link = Link.SOFTMAX
    main_metric = "accuracy"

    def num_outputs(self, classes: Sequence[str]) -> int:
        """See `Task`."""
        return len(classes)

    def encode(self, labels: npt.NDArray[Any], classes: Sequence[str]) -> Floats:
        """See `Task`."""
        targets: Floats = np.eye(len(classes))[labels]
        return targets

    def predictions(self, scores: Floats, classes: Sequence[str]) -> npt.NDArray[Any]:
        """See `Task`."""
        named: npt.NDArray[Any] = np.array(classes)[scores.argmax(axis=1)]
        return named

    def score_names(self, classes: Sequence[str]) -> list[str]:
        """See `Task`."""
        return [f"score_{name}" for name in classes]

    def probabilities(self, scores: Floats) -> Floats:
        """See `Task`."""
        zero = np.where(scores.max(axis=1, keepdims=True) > 0, 0.0, scores.min(axis=1, keepdims=True))
        cut = np.maximum(scores - zero, 0.0)
        total = cut.sum(axis=1, keepdims=True)
        found: Floats = np.divide(cut, total, out=np.full_like(cut, 1.0 / cut.shape[1]), where=total > 0)
        return found

    def sums(self, scores: Floats, targets: Floats) -> ClassSums:
        """See `Task`."""
        truth = targets.argmax(axis=1)
        correct = int((scores.argmax(axis=1) == truth).sum())
        loss = float(class_log_losses(scores, truth).sum())
        return ClassSums(correct, loss, *macro_auc(scores, targets >= 0.5))

    def appraise(self, scores: Floats, targets: Floats, rows: Behind) -> Appraised:
        """See `Task`."""
        return of_classes(scores, self.probabilities(scores), targets, rows)

    def misfits(self, errors: Floats, targets: Floats) -> Floats:
        """See `Task`."""
        lacking: Floats = np.take_along_axis(errors, targets.argmax(axis=1)[:, None], axis=1)[:, 0]
        return lacking

    def ranges(self, scores: Floats, reach: Reach, classes: Sequence[str]) -> dict[str, list[Any]]:
        """See `Task`."""
        return _plausible(scores, scores.argmax(axis=1), reach, classes)


def _plausible(scores: Floats, predicted: Array, reach: Reach, classes: Sequence[str]) -> dict[str, list[Any]]:
    """Classes whose score lacks no more than `reach`; the one that is predicted is always among them."""
    fits = 1.0 - scores <= reach.within[:, None]
    fits[np.arange(len(scores)), predicted.astype(np.intp)] = True
    return {"plausible": ["|".join(name for name, fit in zip(classes, row, strict=True) if fit) for row in fits]}


TASKS: Mapping[LearningTask, Task] = {
    LearningTask.REGRESSION: Regression(),
    LearningTask.BINARY: Binary(),
    LearningTask.CLASSIFICATION: Classification(),
}


def shown_metrics(task: LearningTask, measured: Collection[str]) -> tuple[str, ...]:
    """Metrics to show of those measured: the main one, or, where it cannot be measured, accuracy and log-loss.

    A stream's predictions are summed row by row, and an AUC needs all scores at once.
    """
    main = TASKS[task].main_metric
    return (main,) if main in measured else tuple(m for m in ("accuracy", "log_loss") if m in measured)
