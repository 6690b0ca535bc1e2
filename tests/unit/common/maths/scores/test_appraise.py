"""Metrics of each learning task with their errors, and which of them are of too few rows."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.scores.appraise import Behind, of_numbers
from kernfed.maths.tasks import TASKS

BINARY = TASKS[LearningTask.BINARY]


def rows(num: int, least: int = 1, threshold: float | None = 0.3) -> Behind:
    """Each row a group of its own."""
    return Behind(np.arange(num), rng.stream(1, "rows"), least, 1, threshold)


def table(num_positive: int, num: int = 40) -> tuple[Floats, Floats]:
    """Scores and targets of two classes, (n, 1) each."""
    targets = (np.arange(num) < num_positive).astype(float)[:, None]
    return np.clip(0.3 * targets + 0.35 + 0.3 * rng.stream(2, "scores").normal(num, 1), 0, 1), targets


def test_rates_at_the_threshold_are_counts() -> None:
    """Sensitivity, specificity and predictive values are shares of the four cells of the table."""
    scores, targets = table(15)
    found = BINARY.appraise(scores, targets, rows(40)).estimates
    called, positive = scores[:, 0] >= 0.3, targets[:, 0] == 1
    assert found["sensitivity"].value == (called & positive).sum() / positive.sum()
    assert found["specificity"].value == (~called & ~positive).sum() / (~positive).sum()
    assert found["ppv"].value == (called & positive).sum() / called.sum()
    assert found["npv"].value == (~called & ~positive).sum() / (~called).sum()
    assert (found["ppv"].behind, found["sensitivity"].behind) == (called.sum(), 15)
    assert found["brier"].value == pytest.approx(np.square(scores - targets).mean())


def test_numbers_of_few_rows_are_left_out_by_name() -> None:
    """With four positive rows and five as the fewest, what is of these four, or would tell it, is left out."""
    scores, targets = table(4)
    found = BINARY.appraise(scores, targets, rows(40, least=5))
    few = {"auc", "average_precision", "calibration_slope", "sensitivity", "specificity", "ppv", "npv"}
    assert few <= set(found.left_out)
    assert not few & set(found.estimates)
    assert {"accuracy", "brier"} <= set(found.estimates)
    assert all(e.behind >= 5 for e in found.estimates.values())


def test_rows_of_few_groups_are_few() -> None:
    """Ten positive rows of one group are of fewer groups than two."""
    scores, targets = table(10)
    group = np.maximum(np.arange(40) - 9, 0)
    found = BINARY.appraise(scores, targets, Behind(group, rng.stream(1, "rows"), 5, 2, 0.3))
    assert "auc" in found.left_out


def test_r2_has_the_error_of_a_jackknife() -> None:
    """R² and its error follow from leaving out one row after another, to 5 %."""
    draw = rng.stream(3, "numbers")
    truth = draw.normal(100)
    predicted = truth + 0.7 * draw.normal(100)
    found = of_numbers(predicted, truth, rows(100)).estimates

    def r2(p: Floats, y: Floats) -> float:
        return float(1 - np.square(p - y).sum() / np.square(y - y.mean()).sum())

    left = np.array([r2(np.delete(predicted, i), np.delete(truth, i)) for i in range(100)])
    jackknife = np.sqrt(99 / 100 * np.square(left - left.mean()).sum())
    assert found["r2"].value == pytest.approx(r2(predicted, truth))
    assert found["r2"].error(np.arange(100)) == pytest.approx(jackknife, rel=0.05)
    assert found["mae"].value == pytest.approx(np.abs(predicted - truth).mean())


def test_several_classes_have_accuracy_and_brier_score() -> None:
    """The Brier score sums over classes; scores are brought to probabilities first."""
    targets = np.eye(3)[[0, 1, 2, 1, 0]]
    scores = np.array([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.4, 0.3, 0.3]])
    found = TASKS[LearningTask.CLASSIFICATION].appraise(scores, targets, rows(5)).estimates
    assert found["accuracy"].value == pytest.approx(0.8)
    assert found["brier"].value == pytest.approx(np.square(scores - targets).sum(axis=1).mean())
