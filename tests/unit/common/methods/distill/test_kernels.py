"""Kernels between points: formulas, exactness, and what is no kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernfed.errors import ConfigError, DataError
from kernfed.features.spec import Kernel
from kernfed.methods.distill.kernels import KernelSpec, PointKernel, gram, lower_gram
from kernfed.tensors import kernels

X = np.random.default_rng(0).random((40, 3))
Y = np.random.default_rng(1).random((7, 3))


@pytest.mark.parametrize("name", ["gaussian", "laplace", "matern32", "matern52"])
def test_formulas_are_those_of_the_feature_maps(name: str) -> None:
    """The kernels that random features approximate are the same here."""
    spec = KernelSpec(PointKernel(name), (0.5, 1.0, 2.0), False)
    expected = kernels.gram(Kernel(name), torch.from_numpy(X), torch.from_numpy(Y), (0.5, 1.0, 2.0))
    np.testing.assert_allclose(gram(spec, X, Y), expected.numpy(), atol=1e-7)


def test_one_plus_min_and_wendland_by_hand() -> None:
    """1 + min(x, x') per column, multiplied; (1-r)⁴(4r+1) within distance 1."""
    a, b = np.array([[0.2, 0.9]]), np.array([[0.5, 0.3]])
    assert abs(gram(KernelSpec(PointKernel.ONE_PLUS_MIN, (1.0,), False), a, b)[0, 0] - 1.2 * 1.3) < 1e-15
    wendland = KernelSpec(PointKernel.WENDLAND, (1.0,), False)
    points = np.array([[0.0], [0.5], [1.0], [3.0]])
    np.testing.assert_allclose(gram(wendland, points)[0], [1.0, 0.5**4 * 3.0, 0.0, 0.0], atol=1e-16)
    with_one = gram(KernelSpec(PointKernel.WENDLAND, (1.0,), True), points)
    np.testing.assert_allclose(with_one - gram(wendland, points), 1.0)


@pytest.mark.parametrize("kernel", list(PointKernel))
def test_gram_matrices_are_positive_definite_and_alike_at_both_ends(kernel: PointKernel) -> None:
    """Symmetric to the last bit, no negative eigenvalue; numpy and torch agree to rounding."""
    spec = KernelSpec(kernel, (0.8,), False)
    k = gram(spec, X)
    assert (k == k.T).all()
    assert np.linalg.eigvalsh(k).min() > -1e-12
    np.testing.assert_allclose(k, gram(spec, torch.from_numpy(X)).numpy(), rtol=0, atol=1e-14)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix computed row by row, whole or its lower triangle, is that computed at once."""
    spec = KernelSpec(PointKernel.LAPLACE, (0.8,), True)
    whole = gram(spec, torch.from_numpy(X))
    monkeypatch.setattr("kernfed.methods.distill.kernels._BLOCK", 1)
    torch.testing.assert_close(gram(spec, torch.from_numpy(X)), whole, rtol=0, atol=1e-15)
    lower = lower_gram(spec, torch.from_numpy(X), torch.full((40, 40), 9.0, dtype=torch.float64))
    torch.testing.assert_close(lower.tril(), whole.tril(), rtol=0, atol=1e-15)


def test_far_points_lose_no_digits() -> None:
    """A common offset of 1e7 leaves the distances of points as they are."""
    spec = KernelSpec(PointKernel.GAUSSIAN, (1.0,), False)
    near = np.array([[0.0], [1.0]])
    np.testing.assert_allclose(gram(spec, near + 1e7), gram(spec, near), atol=1e-8)


def test_what_is_no_kernel_is_refused() -> None:
    """Wendland beyond three columns, one-plus-min below -1, lengthscales that do not fit."""
    with pytest.raises(ConfigError, match="matern52"):
        gram(KernelSpec(PointKernel.WENDLAND, (1.0,), False), np.zeros((2, 4)))
    with pytest.raises(DataError, match="standardise"):
        gram(KernelSpec(PointKernel.ONE_PLUS_MIN, (1.0,), False), np.array([[-1.5]]))
    with pytest.raises(ConfigError, match="2 numbers for 1 columns"):
        gram(KernelSpec(PointKernel.GAUSSIAN, (1.0, 2.0), False), np.zeros((2, 1)))
    with pytest.raises(ConfigError, match="positive"):
        gram(KernelSpec(PointKernel.GAUSSIAN, (0.0,), False), np.zeros((2, 1)))
