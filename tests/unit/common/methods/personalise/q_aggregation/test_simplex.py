"""Tests of `kernfed.methods.personalise.q_aggregation.simplex`, and of Q-aggregation where embeddings are large."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.methods.personalise.embeddings import target_terms
from kernfed.methods.personalise.q_aggregation.simplex import minimise_on_simplex
from kernfed.methods.personalise.q_aggregation.weights import Constants, linear_term, solve_exact


def problem(seed: int, unit: float) -> tuple[Floats, Floats]:
    """Gram matrix and linear terms of ten clients in four columns, the last of which, y, is in some unit."""
    random = np.random.default_rng(seed)
    rows = []
    for k in range(10):
        x = random.normal(size=(12, 3))
        y = (1 - 2 * (k % 2)) * x @ np.array([1.0, -1.0, 0.5]) + 0.3 * random.normal(size=12) + 2.0
        rows.append(np.column_stack([x, unit * y]))
    means = np.array([r.mean(axis=0) for r in rows])
    terms = [linear_term(target_terms(r, means), t, Constants(0.1, 0.1)) for t, r in enumerate(rows)]
    return means @ means.T, np.column_stack(terms)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e4, 1e5, 1e6])
def test_no_unit_of_the_target_stops_a_solve(unit: float) -> None:
    """Embeddings of few columns depend on each other nearly; every target of every draw is solved in every unit."""
    for seed in range(8):
        gram, linear = problem(seed, unit)
        for t in range(10):
            found = solve_exact(gram, np.array([t]), linear[:, [t]], max_steps=2000)
            assert found.weights.sum() == pytest.approx(1.0)
            assert found.gap[0] <= 2e-13 * max(np.abs(gram).max(), np.abs(linear).max())


def test_the_same_problem_in_other_units_has_the_same_weights() -> None:
    """F times a constant has the same optimum."""
    gram, linear = problem(3, 1.0)
    gram = gram + np.eye(10)  # one optimum alone
    at = np.arange(10)
    first = solve_exact(gram, at, linear).weights
    for factor in (1e-9, 1e9):
        np.testing.assert_allclose(solve_exact(factor * gram, at, factor * linear).weights, first, atol=1e-6)


def test_the_interior_point_shares_weight_between_clients_that_are_the_same() -> None:
    """Against an optimum by hand: |w_0 a + w_1 b + w_2 b|² with b half of a lies on the two copies of b."""
    points = np.array([[1.0, 0.0], [0.5, 0.0], [0.5, 0.0]])
    weights = minimise_on_simplex(2.0 * points @ points.T, np.zeros(3), 1e-14)
    np.testing.assert_allclose(weights, [0.0, 0.5, 0.5], atol=1e-7)
    np.testing.assert_allclose(minimise_on_simplex(np.zeros((2, 2)), np.array([1.0, 0.5]), 1e-12), [0, 1], atol=1e-10)
