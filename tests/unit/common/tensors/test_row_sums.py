"""Tests of `kernfed.tensors.row_sums`: sums over rows in one pass, made before their means are known."""

from __future__ import annotations

import pytest
import torch

from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.row_sums import RowSums
from kernfed.tensors.rows import SMALL, KeptRows, mean_of


def made(num: int, size: int, offset: float = 0.0, dtype: torch.dtype = torch.float64) -> tuple[KeptRows, torch.Tensor]:
    """Rows of a block and more whose first ones are unlike the others, and targets."""
    draw = torch.Generator().manual_seed(3)
    z = torch.randn(num, size, generator=draw, dtype=torch.float64)
    z[: num // 3] = 0.2 * z[: num // 3] + 2.0
    y = z[:, :2] + torch.randn(num, 2, generator=draw, dtype=torch.float64)
    return KeptRows((z + offset).to(dtype)), (y + offset).to(dtype)


@pytest.mark.parametrize(
    ("offset", "dtype", "near"),
    [(0.0, torch.float64, 1e-13), (1e6, torch.float64, 1e-9), (0.0, torch.float32, 1e-5)],
)
def test_sums_are_those_of_centred_rows(offset: float, dtype: torch.dtype, near: float) -> None:
    """As digits of features and targets allow: far from 0 the shift keeps what their squares would lose."""
    rows, y = made(9000, 120, offset, dtype)
    sums = RowSums(rows, y)
    mean, target_mean = sums.mean(), y.mean(0) + 0.3
    torch.testing.assert_close(mean, mean_of(rows), rtol=near, atol=0)
    a = mean + 0.1
    z = (rows.whole() - a).double()
    want = z.T @ z / len(z), z.T @ (y - target_mean).double() / len(z)
    gram, moment = sums.around(a, target_mean)
    torch.testing.assert_close(moment.double(), want[1], rtol=0, atol=10 * near)
    eye = torch.eye(120, dtype=dtype)
    torch.testing.assert_close(gram.product(eye, 0.0).double(), want[0], rtol=0, atol=10 * near)


def test_a_second_time_gives_the_same_bits() -> None:
    """The matrix was given away, and a pass makes it again; whether the mean was asked for does not count."""
    rows, y = made(9000, 40)
    mean = mean_of(rows)
    sums, later = RowSums(rows, y), RowSums(rows, y)
    sums.mean()
    for _ in range(2):
        (gram, moment), (other, same) = sums.around(mean, y.mean(0)), later.around(mean, y.mean(0))
        assert torch.equal(moment, same)
        v = torch.ones(40, 1, dtype=torch.float64)
        assert torch.equal(gram.product(v, 0.5), other.product(v, 0.5))


def test_a_ridge_problem_takes_them() -> None:
    """Its solution, gradient and pooled sums are those that it makes of the rows itself."""
    rows, y = made(9000, 60)
    mean, target_mean = mean_of(rows), y.mean(0)
    sums = RowSums(rows, y)
    problem = LocalRidge(rows.minus(mean), y - target_mean, 0.1, lambda: sums.around(mean, target_mean))
    itself = LocalRidge(rows.minus(mean), y - target_mean, 0.1)
    torch.testing.assert_close(problem.solve(), itself.solve(), rtol=0, atol=1e-12)
    w = torch.ones(60, 2, dtype=torch.float64)
    torch.testing.assert_close(problem.gradient(w), itself.gradient(w), rtol=0, atol=1e-12)


def test_they_are_for_many_rows() -> None:
    """Few rows are kept, or stand in for the matrix, and one more pass costs nothing."""
    assert RowSums.saves(SMALL, 2)
    assert not RowSums.saves(SMALL // 100, 100)
    assert not RowSums.saves(1000, 4000)
