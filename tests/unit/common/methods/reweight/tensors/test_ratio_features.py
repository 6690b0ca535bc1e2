"""Frozen maps on whose outcome density ratios are fitted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d

from kernfed import rng
from kernfed.errors import DataError
from kernfed.methods.reweight.tensors.ratio_features import NUM_FILTERS, principal_axes, project, random_convolutions


def test_convolutions_are_those_of_the_drawn_filters() -> None:
    """Beside scipy's correlation, cut at 0 and averaged over the parts of a grid."""
    images = np.random.default_rng(0).random((2, 2, 10, 7))
    found = random_convolutions(torch.from_numpy(images), 3).numpy()
    filters = rng.stream(3, "ratio features", "filters").normal(NUM_FILTERS, 50)
    filters -= filters.mean(axis=1, keepdims=True)
    filters = (filters / np.linalg.norm(filters, axis=1, keepdims=True)).reshape(NUM_FILTERS, 2, 5, 5)
    for i in range(2):
        for k in range(NUM_FILTERS):
            answer = sum(correlate2d(images[i, c], filters[k, c], mode="valid") for c in range(2)).clip(0)
            assert answer.shape == (6, 3)
            want = answer.reshape(3, 2, 3, 1).mean(axis=(1, 3)).reshape(-1)
            np.testing.assert_allclose(found[i, 9 * k : 9 * k + 9], want, atol=1e-12)


def test_another_seed_draws_other_filters_and_directions() -> None:
    """The same seed gives the same numbers."""
    images, rows = torch.rand(3, 1, 8, 8, dtype=torch.float64), torch.rand(3, 9, dtype=torch.float64)
    draws: list[Callable[[int], torch.Tensor]] = [
        lambda seed: random_convolutions(images, seed),
        lambda seed: project(rows, 4, seed),
    ]
    for mapped in draws:
        assert torch.equal(mapped(1), mapped(1))
        assert not torch.allclose(mapped(1), mapped(2))


def test_projections_keep_distances() -> None:
    """Squared distances of 30 points, within 1 ± e, for delta 10⁻⁶ and all pairs: 2 exp(-(e² - e³)num/4) each."""
    n, num, delta = 30, 1000, 1e-6
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(n, 1500)))
    before, after = (torch.cdist(x, x).square()[~torch.eye(n, dtype=torch.bool)] for x in (rows, project(rows, num, 5)))
    exponent = math.log(n * (n - 1) / delta)
    e = next(e for e in np.arange(0.01, 0.6, 0.01) if (e**2 - e**3) * num / 4 >= exponent)
    assert float((after / before - 1).abs().max()) <= e


def test_a_projection_to_more_columns_is_refused() -> None:
    """With the key to correct."""
    with pytest.raises(DataError, match=r"num_features is 4, but there are only 4"):
        project(torch.ones(2, 4), 4, 0)


def test_principal_axes_are_those_of_the_singular_value_decomposition() -> None:
    """Beside numpy's, up to signs, which are such that the greatest number of each is positive."""
    x = np.random.default_rng(2).normal(size=(40, 6)) * np.array([1, 5, 2, 8, 3, 1.5])
    found = principal_axes(torch.from_numpy(x), 3).numpy()
    want = np.linalg.svd(x - x.mean(axis=0))[2][:3].T
    np.testing.assert_allclose(np.abs(found.T @ want), np.eye(3), atol=1e-9)
    assert (found[np.abs(found).argmax(axis=0), range(3)] > 0).all()
