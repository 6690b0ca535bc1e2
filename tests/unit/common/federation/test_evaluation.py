"""Tests of `kernfed.federation.evaluation`: metrics of one client and pooled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from kernfed.errors import DataError, NumericalError
from kernfed.federation.evaluation import measure, metrics, pool, pool_sums
from kernfed.federation.messages.base import validate
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import MetricSums

REGRESSION, BINARY, CLASSIFICATION = LearningTask.REGRESSION, LearningTask.BINARY, LearningTask.CLASSIFICATION
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda v: round(v, 6))


def draw(task: LearningTask, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties, and targets."""
    rng = np.random.default_rng(seed)
    if task is REGRESSION:
        y = 5 + rng.normal(size=(n, 1))
        return y + 0.3 * rng.normal(size=(n, 1)), y
    if task is BINARY:
        y = (rng.random((n, 1)) < 0.4).astype(float)
        return np.round(y + 0.7 * rng.normal(size=(n, 1)), 1), y
    y = np.eye(4)[rng.integers(0, 4, n)]
    return np.round(y + 0.7 * rng.normal(size=(n, 4)), 1), y


def split(task: LearningTask, n: int = 200) -> tuple[MetricSums, list[MetricSums]]:
    p, y = draw(task, n)
    cuts = [0, 3, 3, 90]  # an empty client among them
    parts = [measure("global", task, a, b) for a, b in zip(np.split(p, cuts), np.split(y, cuts), strict=True)]
    return measure("global", task, p, y), parts


def test_regression_agrees_with_scikit_learn() -> None:
    """mse, rmse and r2 as an independent library computes them."""
    p, y = draw(REGRESSION, 100)
    found = metrics(measure("global", REGRESSION, p, y), REGRESSION)
    mse = sk.mean_squared_error(y, p)
    assert found == pytest.approx({"mse": mse, "rmse": np.sqrt(mse), "r2": sk.r2_score(y, p)}, rel=1e-12)


def test_binary_agrees_with_scikit_learn() -> None:
    """Accuracy, AUC with ties, log-loss after the stated clip, and mse."""
    p, y = draw(BINARY, 300)
    found = metrics(measure("global", BINARY, p, y), BINARY)
    want = {
        "accuracy": sk.accuracy_score(y[:, 0], p[:, 0] >= 0.5),
        "auc": sk.roc_auc_score(y[:, 0], p[:, 0]),
        "log_loss": sk.log_loss(y[:, 0], np.clip(p[:, 0], 1e-3, 1 - 1e-3)),
        "mse": sk.mean_squared_error(y, p),
    }
    assert found == pytest.approx(want, rel=1e-12)


def test_classification_agrees_with_scikit_learn() -> None:
    """Accuracy of the largest score, macro one-vs-rest AUC, log-loss after clip and division by the sum."""
    p, y = draw(CLASSIFICATION, 300)
    labels = y.argmax(axis=1)
    clipped = np.clip(p, 1e-3, 1)
    clipped /= clipped.sum(axis=1, keepdims=True)
    found = metrics(measure("global", CLASSIFICATION, p, y), CLASSIFICATION)
    want = {
        "accuracy": sk.accuracy_score(labels, p.argmax(axis=1)),
        "auc": np.mean([sk.roc_auc_score(y[:, c], p[:, c]) for c in range(4)]),
        "log_loss": sk.log_loss(labels, clipped),
        "mse": 4 * sk.mean_squared_error(y, p),
    }
    assert found == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("task", LearningTask)
def test_pooled_metrics_are_those_of_all_rows(task: LearningTask) -> None:
    """Any split of the rows gives the metrics of the whole, except AUC, which is the pair-weighted mean."""
    whole, parts = split(task)
    pooled, want = pool(parts, task), metrics(whole, task)
    if task is not REGRESSION:
        weights = [part.auc_pairs for part in parts]
        want["auc"] = float(np.average([part.auc for part in parts], weights=weights))
    assert pooled == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("task", LearningTask)
def test_order_of_clients_changes_only_rounding(task: LearningTask) -> None:
    """Pooling in reverse gives the same metrics."""
    _, parts = split(task)
    assert pool(parts, task) == pytest.approx(pool(parts[::-1], task), rel=1e-12)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=20), st.integers(0, 20))
