"""Tests of `kernfed.tensors.feature_maps`: features against exact kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kernfed.errors import DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, draw_frequencies, make_spec
from kernfed.maths.few.rows import few_products
from kernfed.tensors.feature_maps import FeatureMap, random_features
from kernfed_testing.methods.ridge_clients import load_golden
from kernfed_testing.oracles import exact_gram

RANDOM = [Kernel.GAUSSIAN, Kernel.LAPLACE, Kernel.MATERN32, Kernel.MATERN52]
DISTANCES = (0.0, 0.1, 0.3, 1.0, 2.0, 5.0)
SCALES = (0.5, 1.0, 4.0)


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """A point, and one at each distance from it (in units of the lengthscales), in different directions."""
    directions = torch.randn(len(DISTANCES), 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    directions /= directions.norm(dim=1, keepdim=True)
    x = torch.tensor([[0.3, -2.0, 1.0]], dtype=torch.float64)
    return x, x + directions * torch.tensor(DISTANCES, dtype=torch.float64)[:, None] * torch.tensor(SCALES)


OF_FREQUENCIES = [form for form in FeatureForm if form is not FeatureForm.NYSTROEM]


def hoeffding(form: FeatureForm, num_frequencies: int, delta: float) -> float:
    """Each frequency adds a term within [-r, r] over D: |error| <= r sqrt(2 log(2 m/delta)/D) at all m pairs at once.

    r is 2 for sqrt(2) cos times sqrt(2) cos, 1 for the other forms.
    """
    r = 2.0 if form is FeatureForm.COSINE else 1.0
    return r * math.sqrt(2 * math.log(2 * len(DISTANCES) / delta) / num_frequencies)


@pytest.mark.parametrize("form", OF_FREQUENCIES)
@pytest.mark.parametrize("kernel", RANDOM)
def test_random_features_approximate_the_kernel(kernel: Kernel, form: FeatureForm) -> None:
    """Inner products are within Hoeffding's bound of the exact kernel at all distances (delta = 1e-9)."""
    num, delta = 60_000, 1e-9
    spec = make_spec(kernel, form, 3, SCALES, num, 5)
    x, y = pairs()
    phi = FeatureMap(spec)
    approximate = phi(x) @ phi(y).T
    exact = exact_gram(spec, x, y)
    assert (approximate - exact).abs().max() <= hoeffding(form, num, delta)


def test_the_bound_tells_a_wrong_factor_of_two() -> None:
    """The classic fault, exp(-r²) for exp(-r²/2), is far outside the bound."""
    num = 60_000
    wrong = make_spec(Kernel.GAUSSIAN, FeatureForm.SINE_COSINE, 3, [s / math.sqrt(2) for s in SCALES], num, 5)
    x, y = pairs()
    phi = FeatureMap(wrong)
    right = make_spec(Kernel.GAUSSIAN, FeatureForm.SINE_COSINE, 3, SCALES, num, 5)
    error = (phi(x) @ phi(y).T - exact_gram(right, x, y)).abs().max()
    assert error > 3 * hoeffding(FeatureForm.SINE_COSINE, num, 1e-9)


@pytest.mark.parametrize("kernel", [Kernel.LINEAR, Kernel.POLYNOMIAL2])
def test_exact_maps_are_exact(kernel: Kernel) -> None:
    """Inner products of linear and polynomial features are the kernel, to rounding."""
    spec = make_spec(kernel, FeatureForm.COSINE, 3, SCALES, 0, 0)
    x, y = pairs()
    phi = FeatureMap(spec)
    torch.testing.assert_close(phi(x) @ phi(y).T, exact_gram(spec, x, y), rtol=1e-13, atol=1e-13)
    assert phi(y).shape == (len(DISTANCES), spec.num_features)


