"""Tests of `kernfed.tensors.shifted_gram`: a symmetric matrix and its factor in one array."""

from __future__ import annotations

import pytest
import torch

from kernfed.errors import NotPositiveDefiniteError, NumericalError
from kernfed.tensors.shifted_gram import GramSum, ShiftedGram


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gram(z: torch.Tensor, scale: float = 1.0) -> ShiftedGram:
    total = GramSum(z.shape[1], z.dtype, z.device)
    for block in torch.split(z, 100):
        total.add(block)
    return total.done(scale)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1, 7, 600])
def test_products_and_solves_follow_their_definitions(size: int, dtype: torch.dtype) -> None:
    """Before and after a factor was made, and for a second shift."""
    z = normal(900, size).to(dtype)
    found, want = gram(z, 1 / 900), (z.T @ z / 900).double()
    v = normal(size, 3, seed=1).to(dtype)
    eye = torch.eye(size, dtype=torch.float64)
    atol = 1e-11 if dtype is torch.float64 else 1e-4
    for shift in (0.5, 0.25, 0.5):
        system = want + shift * eye
        torch.testing.assert_close(found.product(v, shift).double(), system @ v.double(), rtol=0, atol=atol)
        solved = found.solve(v, shift, "G")
        torch.testing.assert_close(solved.double(), torch.linalg.solve(system, v.double()), rtol=0, atol=atol)
        torch.testing.assert_close(found.product(v, shift).double(), system @ v.double(), rtol=0, atol=atol)
    assert found.largest_eigenvalue() == pytest.approx(float(torch.linalg.eigvalsh(want)[-1]), rel=1e-5)


def test_bits_do_not_hang_on_what_was_asked_before() -> None:
    """A product has the same bits whether the matrix was factored already: a resumed run asks in another order."""
    z, v = normal(900, 150), normal(150, 2, seed=3)
    fresh, used = gram(z), gram(z)
    used.solve(v, 0.5, "G")
    used.solve(v, 2.0, "G")
    assert torch.equal(fresh.product(v, 0.5), used.product(v, 0.5))
    assert torch.equal(fresh.solve(v, 0.5, "G"), used.solve(v, 0.5, "G"))


def test_columns_are_rows_of_the_transposed() -> None:
    """Z Z' from the transposed view, without a copy of Z."""
    z = normal(30, 80)
    total = GramSum(30, z.dtype, z.device)
    total.add(z.T)
    torch.testing.assert_close(total.done(1.0).product(torch.eye(30, dtype=torch.float64), 0.0), z @ z.T)


def test_sums_of_several_clients_add_up() -> None:
    """The pooled matrix, also where one of them was factored."""
    first, second = normal(200, 20), normal(300, 20, seed=1)
    total = torch.zeros(20, 20, dtype=torch.float64)
    factored = gram(first, 1 / 200)
    factored.solve(normal(20, 1), 0.1, "G")
    factored.add_to(total, 200.0)
    gram(second).add_to(total, 1.0)
    pooled = torch.cat([first, second])
    v = normal(20, 2, seed=5)
    torch.testing.assert_close(ShiftedGram(total).product(v, 0.0), pooled.T @ pooled @ v)


def test_a_singular_matrix_is_told_by_its_eigenvalues() -> None:
    """The matrix is lost to no failure: a larger shift works afterwards."""
    found = gram(torch.ones(10, 3, dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError, match=r"G of size 3 .* eigenvalues from .* increase the ridge"):
        found.solve(normal(3, 1), 1e-18, "G")
    v = normal(3, 1)
    torch.testing.assert_close(found.product(found.solve(v, 1.0, "G"), 1.0), v)
    with pytest.raises(NumericalError, match="NaN"):
        gram(torch.full((10, 3), float("nan"), dtype=torch.float64)).solve(v, 1.0, "G")
