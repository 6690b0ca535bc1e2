"""AUC and average precision with their errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernfed import rng
from kernfed.arrays import Flags, Floats
from kernfed.maths import metrics
from kernfed.maths.scores.ranking import auc_of, average_precision, average_precision_error


def delong(scores: Floats, positive: Flags) -> tuple[float, float]:
    """AUC and its variance by the sums of DeLong, DeLong & Clarke-Pearson (1988), pair by pair."""
    x, y = scores[positive], scores[~positive]
    kernel = np.array([[float(a > b) + 0.5 * float(a == b) for b in y] for a in x])
    area = kernel.mean()
    s10 = np.square(kernel.mean(axis=1) - area).sum() / (len(x) - 1)
    s01 = np.square(kernel.mean(axis=0) - area).sum() / (len(y) - 1)
    return float(area), float(s10 / len(x) + s01 / len(y))


def sample(num: int, seed: int = 1) -> tuple[Floats, Flags]:
    """Scores with ties, and whether rows are positive."""
    draw = rng.stream(seed, "ranking")
    positive = draw.uniform(num) < 0.4
    return np.round(draw.normal(num) + positive, 1), positive


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_variance_of_an_auc_is_delongs(seed: int) -> None:
    """Area and error are those of sums over all pairs; the area is that of the metric."""
    scores, positive = sample(40, seed)
    found = auc_of(scores, positive, np.arange(40))
    assert found is not None
    area, variance = delong(scores, positive)
    assert found.value == pytest.approx(area) == pytest.approx(metrics.auc(scores, positive)[0])
    assert found.error(np.arange(40)) == pytest.approx(variance**0.5)
    assert found.behind == min(positive.sum(), (~positive).sum())


def test_the_error_of_a_difference_of_two_aucs_is_delongs() -> None:
    """Paired models of the same rows have the covariance of their placements."""
    scores, positive = sample(50)
    other = scores + np.round(rng.stream(5, "other").normal(50), 1)
    one, two = (auc_of(s, positive, np.arange(50)) for s in (scores, other))
    assert one is not None and two is not None  # noqa: PT018
    x, y = positive, ~positive
    places = []
    for s in (scores, other):
        kernel = (s[x][:, None] > s[y][None]) + 0.5 * (s[x][:, None] == s[y][None])
        places.append((kernel.mean(axis=1), kernel.mean(axis=0)))
    s10, s01 = (np.cov(places[0][k], places[1][k]) for k in (0, 1))
    contrast = np.array([1.0, -1.0])
    variance = contrast @ (s10 / x.sum() + s01 / y.sum()) @ contrast
    assert one.minus(two).error(np.arange(50)) == pytest.approx(variance**0.5)


def test_rows_of_a_group_count_together_in_an_auc() -> None:
    """Rows that came three times as groups of three have the error of the rows that came once."""
    scores, positive = sample(30)
    once = auc_of(scores, positive, np.arange(30))
    groups = np.repeat(np.arange(30), 3)
    thrice = auc_of(np.repeat(scores, 3), np.repeat(positive, 3), groups)
    assert once is not None and thrice is not None  # noqa: PT018
    assert thrice.error(groups) == pytest.approx(once.error(np.arange(30)))


def test_one_class_has_no_auc() -> None:
    """Without a positive row, or with one group of them, there is none."""
    scores = np.arange(6.0)
    assert auc_of(scores, np.zeros(6, dtype=bool), np.arange(6)) is None
    assert auc_of(scores, np.array([True, True, False, False, False, False]), np.array([0, 0, 1, 2, 3, 4])) is None


def test_average_precision_by_hand() -> None:
    """Positives at places 1, 3 and 4 of five: (1 + 2/3 + 3/4) / 3; equal scores are one place."""
    positive = np.array([True, False, True, True, False])
    assert average_precision(np.array([5.0, 4, 3, 2, 1]), positive) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision(np.ones(5), positive) == pytest.approx(3 / 5)


def test_weights_are_rows_that_come_more_often() -> None:
    """A weight of 2 is a row twice, of 0 a row that is not there."""
    scores, positive = sample(20)
    weights = np.array([0, 1, 2, 1] * 5)
    again = np.repeat(scores, weights), np.repeat(positive, weights)
    assert average_precision(scores, positive, weights.astype(float)) == pytest.approx(average_precision(*again))


def test_the_error_of_an_average_precision_is_about_that_of_many_samples() -> None:
    """Over 300 samples of 200 rows the deviation is within 15 % of the mean of the errors.

    The deviation of 300 numbers has an error of 4 %; the mean of 30 errors by 200 resamples one of about 2 %.
    """
    samples = [sample(200, seed) for seed in range(300)]
    values = [average_precision(*s) for s in samples]
    errors = [average_precision_error(*s, np.arange(200), rng.stream(k, "ap")) for k, s in enumerate(samples[:30])]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_resamples_are_of_whole_groups() -> None:
    """Of copies in one group the error is that of the rows that came once, to the last bit by the same draws."""
    scores, positive = sample(25)
    groups = np.repeat(np.arange(25), 2)
    twice = average_precision_error(np.repeat(scores, 2), np.repeat(positive, 2), groups, rng.stream(3, "ap"))
    assert twice == pytest.approx(average_precision_error(scores, positive, np.arange(25), rng.stream(3, "ap")))


def test_all_orders_of_rows_give_the_same() -> None:
    """Areas and precisions do not hang on the order of rows, ties included."""
    scores, positive = np.array([0.5, 0.5, 0.2, 0.9]), np.array([True, False, True, False])
    orders = [list(order) for order in itertools.permutations(range(4))]
    assert len({round(average_precision(scores[o], positive[o]), 12) for o in orders}) == 1
