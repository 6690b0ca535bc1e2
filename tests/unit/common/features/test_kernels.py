"""Kernels between points: formulas, exactness, and what is no kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF, Matern

from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.points.kernels import gram
from kernfed.tensors import kernels

X = np.random.default_rng(0).random((40, 3))
Y = np.random.default_rng(1).random((7, 3))

SKLEARN = {
    PointKernel.GAUSSIAN: lambda scale: RBF(scale),
    PointKernel.LAPLACE: lambda scale: Matern(scale, nu=0.5),
    PointKernel.MATERN32: lambda scale: Matern(scale, nu=1.5),
    PointKernel.MATERN52: lambda scale: Matern(scale, nu=2.5),
}


@pytest.mark.parametrize("kernel", SKLEARN)
@pytest.mark.parametrize("scales", [(1.7,), (0.5, 1.0, 4.0)])
def test_formulas_agree_with_scikit_learn(kernel: PointKernel, scales: tuple[float, ...]) -> None:
    """Kernels of distances are those of an independent library, with one and with many lengthscales."""
    want = SKLEARN[kernel](np.array(scales))(X, Y)
    spec = KernelSpec(kernel, scales, False)
    np.testing.assert_allclose(gram(spec, X, Y), want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernels.gram(spec, torch.from_numpy(X), torch.from_numpy(Y)), want, rtol=0, atol=1e-12)


def test_gaussian_at_distance_one() -> None:
    """One lengthscale apart the kernel is exp(-1/2), not exp(-1)."""
    points = np.array([[0.0], [2.0]])
    k = gram(KernelSpec(PointKernel.GAUSSIAN, (2.0,), False), points)[0, 1]
    assert k == pytest.approx(np.exp(-0.5), abs=1e-15)


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
    np.testing.assert_allclose(k, kernels.gram(spec, torch.from_numpy(X)).numpy(), rtol=0, atol=1e-14)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix computed row by row, whole or its lower triangle, is that computed at once."""
    spec = KernelSpec(PointKernel.LAPLACE, (0.8,), True)
    x = torch.from_numpy(X)
    whole, here = kernels.gram(spec, x), gram(spec, X)
    monkeypatch.setattr("kernfed.features.kernels.BLOCK", 1)
    monkeypatch.setattr("kernfed.tensors.kernels.BLOCK", 1)
    np.testing.assert_allclose(gram(spec, X), here, rtol=0, atol=1e-15)
    torch.testing.assert_close(kernels.gram(spec, x), whole, rtol=0, atol=1e-15)
    lower = kernels.lower_gram(spec, x, torch.full((40, 40), 9.0, dtype=torch.float64))
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
