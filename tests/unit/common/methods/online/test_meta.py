"""Tests of the network that clients adapt."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.methods.online import meta


@pytest.mark.parametrize("hidden", [1, 6, 7])
def test_a_network_that_has_learned_nothing_predicts_the_middle(hidden: int) -> None:
    """Whatever the row, a new network says 1/2."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    weights = meta.start(3, hidden, seed=4, mirrored=True)
    assert [meta.predict(weights, row, hidden) for row in x] == pytest.approx([0.5] * 5, abs=1e-12)


@pytest.mark.parametrize("hidden", [6, 7])
def test_a_network_that_learns_the_other_class_is_the_mirror_image(hidden: int) -> None:
    """Trained on 1 - y it predicts 1 - f, and each row counts as much behind the output."""
    draws = np.random.default_rng(2)
    x, y = draws.normal(size=(40, 3)), draws.integers(0, 2, size=40)
    here = there = meta.start(3, hidden, seed=4, mirrored=True)
    for row, target in zip(x, y.tolist(), strict=True):
        assert meta.predict(there, row, hidden) == pytest.approx(1.0 - meta.predict(here, row, hidden), abs=1e-9)
        sizes = [meta.sizes(weights, row, hidden)[-1] for weights in (here, there)]
        assert sizes[1] == pytest.approx(sizes[0], abs=1e-9)
        here = here - 0.05 * meta.gradient(here, row, target, hidden)
        there = there - 0.05 * meta.gradient(there, row, 1 - target, hidden)
    assert np.ptp([meta.predict(here, row, hidden) for row in x]) > 0.01


def test_the_gradient_is_that_of_the_squared_error() -> None:
    """It agrees with differences of (f - y)² at weights without kinks nearby."""
    hidden, x, y = 4, np.array([0.3, -0.2, 0.5]), 0.8
    weights = np.random.default_rng(5).normal(size=meta.num_weights(3, hidden))

    def loss(step: np.ndarray) -> float:
        return (meta.predict(weights + step, x, hidden) - y) ** 2

    steps = 1e-6 * np.eye(len(weights))
    slopes = [(loss(step) - loss(-step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(meta.gradient(weights, x, y, hidden), slopes, atol=1e-6)


def test_a_row_counts_at_least_by_its_residual() -> None:
    """With targets from 0 to 1 the size of the output's offset is at least half of any gradient there."""
    hidden, draws = 6, np.random.default_rng(6)
    weights = meta.start(3, hidden, seed=1) + 0.3 * draws.normal(size=meta.num_weights(3, hidden))
    for row in draws.normal(size=(20, 3)):
        most = max(abs(meta.gradient(weights, row, y, hidden)[-1]) / 2.0 for y in (0.0, 1.0))
        assert meta.sizes(weights, row, hidden)[-1] == pytest.approx(most)