def test_products_of_few_rows_are_linear_in_both_columns() -> None:
    """Of a polynomial such a product is what it would be where one of its factors is 0; all else stays, bit for bit."""
    x = np.random.default_rng(1).normal(size=(60, 3))
    x[:, 1], x[:, 2] = np.arange(60) < 20, (np.arange(60) >= 19) & (np.arange(60) < 40)
    few = few_products(x, 10)
    spec = make_spec(Kernel.POLYNOMIAL2, FeatureForm.COSINE, 3, 1.0, 0, 0)
    plain, found = (FeatureMap(spec, few=given)(torch.tensor(x)).numpy() for given in (None, few))
    differs = (plain != found).any(axis=0)
    assert few.num == 1
    assert differs.sum() == 1
    assert np.flatnonzero((plain != found).any(axis=1)).tolist() == [19]
    assert plain[19, differs] == pytest.approx(np.sqrt(2.0))
    assert not found[:, differs].any()


def test_half_cosine_features_agree_with_the_golden_ones() -> None:
    """M^-1/2 cos(x Omega + b) as an independent program computes it."""
    golden = load_golden("newton")
    omega, phase, x = (torch.tensor(a, dtype=torch.float64) for a in (golden["Omega"], golden["b"], golden["X"][0]))
    z = random_features(x, omega.T, phase, FeatureForm.HALF_COSINE)
    np.testing.assert_allclose(z, golden["phi0"], rtol=0, atol=1e-9)


def test_sine_cosine_rows_have_norm_one() -> None:
    """Sines come first, and every row has norm 1."""
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.SINE_COSINE, 2, 1.0, 50, 1)
    z = FeatureMap(spec)(torch.zeros(1, 2, dtype=torch.float64))
    assert z[0, :50].abs().max() == 0
    assert float(z.norm()) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("form", OF_FREQUENCIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_blocks_change_nothing(form: FeatureForm, dtype: torch.dtype) -> None:
    """Many rows, mapped in blocks inside and outside, equal the formula in one go, in the caller's type."""
    spec = make_spec(Kernel.GAUSSIAN, form, 4, 2.0, 300, 2)
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    phi = FeatureMap(spec, dtype=dtype)
    z = phi(x)
    drawn = draw_frequencies(spec)
    angle = x @ torch.as_tensor(drawn.omega, dtype=dtype).T
    if form is FeatureForm.SINE_COSINE:
        want = torch.cat([angle.sin(), angle.cos()], dim=1) / math.sqrt(300)
    else:
        scale = math.sqrt((2 if form is FeatureForm.COSINE else 1) / 300)
        want = (angle + torch.as_tensor(drawn.phase, dtype=dtype)).cos() * scale
    tolerance = 1e-14 if dtype is torch.float64 else 1e-5
    torch.testing.assert_close(z, want, rtol=0, atol=tolerance)
    pieces = list(phi.blocks(x, max_numbers=100_000))
    assert max(piece.numel() for piece in pieces) <= 100_000
    torch.testing.assert_close(torch.cat(pieces), z, rtol=0, atol=tolerance)
    assert z.dtype is dtype


@pytest.mark.parametrize("kernel", Kernel)
def test_no_rows_give_no_features(kernel: Kernel) -> None:
    """A client without rows gets an empty matrix of the right width."""
    spec = make_spec(kernel, FeatureForm.SINE_COSINE, 3, 1.0, 7, 0)
    assert FeatureMap(spec)(torch.empty(0, 3, dtype=torch.float64)).shape == (0, spec.num_features)


def test_a_wrong_number_of_columns_is_refused() -> None:
    """Rows that do not fit the map are an error."""
    with pytest.raises(DataError, match="3 columns"):
        FeatureMap(make_spec(Kernel.LINEAR, FeatureForm.COSINE, 3, 1.0, 0, 0))(torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("form", OF_FREQUENCIES)
def test_cuda_agrees_with_cpu(form: FeatureForm) -> None:
    """Features on CUDA are those of the CPU to 1e-12."""
    spec = make_spec(Kernel.MATERN32, form, 4, 2.0, 300, 2)
    x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    on_cuda = FeatureMap(spec, device="cuda")(x.cuda()).cpu()
    torch.testing.assert_close(on_cuda, FeatureMap(spec)(x), rtol=0, atol=1e-12)