def test_pooled_r2_is_that_of_all_rows(rows: list[tuple[float, float]], cut: int) -> None:
    """The targets' variation about their common mean is rebuilt from the parts."""
    p, y = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    parts = [measure("m", REGRESSION, p[s], y[s]) for s in (slice(0, cut), slice(cut, None))]
    want = float(np.square(y - y.mean()).sum())
    assert pool_sums(parts).target_sum_squares == pytest.approx(want, rel=1e-9, abs=1e-9 * float(np.square(y).sum()))


def test_one_class_has_no_auc_but_all_else() -> None:
    """A client with one class reports no AUC and does not change the pooled one."""
    one = measure("global", BINARY, np.array([[0.9], [0.1]]), np.ones((2, 1)))
    assert "auc" not in metrics(one, BINARY)
    assert metrics(one, BINARY)["accuracy"] == 0.5
    _, parts = split(BINARY)
    assert pool([*parts, one], BINARY)["auc"] == pool(parts, BINARY)["auc"]


def test_classes_that_are_not_there_do_not_count_for_auc() -> None:
    """With three of four classes present the mean is over three."""
    p, y = draw(CLASSIFICATION, 100)
    kept = y[:, 3] == 0
    p, y = p[kept], y[kept]
    area = metrics(measure("m", CLASSIFICATION, p, y), CLASSIFICATION)["auc"]
    assert area == pytest.approx(np.mean([sk.roc_auc_score(y[:, c], p[:, c]) for c in range(3)]), rel=1e-12)


@pytest.mark.parametrize("task", LearningTask)
def test_no_rows_have_no_metrics(task: LearningTask) -> None:
    """An empty test set gives valid sums and no number at all."""
    outputs = 4 if task is CLASSIFICATION else 1
    sums = measure("local", task, np.empty((0, outputs)), np.empty((0, outputs)))
    validate(sums, {})
    assert metrics(sums, task) == {}
    assert pool([sums, sums], task) == {}


def test_constant_targets_have_no_r2() -> None:
    """Variance 0: r2 is left out, not infinite."""
    sums = measure("m", REGRESSION, np.array([[1.0], [2.0]]), np.ones((2, 1)))
    assert set(metrics(sums, REGRESSION)) == {"mse", "rmse"}


def test_extreme_scores_keep_a_finite_log_loss() -> None:
    """Scores far outside [0, 1] cost at most -log(1e-3), or its normalised like."""
    binary = measure("m", BINARY, np.array([[1e9], [-1e9]]), np.array([[0.0], [1.0]]))
    assert binary.log_loss == pytest.approx(-2 * np.log(1e-3))
    several = measure("m", CLASSIFICATION, np.full((1, 3), -1e9), np.eye(3)[:1])
    assert several.log_loss == pytest.approx(np.log(3))
    validate(binary, {})


@pytest.mark.parametrize(
    ("task", "p", "y"),
    [(BINARY, (3, 2), (3, 2)), (REGRESSION, (3, 2), (3, 2)), (CLASSIFICATION, (3, 2), (3, 4)), (BINARY, (3,), (3,))],
)
def test_shapes_must_fit_the_task(task: LearningTask, p: tuple[int, ...], y: tuple[int, ...]) -> None:
    """Wrong numbers of outputs are refused."""
    with pytest.raises(DataError):
        measure("m", task, np.zeros(p), np.zeros(y))


def test_nan_names_the_row() -> None:
    """A model that predicts NaN is an error of that model."""
    with pytest.raises(NumericalError, match="test row 2"):
        measure("m", REGRESSION, np.array([[0.0], [np.nan]]), np.zeros((2, 1)))


def test_only_one_model_is_pooled_at_a_time() -> None:
    """Sums of different models do not mix, and nothing is not a sum."""
    one, two = (measure(name, REGRESSION, np.zeros((1, 1)), np.zeros((1, 1))) for name in ("global", "local"))
    for parts in ([one, two], []):
        with pytest.raises(DataError, match="one model"):
            pool_sums(parts)
