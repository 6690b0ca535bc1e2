"""Derivatives of the partial likelihood, score residuals and concordance, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.methods.survival.partial import Point, Rows, Ties, concordance


def made(ties: Ties, seed: int = 2) -> Rows:
    """Forty rows with many ties."""
    random = np.random.default_rng(seed)
    times = np.ceil(random.exponential(4.0, 40))
    return Rows.of(random.normal(size=(40, 3)), times, random.random(40) < 0.7, ties)


@pytest.mark.parametrize("ties", Ties)
def test_derivatives_are_those_of_the_likelihood(ties: Ties) -> None:
    """Central differences of width 2e-5, off by about 1e-8 for third derivatives; residuals add up to the gradient."""
    rows, at = made(ties), np.array([0.3, -0.4, 0.2])
    point, steps = Point.at(rows, at), 1e-5 * np.eye(3)
    slopes = [Point.at(rows, at + s).log_likelihood() - Point.at(rows, at - s).log_likelihood() for s in steps]
    curves = [Point.at(rows, at - s).gradient() - Point.at(rows, at + s).gradient() for s in steps]
    assert point.gradient() == pytest.approx(np.array(slopes) / 2e-5, abs=1e-6)
    assert point.hessian() == pytest.approx(np.array(curves) / 2e-5, abs=1e-6)
    assert point.residuals().sum(axis=0) == pytest.approx(point.gradient(), abs=1e-10)


def test_residuals_are_of_the_rows_as_they_were_given() -> None:
    """Whatever order rows come in, each has its own."""
    random = np.random.default_rng(3)
    x, times, died = random.normal(size=(30, 2)), random.permutation(30).astype(float), random.random(30) < 0.6
    found = Point.at(Rows.of(x, times, died, Ties.EFRON), np.ones(2)).residuals()
    turned = Point.at(Rows.of(x[::-1], times[::-1], died[::-1], Ties.EFRON), np.ones(2)).residuals()
    assert turned[::-1] == pytest.approx(found, abs=1e-12)


def test_concordance_counts_pairs() -> None:
    """By the definition, one pair after another, with ties of times and of risks."""
    random = np.random.default_rng(4)
    times, risk = np.ceil(random.exponential(3.0, 60)), random.integers(5, size=60).astype(float)
    died = random.random(60) < 0.6
    first = (times[:, None] < times) | ((times[:, None] == times) & ~died)
    pairs = died[:, None] & first
    want = pairs.sum(), (pairs & (risk[:, None] > risk)).sum(), (pairs & (risk[:, None] == risk)).sum()
    assert concordance(times, died, risk) == want


def test_rows_without_an_event_have_no_likelihood() -> None:
    """All sums are 0."""
    point = Point.at(Rows.of(np.ones((5, 2)), np.arange(5.0), np.zeros(5, dtype=bool), Ties.EFRON), np.ones(2))
    assert point.log_likelihood() == 0.0
    assert not point.gradient().any()
    assert not point.hessian().any()
    assert not point.residuals().any()
