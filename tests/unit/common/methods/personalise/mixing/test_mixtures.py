"""Ridge models of mixtures, many at a time."""

from __future__ import annotations

import numpy as np

from kernfed.methods.personalise.mixing.mixtures import Equations, solve_mixtures


def equations(seed: int) -> Equations:
    """Of seven rows in four columns, two outputs."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(7, 4)), random.normal(size=(7, 2))
    return x.T @ x / 7, x.T @ y / 7


def test_each_candidate_is_its_own_ridge_problem() -> None:
    """Neighbours that share their λ, or their ridge, or neither; the intercept is not penalised."""
    own, others = equations(0), equations(1)
    leans, ridges = np.array([0.0, 0.3, 0.3, 1.0]), np.array([0.1, 0.1, 2.0, 1e-4])
    penalised = np.array([0.0, 1.0, 1.0, 1.0])
    found = solve_mixtures(own, others, leans, ridges, penalised, 0.5)
    for lean, ridge, model in zip(leans, ridges, found, strict=True):
        gram, moment = ((1 - lean) * a + lean * b for a, b in zip(own, others, strict=True))
        left = gram + ridge * 0.5 * gram.diagonal()[1:].mean() * np.diag(penalised)
        np.testing.assert_allclose(model, np.linalg.solve(left, moment), atol=1e-10)


def test_a_mixture_that_rounding_made_indefinite_is_solved_all_the_same() -> None:
    """Without a Cholesky factor, by elimination on the whole matrix."""
    gram = np.array([[1.0, 2.0, 0.5], [2.0, 1.0, 0.0], [0.5, 0.0, 3.0]])
    moment = np.array([[1.0], [2.0], [3.0]])
    found = solve_mixtures((gram, moment), (gram, moment), np.array([0.5]), np.array([0.1]), np.ones(3))
    want = np.linalg.solve(gram + 0.1 * 5 / 3 * np.eye(3), moment)
    np.testing.assert_allclose(found[0], want, atol=1e-12)
