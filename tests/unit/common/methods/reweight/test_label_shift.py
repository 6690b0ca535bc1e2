"""Ratios under label shift, known and estimated."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.methods.reweight.label_shift import black_box_shift, label_ratios, priors, uncovered_share
from kernfed_testing import places

GOLDEN: dict[str, Any] = json.loads((places.GOLDEN / "reweight.json").read_text())


@pytest.mark.parametrize("k", [0, 1])
def test_exact_ratios_match_the_independent_program(k: int) -> None:
    """Proposition 4 for the sum of both clients' test priors, and for a client's own."""
    want = GOLDEN["label_ratio"]
    te, tr = priors(want["te"]), priors(want["tr"])
    np.testing.assert_allclose(label_ratios(te, tr[k]), want["ftw"][k], rtol=1e-12)
    np.testing.assert_allclose(label_ratios(te[k : k + 1], tr[k]), want["fitw"][k], rtol=1e-12)


def test_exact_ratios_of_table_9() -> None:
    """Client 1 of the five-client table on Fashion-MNIST; a ratio's mean over the training rows is K."""
    want = GOLDEN["table9"]
    te, tr = priors(want["te"]), priors(want["tr"])
    ratios = label_ratios(te, tr[0])
    np.testing.assert_allclose(ratios, want["ftw_client1"], rtol=1e-12)
    np.testing.assert_allclose(label_ratios(te[:1], tr[0]), want["fitw_client1"], rtol=1e-12)
    assert ratios @ tr[0] == pytest.approx(5.0)


def test_a_class_without_training_rows_has_no_ratio() -> None:
    """Its ratio is 0, and the share of test rows that nothing stands for is told."""
    te = np.array([[0.5, 0.5]])
    np.testing.assert_array_equal(label_ratios(te, np.array([1.0, 0.0])), [0.5, 0.0])
    assert uncovered_share(te[0], np.array([1.0, 0.0])) == 0.5


def test_black_box_finds_the_prior_exactly_from_exact_rates() -> None:
    """With the true confusion and predicted shares the estimate is the prior; the training prior does not matter."""
    a = np.array([[0.8, 0.1, 0.2], [0.1, 0.7, 0.1], [0.1, 0.2, 0.7]])
    prior, train = np.array([0.1, 0.2, 0.7]), np.array([0.6, 0.3, 0.1])
    found = black_box_shift(a * train, a @ prior)
    np.testing.assert_allclose(found.prior, prior, atol=1e-12)
    assert found.smallest_singular_value == pytest.approx(np.linalg.svd(a)[1][-1])
    assert found.fallback == ""


def test_black_box_from_counts_is_near_and_on_the_simplex() -> None:
    """At 4000 rows of each sort: within 4 deviations of a share, over the smallest singular value."""
    random = np.random.default_rng(0)
    a = np.array([[0.8, 0.15], [0.2, 0.85]])
    labels = random.random(4000) < 0.2
    predicted = random.random(4000) < a[1, labels.astype(int)]
    confusion = np.array([[np.sum((predicted == i) & (labels == j)) for j in (0, 1)] for i in (0, 1)])
    test = random.random(4000) < 0.7
    on_test = random.random(4000) < a[1, test.astype(int)]
    found = black_box_shift(confusion, [np.sum(~on_test), np.sum(on_test)])
    assert found.prior.sum() == pytest.approx(1.0)
    assert (found.prior >= 0).all()
    assert abs(found.prior[1] - 0.7) < 4 * 0.5 / np.sqrt(800) / found.smallest_singular_value


def test_black_box_stays_on_the_simplex_where_rates_contradict() -> None:
    """Predictions that no mixture of classes gives: the nearest one, and no negative share."""
    found = black_box_shift([[40, 10], [10, 40]], [100, 0])
    np.testing.assert_allclose(found.prior, [1.0, 0.0], atol=1e-12)


def test_black_box_falls_back_where_the_classifier_tells_nothing() -> None:
    """The training prior stands in, and the reason names the singular value."""
    found = black_box_shift([[30, 10], [30, 10]], [20, 20])
    np.testing.assert_allclose(found.prior, [0.75, 0.25])
    assert "singular value" in found.fallback


def test_black_box_follows_predictions_where_they_tell_classes_apart() -> None:
    """One class is never predicted: its share stays that of the training rows, and the other two follow predictions.

    The direction (1, -1, 0) has the squared singular value 0.64, so the penalty keeps 0.0025/0.6425 of the way back.
    """
    a, train = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5], [0.0, 0.0, 0.0]]), np.array([0.4, 0.4, 0.2])
    truth = np.array([0.1, 0.7, 0.2])
    for own in (None, train):
        found = black_box_shift(a * train, a @ truth, own)
        np.testing.assert_allclose(found.prior, truth, atol=0.3 * 0.0025 / 0.64)
        assert "singular value" in found.fallback


def test_black_box_keeps_the_shares_that_are_given_where_it_tells_nothing() -> None:
    """A client's own shares, where the confusion matrix is of other clients' rows too."""
    found = black_box_shift([[30, 10], [30, 10]], [5, 35], np.array([0.3, 0.7]))
    np.testing.assert_allclose(found.prior, [0.3, 0.7], atol=1e-12)


def test_black_box_of_all_or_nothing_keeps_all_shares() -> None:
    """Where two classes are not told apart, the training shares of all three stand in; else the rule is the same."""
    a, train = np.array([[0.9, 0.1, 0.1], [0.05, 0.45, 0.45], [0.05, 0.45, 0.45]]), np.array([0.2, 0.4, 0.4])
    found = black_box_shift(1000 * a * train, a @ [0.6, 0.3, 0.1], all_or_nothing=True)
    assert found.fallback
    np.testing.assert_allclose(found.prior, train, atol=1e-12)
    given = black_box_shift(1000 * a * train, a @ [0.6, 0.3, 0.1], np.array([0.5, 0.3, 0.2]), all_or_nothing=True)
    np.testing.assert_allclose(given.prior, [0.5, 0.3, 0.2], atol=1e-12)
    some, all_of_it = (black_box_shift([[40, 10], [10, 40]], [60, 40], all_or_nothing=rule) for rule in (False, True))
    np.testing.assert_array_equal(some.prior, all_of_it.prior)


def test_black_box_gives_unseen_classes_no_share() -> None:
    """A class without a training row cannot be told from the others."""
    found = black_box_shift([[9, 1, 0], [1, 9, 0], [0, 0, 0]], [5, 15, 0])
    assert found.prior[2] == 0.0
    assert found.prior.sum() == pytest.approx(1.0)


def test_shapes_and_empty_counts_are_refused() -> None:
    """Errors say what is wrong."""
    with pytest.raises(DataError, match="want \\(2, 2\\)"):
        black_box_shift([[1, 2, 3]], [1, 2])
    with pytest.raises(DataError, match="no rows"):
        priors([[0, 0]])
