"""One classifier of all clients' rows from sums over folds, and the test classes that it tells of."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.triangles import pack
from kernfed.methods.reweight.pooled_classifier import classes_of_tests, cross_fitted


def test_each_classifier_is_that_of_the_other_folds() -> None:
    """Ridge solutions of the rows outside a fold, the constant not penalised, by one ridge."""
    random = np.random.default_rng(0)
    z = np.hstack([np.ones((90, 1)), random.normal(size=(90, 4))])
    y = np.eye(3)[(z[:, 1] > 0).astype(int) + (z[:, 2] > 0.5)]
    fold = np.arange(90) % 3
    counts = np.bincount(fold).astype(float)
    seconds = np.stack([pack(z[fold == f].T @ z[fold == f]) for f in range(3)])
    targets = np.stack([z[fold == f].T @ y[fold == f] for f in range(3)])
    found = cross_fitted(counts, seconds, targets)
    errors = {}
    for ridge in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        solved = []
        for f in range(3):
            a, b = z[fold != f], y[fold != f]
            solved.append(np.linalg.solve(a.T @ a / 60 + ridge * np.diag([0, 1, 1, 1, 1]), a.T @ b / 60))
        off = [np.square(z[fold == f] @ w - y[fold == f]).sum() for f, w in enumerate(solved)]
        errors[float(np.sum(off))] = np.stack(solved)
    np.testing.assert_allclose(found, errors[min(errors)], atol=1e-9)


def test_one_confusion_matrix_serves_clients_that_lack_classes() -> None:
    """Each client has rows of one class; the sum of their counts tells the shares of the test classes."""
    rates = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.2], [0.1, 0.1, 0.7]])
    confusion = {}
    for i, name in enumerate("abc"):
        confusion[name] = np.zeros((3, 3))
        confusion[name][:, i] = 100 * rates[:, i]
    prior = np.array([0.2, 0.5, 0.3])
    found = classes_of_tests(confusion, {"a": 1000 * rates @ prior})
    np.testing.assert_allclose(found["a"].prior, prior, atol=1e-9)
    assert found["a"].fallback == ""


def test_a_classifier_that_tells_nothing_leaves_a_client_its_own_shares() -> None:
    """Predictions that do not depend on the class: the client's own training shares stand in, with the reason."""
    blind = {"a": np.array([[30.0, 10.0], [30.0, 10.0]]), "b": np.array([[5.0, 20.0], [5.0, 20.0]])}
    found = classes_of_tests(blind, {"a": np.array([10.0, 10.0])})
    np.testing.assert_allclose(found["a"].prior, [0.75, 0.25])
    assert "singular value" in found["a"].fallback
    assert found["a"].smallest_singular_value == pytest.approx(0.0, abs=1e-12)


def test_rows_of_one_fold_alone_tell_nothing_of_the_test_classes() -> None:
    """No classifier is without them: it predicts one class always, and the training shares stand in."""
    random = np.random.default_rng(1)
    z = np.hstack([np.ones((20, 1)), random.normal(size=(20, 2))])
    y = np.eye(2)[(z[:, 1] > 0).astype(int)]
    counts, nothing = np.array([20.0, 0.0]), np.zeros((3, 3))
    found = cross_fitted(counts, np.stack([pack(z.T @ z), pack(nothing)]), np.stack([z.T @ y, np.zeros((3, 2))]))
    assert not found[0].any()
    guesses = (z @ found[0]).argmax(axis=1)
    confusion = np.zeros((2, 2))
    np.add.at(confusion, (guesses, y.argmax(axis=1)), 1.0)
    told = classes_of_tests({"a": confusion}, {"a": np.array([3.0, 4.0])})["a"]
    assert told.fallback
    np.testing.assert_allclose(told.prior, y.mean(axis=0))
