"""Principal components of mixtures of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernfed.arrays import Floats
from kernfed.methods.personalise.columns.components import choose, principal
from kernfed.methods.personalise.columns.mixtures import ALL_ALIKE, ALONE, mixtures
from kernfed.methods.personalise.embeddings import squared_distances
from kernfed.tensors.feature_maps import polynomial_features


def features(rows: Floats) -> Floats:
    found: Floats = polynomial_features(torch.from_numpy(rows)).numpy()
    return found


def test_components_of_a_mixture_are_those_of_its_weighted_rows() -> None:
    """Against the singular vectors of all rows, each as often as it counts; the error is that of a projection."""
    random = np.random.default_rng(4)
    rows = [random.normal(size=(n, 4)) * [3.0, 2.0, 1.0, 0.5] + random.normal(size=4) for n in (5, 8)]
    mixed = 0.25 * features(rows[0]).mean(axis=0) + 0.75 * features(rows[1]).mean(axis=0)
    found = principal(mixed, 2)
    shares = np.concatenate([np.full(5, 0.25 / 5), np.full(8, 0.75 / 8)])
    everything = np.concatenate(rows)
    mean = shares @ everything
    root = (everything - mean) * np.sqrt(shares)[:, None]
    _, sizes, directions = np.linalg.svd(root, full_matrices=False)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.variances, sizes[:2] ** 2, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.directions.T @ directions[:2].T), np.eye(2), atol=1e-9)
    left = found.squared_error(mean + directions[:1])
    assert left == pytest.approx(0.0, abs=1e-9)
    assert found.squared_error(mean + 2.0 * directions[3:]) == pytest.approx(4.0)


def test_a_client_learns_from_those_that_are_like_it() -> None:
    """Of six clients of two kinds with few rows each; one that differs from all others stays alone."""
    random = np.random.default_rng(7)
    scales = [3.0, 2.0, 0.2, 0.2, 0.2]
    rows = [np.roll(random.normal(size=(12, 5)) * scales, 2 * (k % 2), axis=1) for k in range(6)]
    rows.append(random.normal(size=(40, 5)) * [0.1, 3.0, 0.1, 0.1, 3.0] + 4.0)
    phi = [features(r) for r in rows]
    means, num_rows = np.array([p.mean(axis=0) for p in phi]), np.array([float(len(r)) for r in rows])
    chosen = []
    for own in (0, 6):
        weights = mixtures(own, num_rows, squared_distances(means)[own], None)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        fold = np.arange(len(rows[own])) % 4
        chosen.append(weights[choose(weights, own, means, phi[own], rows[own], fold, 2)])
    assert chosen[0][[0, 2, 4]].sum() > 0.9
    assert chosen[0][0] < 0.9
    assert chosen[1][6] > 0.9


def test_a_client_of_one_unit_takes_what_all_have() -> None:
    """Nothing can be kept apart; weights that were learned are among the mixtures."""
    rows = np.ones((3, 2))
    weights = mixtures(1, np.array([2.0, 3.0]), np.array([1.0, 0.0]), np.array([0.7, 0.3]))
    np.testing.assert_allclose(weights[[ALONE, ALL_ALIKE, 2]], [[0.0, 1.0], [0.4, 0.6], [0.7, 0.3]])
    means = np.array([features(rows).mean(axis=0)] * 2)
    assert choose(weights, 1, means, features(rows), rows, np.zeros(3, dtype=np.int64), 1) == ALL_ALIKE
    assert len(mixtures(0, np.ones(1), np.zeros(1), None)) == 2
