"""Tests of `kernfed.tensors.kernels`: exact Gram matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, Matern

from kernfed.features.spec import FeatureForm, Kernel, make_spec
from kernfed.tensors.kernels import gram, gram_of_spec, squared_distances

SKLEARN = {
    Kernel.GAUSSIAN: lambda scale: RBF(scale),
    Kernel.LAPLACE: lambda scale: Matern(scale, nu=0.5),
    Kernel.MATERN32: lambda scale: Matern(scale, nu=1.5),
    Kernel.MATERN52: lambda scale: Matern(scale, nu=2.5),
}


def points(n: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kernel", SKLEARN)
@pytest.mark.parametrize("scale", [1.7, (0.5, 1.0, 4.0)])
def test_gram_agrees_with_scikit_learn(kernel: Kernel, scale: float | tuple[float, ...]) -> None:
    """Kernels of distances are those of an independent library, with one and with many lengthscales."""
    x, y = points(20), points(9, seed=1)
    want = SKLEARN[kernel](np.array(scale))(x.numpy(), y.numpy())
    np.testing.assert_allclose(gram(kernel, x, y, scale), want, rtol=0, atol=1e-12)


def test_gaussian_at_distance_one() -> None:
    """One lengthscale apart the kernel is exp(-1/2), not exp(-1)."""
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    assert float(gram(Kernel.GAUSSIAN, x, lengthscales=2.0)[0, 1]) == pytest.approx(math.exp(-0.5), abs=1e-15)


def test_linear_and_polynomial() -> None:
    """x·x' and (x·x' + 1)², on columns divided by their lengthscales."""
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    y = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    assert float(gram(Kernel.LINEAR, x, y)) == -5.0
    assert float(gram(Kernel.POLYNOMIAL2, x, y)) == 16.0
    assert float(gram(Kernel.LINEAR, x, y, (1.0, 2.0))) == 1.0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(list(Kernel)), st.integers(1, 25), st.integers(0, 1000))
def test_gram_matrices_are_positive_semidefinite(kernel: Kernel, n: int, seed: int) -> None:
    """No eigenvalue is below zero by more than rounding, also with repeated points."""
    x = points(n, seed=seed)
    x = torch.cat([x, x[:1]])
    k = gram(kernel, x)
    assert torch.equal(k, k.T) or float((k - k.T).abs().max()) < 1e-12 * float(k.abs().max())
    assert float(torch.linalg.eigvalsh(k)[0]) > -1e-7 * float(k.diagonal().max())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_distances_far_from_the_origin_do_not_cancel(dtype: torch.dtype) -> None:
    """Points 10000 and 10001 are at distance 1, also in float32."""
    x = torch.tensor([[10_000.0], [10_001.0], [10_000.5]], dtype=dtype)
    np.testing.assert_allclose(squared_distances(x), [[0, 1, 0.25], [1, 0, 0.25], [0.25, 0.25, 0]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(squared_distances(x, x), squared_distances(x), rtol=0, atol=1e-12)
    assert float(squared_distances(x).min()) >= 0


def test_gram_keeps_the_callers_type() -> None:
    """Computed in float64, returned as it came."""
    assert gram(Kernel.LAPLACE, points(3).float()).dtype is torch.float32


def test_half_cosine_is_half_the_kernel() -> None:
    """What the half-cosine map approximates is half of what the cosine map does."""
    x = points(4)
    half, whole = (
        gram_of_spec(make_spec(Kernel.GAUSSIAN, form, 3, 2.0, 8, 0), x)
        for form in (FeatureForm.HALF_COSINE, FeatureForm.COSINE)
    )
    assert torch.equal(2 * half, whole)
