"""A large matrix is factored by blocks, to the factor of one call."""

from __future__ import annotations

import pytest
import torch

from kernfed.errors import NotPositiveDefiniteError
from kernfed.tensors import in_place


def positive(n: int) -> torch.Tensor:
    """A positive definite matrix, (n, n)."""
    rows = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return rows @ rows.T + n * torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("n", [37, 64, 130])
def test_blocks_give_the_factor_of_one_call(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Above a stated size, which one call of LAPACK does not survive on every machine, blocks are factored in turn."""
    monkeypatch.setattr(in_place, "_WHOLE", 32)
    monkeypatch.setattr(in_place, "_BLOCK", 16)
    matrix = positive(n)
    factor = in_place.factor_in_place(matrix.clone(), name="K").tril()
    assert torch.allclose(factor, torch.linalg.cholesky(matrix), rtol=0, atol=1e-12)


def test_a_block_without_a_factor_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix that is not positive definite in its last block is refused as one that is factored whole."""
    monkeypatch.setattr(in_place, "_WHOLE", 32)
    monkeypatch.setattr(in_place, "_BLOCK", 16)
    matrix = positive(50)
    matrix[-1, -1] = -1.0
    with pytest.raises(NotPositiveDefiniteError, match="K of size 50"):
        in_place.factor_in_place(matrix, name="K")
