"""Theorem 2's condition, against its formula and against the one-hot problem that it is proved for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernfed.federation.messages.base import Stated
from kernfed.methods.reweight.eigenvalue_condition import eigenvalue_condition
from kernfed.methods.reweight.spectrum_messages import Spectra


def test_it_is_remark_3() -> None:
    """Two of three directions are within; the worst is told with its place."""
    train, test, ridge = np.array([2.0, 1.0, 0.5]), np.array([1.5, 1.4, 1.0]), 0.1
    found = eigenvalue_condition(train, test, ridge)
    assert found is not None
    bounds = [(1 + math.sqrt(1 + 4 * ridge / (ridge + t))) / 2 for t in train]
    shares = [math.sqrt(b / a) / bound for a, b, bound in zip(train, test, bounds, strict=True)]
    assert (found.directions, found.place) == (3, 3)
    assert found.within == sum(share < 1 for share in shares) == 1
    assert found.greatest == pytest.approx(max(shares))
    assert not found.holds


def test_the_papers_lambda_is_n_times_the_ridge() -> None:
    """ξ = λ/(λ + μ) with λ = n ridge and μ = n λ_i does not hang on n."""
    n, ridge, value = 40, 0.3, 0.7
    xi = n * ridge / (n * ridge + n * value)
    bound = (1 + math.sqrt(1 + 4 * xi)) / 2
    for factor, holds in ((0.999, True), (1.001, False)):
        found = eigenvalue_condition(np.array([value]), np.array([value * (factor * bound) ** 2]), ridge)
        assert found is not None
        assert found.holds is holds


def test_without_a_ridge_the_bound_is_one() -> None:
    """Then test rows must vary less than training rows in each direction; rounding has no part."""
    found = eigenvalue_condition(np.array([1.0, 0.5, 1e-9]), np.array([0.99, 0.49, 1e-3]), 0.0)
    assert found is not None
    assert found.holds
    assert found.directions == 2
    assert eigenvalue_condition(np.zeros(3), np.ones(3), 0.1) is None
    assert eigenvalue_condition(np.empty(0), np.empty(0), 0.1) is None


def test_eigenvalues_that_cannot_be_are_refused() -> None:
    """They fall, none is below 0, and no test rows have none."""
    good = Spectra(num_rows=9, num_points=5, train=np.array([2.0, 1.0]), test=np.array([1.0, 1.0]))
    assert not list(good.contradictions(Stated()))
    for train, test, points in (([1.0, 2.0], [1.0, 1.0], 5), ([1.0, -1.0], [1.0, 1.0], 5), ([2.0, 1.0], [1.0, 1.0], 0)):
        wrong = Spectra(num_rows=9, num_points=points, train=np.array(train), test=np.array(test))
        assert list(wrong.contradictions(Stated()))
