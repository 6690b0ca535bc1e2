"""Tests of `kernfed.maths.certificate`: the distance to a minimum lies within what the gradient says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernfed.maths.certificate import not_an_energy, quadratic_distance


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_lies_in_the_bracket(seed: int) -> None:
    """With the norm of the weights or without; with it the bracket is narrower."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(30, 12)) / math.sqrt(30)
    hessian = z.T @ z + 0.05 * np.eye(12)
    best, weights = random.normal(size=(2, 12, 2))
    weights = best + 10.0 ** -float(seed) * weights
    gradient, energy = hessian @ (weights - best), float(np.vdot(weights, hessian @ weights))
    largest = float(np.linalg.eigvalsh(hessian)[-1])
    truth = math.sqrt(float(np.vdot(weights - best, gradient)) / energy)
    known = quadratic_distance(weights, gradient, 0.05, energy=energy, largest=largest)
    wide = quadratic_distance(weights, gradient, 0.05, largest=largest)
    assert wide.least <= known.least <= truth <= known.most <= wide.most
    assert quadratic_distance(weights, gradient, 0.05).least <= truth


def test_weights_at_the_minimum_and_at_zero() -> None:
    """No gradient is no distance; at W = 0 nobody can say."""
    one, zero = np.ones((2, 1)), np.zeros((2, 1))
    assert quadratic_distance(one, zero, 0.1).most == 0.0
    assert quadratic_distance(zero, one, 0.1).most == math.inf


def test_a_norm_below_the_ridge_is_refused() -> None:
    """The norm tr W'H W is at least the ridge times |W|²."""
    weights = np.array([[3.0], [4.0]])
    assert not list(not_an_energy(weights, 2.5, 0.1))
    assert list(not_an_energy(weights, 2.4, 0.1))


def test_a_size_that_no_eigenvalues_give_brings_no_model_nearer() -> None:
    """A stated |W|_H² counts for no more than the largest eigenvalue allows."""
    weights, gradient = np.full((3, 1), 1.0), np.full((3, 1), 0.1)
    most = quadratic_distance(weights, gradient, 0.01, energy=6.0, largest=2.0)
    assert quadratic_distance(weights, gradient, 0.01, energy=6e9, largest=2.0) == most
