"""Held-out losses of networks choose weights for each client, with the losses of those that look like it."""

from __future__ import annotations

import numpy as np

from kernfed.methods.personalise.networks.judging import NUM_FOLDS, RULES, choose, passed_on, without_a_fold


def covariances(deviations: float, num: int) -> np.ndarray:
    """Of two candidates whose losses vary alike and independently."""
    return np.tile(np.eye(2) * deviations**2, (num, 1, 1))


GROUPS = np.kron(np.eye(2), np.full((2, 2), 0.5))
"""The first two clients look alike, and so do the other two."""


def test_each_group_takes_what_its_own_losses_prefer() -> None:
    """The second candidate is better for the first group, clearly; for the other it is worse."""
    losses = np.array([[1.0, 0.5], [1.0, 0.6], [1.0, 3.0], [1.0, 3.0]])
    np.testing.assert_array_equal(choose(GROUPS, losses, covariances(0.1, 4)), [1, 1, 0, 0])


def test_a_gain_within_its_standard_error_changes_nothing() -> None:
    """Noise of losses is not a reason to leave the first candidate."""
    losses = np.array([[1.0, 0.5], [1.0, 0.6], [1.0, 3.0], [1.0, 3.0]])
    np.testing.assert_array_equal(choose(GROUPS, losses, covariances(0.3, 4)), [0, 0, 0, 0])


def test_clients_that_look_alike_decide_together() -> None:
    """One client's rows alone would not say it; the noise of two is less, and one that says otherwise is carried."""
    losses = np.array([[1.0, 0.3], [1.0, 1.05], [1.0, 3.0], [1.0, 3.0]])
    noise = covariances(0.12, 4)
    np.testing.assert_array_equal(choose(GROUPS, losses, noise), [1, 1, 0, 0])
    np.testing.assert_array_equal(choose(np.eye(4), losses, noise), [1, 0, 0, 0])


def test_a_client_like_nobody_who_scored_keeps_the_first() -> None:
    """Weights of zeros leave nothing to go by."""
    losses = np.array([[1.0, 0.5], [1.0, 0.5]])
    np.testing.assert_array_equal(choose(np.zeros((1, 2)), losses, covariances(0.1, 2)), [0])


def test_weights_are_passed_on_within_a_kind() -> None:
    """They spread over the own kind and leave the other one alone; who told nothing keeps what it gets."""
    kind = np.array([[0.6, 0.4, 0.0], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6]])
    weights = np.zeros((6, 6))
    weights[:3, :3] = kind
    weights[3, 3:5], weights[4, 3:] = 0.5, 1 / 3
    found = passed_on(weights, RULES["kinds"].powers)
    np.testing.assert_allclose(found[:5].sum(axis=1), 1.0)
    np.testing.assert_allclose(found[:3, :3], kind @ kind @ kind @ kind)
    assert found[:3, 3:].max() == 0.0 == found[3:, :3].max()
    assert found[5].max() == 0.0 < found[3, 5]
    assert np.diag(found)[:3].max() < np.diag(kind).max()
    np.testing.assert_array_equal(passed_on(weights, RULES["networks"].powers), weights)


def test_a_client_counts_for_less_without_a_fold() -> None:
    """By the share of its rows that are seen."""
    mix = np.array([[0.5, 0.5], [0.0, 1.0]])
    found = without_a_fold(mix, np.array([0, 1]))
    kept = 1.0 - 1.0 / NUM_FOLDS
    np.testing.assert_allclose(found, [[0.5 * kept / (0.5 + 0.5 * kept), 0.5 / (0.5 + 0.5 * kept)], [0.0, 1.0]])
