"""Tests of `kernfed.tensors.linalg`: factor, solve, refuse."""

from __future__ import annotations

import pytest
import torch

from kernfed.errors import NotPositiveDefiniteError, NumericalError
from kernfed.tensors.linalg import cholesky, eigenvalues, largest_eigenvalue, self_product


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_eigenvalues(values: list[float]) -> torch.Tensor:
    q: torch.Tensor = torch.linalg.qr(normal(len(values), len(values)))[0]
    a = (q * torch.tensor(values, dtype=torch.float64)) @ q.T
    return (a + a.T) / 2


def test_solve_inverts() -> None:
    """The solution of a well-posed system is right, also for several columns."""
    a = with_eigenvalues([1.0, 2.0, 50.0])
    b = normal(3, 2, seed=1)
    torch.testing.assert_close(a @ cholesky(a).solve(b), b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [([-1.0, 2.0, 3.0], "eigenvalues from -1 to 3"), ([0.0, 1.0, 1.0], "remove repeated"), ([1e-20, 1, 1], "ridge")],
)
def test_indefinite_and_singular_matrices_are_refused(values: list[float], message: str) -> None:
    """No jitter: a matrix that is not positive definite to working precision raises, with its eigenvalues."""
    with pytest.raises(NotPositiveDefiniteError, match=message):
        cholesky(with_eigenvalues(values), name="K")


def test_a_diagonal_matrix_past_working_precision_is_refused() -> None:
    """A factor that exists but has no correct digit is refused, with the condition number."""
    with pytest.raises(NotPositiveDefiniteError, match="condition number 1e\\+20"):
        cholesky(torch.diag(torch.tensor([1.0, 1e-20], dtype=torch.float64)))


def test_ill_conditioned_but_solvable_matrices_pass() -> None:
    """A condition number of 1e10 is harmless: the backward error stays at rounding."""
    a = with_eigenvalues([1e-10, 1e-3, 1.0])
    b = normal(3, 1)
    x = cholesky(a).solve(b)
    assert float((a @ x - b).norm() / (a.norm() * x.norm())) < 1e-15


def test_nan_is_named() -> None:
    """A matrix with NaN is not called indefinite."""
    a = with_eigenvalues([1.0, 2.0])
    a[1, 0] = float("nan")
    with pytest.raises(NumericalError, match="NaN"):
        cholesky(a)


def test_an_empty_system_has_an_empty_solution() -> None:
    """Size 0 is a size."""
    empty = torch.empty(0, 0, dtype=torch.float64)
    assert cholesky(empty).solve(torch.empty(0, 2, dtype=torch.float64)).shape == (0, 2)


def test_eigenvalues_ascend_and_the_largest_is_exact() -> None:
    """Close leading eigenvalues, where power iteration falls short, are told apart."""
    a = with_eigenvalues([3.0, 0.5, 3.0000001])
    torch.testing.assert_close(eigenvalues(a), torch.tensor([0.5, 3.0, 3.0000001], dtype=torch.float64))
    assert largest_eigenvalue(a) == pytest.approx(3.0000001, abs=1e-13)


@pytest.mark.parametrize("transposed", [False, True])
def test_self_product_is_symmetric_and_right(transposed: bool) -> None:
    """z'z, bit for bit symmetric on CPU, for either memory order."""
    z = normal(50, 7).T.contiguous().T if transposed else normal(50, 7)
    got = self_product(z)
    assert torch.equal(got, got.T)
    torch.testing.assert_close(got, torch.einsum("ni,nj->ij", z, z), rtol=1e-13, atol=1e-13)
