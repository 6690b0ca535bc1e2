"""Mean embeddings: the same from any split, from moments and from features; distances; noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from kernfed import rng
from kernfed.errors import ConfigError, DataError
from kernfed.methods.personalise.embeddings import (
    Embedding,
    View,
    embed,
    squared_distances,
    target_terms,
    view_spec,
)
from kernfed.methods.personalise.noise import add_noise, noise_factor, sensitivity
from kernfed.tensors.feature_maps import FeatureMap, polynomial_features
from kernfed_testing.methods.personalise_oracles import polynomial_embedding, polynomial_gram, squared_mmd
from kernfed_testing.oracles import exact_gram


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 20))
def test_embeddings_of_any_split_average_to_the_pooled_one(seed: int, first: int, second: int) -> None:
    """Weighted by rows, the means of two parts are the mean of all rows."""
    phi = np.random.default_rng(seed).normal(size=(first + second + 2, 5))
    cut = first + 1
    parts = [embed(phi[:cut]), embed(phi[cut:])]
    pooled = sum(p.num_rows * p.mean for p in parts) / len(phi)
    np.testing.assert_allclose(pooled, embed(phi).mean, atol=1e-13)


def test_polynomial_embeddings_from_moments_equal_those_from_features() -> None:
    """Means and second moments give the mean of the explicit features, and its inner products."""
    random = np.random.default_rng(0)
    clients = [random.normal(size=(n, 3)) for n in (4, 7, 9)]
    features = [polynomial_features(torch.from_numpy(z)).numpy().mean(axis=0) for z in clients]
    means = np.array([z.mean(axis=0) for z in clients])
    seconds = np.array([z.T @ z / len(z) for z in clients])
    for mean, second, want in zip(means, seconds, features, strict=True):
        np.testing.assert_allclose(polynomial_embedding(mean, second), want, atol=1e-13)
    np.testing.assert_allclose(polynomial_gram(means, seconds), np.array(features) @ np.array(features).T, atol=1e-12)


def test_unbiased_mmd_is_the_u_statistic_and_zero_on_average_for_one_distribution() -> None:
    """It is Gretton et al.'s sums without diagonal; of one distribution its mean is within 4 errors of 0."""
    random = np.random.default_rng(1)
    values = []
    for _ in range(200):
        a, b = random.normal(size=(6, 3)), random.normal(size=(8, 3))
        value = squared_mmd(embed(a), embed(b), unbiased=True)
        aa, bb = a @ a.T, b @ b.T
        within = (aa.sum() - np.trace(aa)) / 30 + (bb.sum() - np.trace(bb)) / 56
        assert value == pytest.approx(within - 2 * (a @ b.T).mean(), abs=1e-12)
        values.append(value)
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))
    assert squared_mmd(embed(a), embed(b)) == pytest.approx(squared_distances(np.array([a.mean(0), b.mean(0)]))[0, 1])


def test_view_maps_approximate_the_kernel_with_each_groups_lengthscale() -> None:
    """D features: inner products within Hoeffding's bound of the exact kernel (failure rate 1e-9 over 66 pairs)."""
    spec = view_spec(View.XY, 4, 1, num_frequencies=4000, seed=3)
    assert spec.lengthscales == pytest.approx([8**0.5] * 4 + [2**0.5])
    z = torch.from_numpy(np.random.default_rng(2).normal(size=(12, 5)))
    phi = FeatureMap(spec)(z)
    exact = exact_gram(spec, z, z)
    bound = 2 * np.sqrt(2 * np.log(2 * 66 / 1e-9) / 4000)
    assert float((phi @ phi.T - exact).abs().max()) < bound
    assert view_spec(View.X, 4, 1).num_columns == 4
    assert view_spec(View.XY, 2, 1, lengthscales=(3.0, 0.5)).lengthscales == (3.0, 3.0, 0.5)
    with pytest.raises(ConfigError, match=r"give 2 .*or 5"):
        view_spec(View.XY, 4, 1, lengthscales=(1.0, 2.0, 3.0))


def test_one_row_has_its_second_moment_for_an_error() -> None:
    """|φ|² is no less than the trace of the covariance; no row at all is refused."""
    phi = np.array([[1.0, 2.0, 2.0]])
    assert embed(phi).trace == 9.0
    terms = target_terms(phi, np.array([[1.0, 2.0, 2.0], [2.0, 2.0, 2.0]]))
    assert (terms.num_rows, terms.trace) == (1, 9.0)
    np.testing.assert_allclose(terms.spread, [0.0, 1.0])
    with pytest.raises(DataError, match="at least 1 row"):
        embed(np.ones((0, 3)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-6), (30.0, 1e-9)])
def test_noise_is_the_least_that_gives_the_privacy_asked_for(epsilon: float, delta: float) -> None:
    """At the factor the exact delta of the Gaussian mechanism is met; a little less noise misses it."""

    def exact(sigma: float) -> float:
        half = 1 / (2 * sigma)
        return float(ndtr(half - epsilon * sigma) - np.exp(epsilon) * ndtr(-half - epsilon * sigma))

    factor = noise_factor(epsilon, delta)
    assert exact(factor) <= delta * (1 + 1e-6)
    assert exact(0.99 * factor) > delta
    if epsilon <= 1:
        assert factor < np.sqrt(2 * np.log(1.25 / delta)) / epsilon  # the classic bound


def test_sensitivity_is_reached_by_opposite_features_and_never_exceeded() -> None:
    """Changing one of n rows moves the mean by at most 2 M/n, and by just that from one pole to the other."""
    phi = np.zeros((5, 2))
    phi[:, 0] = np.sqrt(2)
    other = phi.copy()
    other[0] *= -1
    moved = np.linalg.norm(embed(phi).mean - embed(other).mean)
    assert moved == pytest.approx(sensitivity(5, np.sqrt(2)))


def test_noised_embeddings_state_their_error() -> None:
    """Over many draws the squared error to the expectation is trace over rows, within 4 standard errors."""
    random = np.random.default_rng(4)
    spec = view_spec(View.X, 3, 1, num_frequencies=50, seed=1)
    truth = FeatureMap(spec)(torch.from_numpy(random.normal(size=(200_000, 3)))).numpy().mean(axis=0)
    errors, stated = [], []
    for i in range(300):
        phi = FeatureMap(spec)(torch.from_numpy(random.normal(size=(40, 3)))).numpy()
        noised = add_noise(embed(phi), noise_factor(1.0, 1e-5), np.sqrt(2), rng.stream(i, "test"))
        errors.append(np.square(noised.mean - truth).sum())
        stated.append(noised.trace / 40)
    assert np.mean(stated) == pytest.approx(np.mean(errors), abs=4 * np.std(errors) / np.sqrt(300) + 0.05)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (float("nan"), 0.1)])
def test_impossible_privacy_is_refused(epsilon: float, delta: float) -> None:
    """Both numbers are named."""
    with pytest.raises(ConfigError, match=r"method\.noise"):
        noise_factor(epsilon, delta)


def test_distances_are_exact_zeros_on_the_diagonal_and_never_negative() -> None:
    """Also for embeddings that differ in the last bit."""
    base = np.random.default_rng(5).normal(size=20)
    means = np.array([base, base, base * (1 + 1e-15), base + 1])
    squares = squared_distances(means)
    assert (squares >= 0).all()
    assert (squares.diagonal() == 0).all()
    assert squares[0, 3] == pytest.approx(20)
    assert squared_mmd(Embedding(3, base, 1.0), Embedding(3, base, 1.0)) == 0
