"""Factor a large symmetric positive definite matrix in its own memory, and solve in that of the right-hand side.

`kernfed.tensors.linalg` is for matrices of which memory holds three; here one is all that there is. Only lower
triangles are read and written. On CPU LAPACK works in place, on the transposed view that is column-major; on CUDA
torch does what it can.
"""

from __future__ import annotations

import torch
from scipy.linalg.blas import dtrsm, dtrsv
from scipy.linalg.lapack import dpotrf
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError, NumericalError

_WHOLE = 8192
"""Rows up to which LAPACK factors a matrix in one call: OpenBLAS 0.3.30 crashes at 16,000 on two threads."""
_BLOCK = 2048


def factor_in_place(a: Tensor, *, name: str) -> Tensor:
    """Replace the lower triangle of A by that of its Cholesky factor L, A = L L'.

    Args:
        a: Matrix, float64 (n, n), contiguous; only its lower triangle is read. On CPU it is overwritten.
        name: What the matrix is, for the error.

    Returns:
        L: on CPU `a` itself, above whose diagonal anything may stand.

    Raises:
        NotPositiveDefiniteError: There is no factor, or (max L_ii / min L_ii)² exceeds 1/eps, as in
        `kernfed.tensors.linalg`. NumericalError: The matrix holds NaN or infinity.
    """
    if a.shape[0] == 0:
        return a
    largest = float(a.diagonal().abs().max())
    if a.device.type == "cpu":
        info = _potrf(a) if len(a) <= _WHOLE else _potrf_by_blocks(a, _BLOCK)
        factor = a
    else:
        factor, flag = torch.linalg.cholesky_ex(a)
        info = int(flag)
    diagonal = factor.diagonal()
    low, high = float(diagonal.min()), float(diagonal.max())
    if not (low == low and high < float("inf") and largest < float("inf")):
        raise NumericalError(f"{name} of size {a.shape[0]} holds NaN or infinity; check the data behind it")
    if info != 0 or not low > high * torch.finfo(a.dtype).eps ** 0.5:
        raise NotPositiveDefiniteError(
            f"{name} of size {a.shape[0]} is not positive definite to working precision (pivots from {low:.3g} to "
            f"{high:.3g}); increase the ridge"
        )
    return factor


def _potrf(a: Tensor) -> int:
    _, info = dpotrf(a.numpy().T, lower=0, overwrite_a=1, clean=0)
    return int(info)


def _potrf_by_blocks(a: Tensor, size: int) -> int:
    """As LAPACK does it: columns of a block are factored, and taken out of the rest, before the next."""
    for start in range(0, len(a), size):
        end = start + size
        block = a[start:end, start:end].contiguous()
        if info := _potrf(block):
            return info
        a[start:end, start:end] = block
        for low in range(end, len(a), size):
            rows = a[low : low + size, start:end]
            rows.copy_(torch.linalg.solve_triangular(block.mT, rows, upper=True, left=False))
        subtract_square(a[end:, end:], a[end:, start:end], 1.0)
    return 0


def solve_rows_in_place(factor: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    """Compute L⁻¹ B, or L'⁻¹ B, in the memory of B.

    Args:
        factor: L, from `factor_in_place`, (n, n).
        b: Right-hand sides, float64 (n, k), contiguous. On CPU it is overwritten.
        transposed: Whether to solve with L'.
    """
    if b.numel() == 0:
        return b
    if b.device.type == "cpu" and b.shape[1] == 1:  # a third of the time of the same for many columns
        dtrsv(factor.numpy().T, b.numpy()[:, 0], lower=0, trans=int(not transposed), overwrite_x=1)
        return b
    if b.device.type == "cpu":
        # Rows are columns of the transposed views: L X = B is X' U = B' with U = L'.
        dtrsm(1.0, factor.numpy().T, b.numpy().T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
        return b
    solved: Tensor = torch.linalg.solve_triangular(factor.mT if transposed else factor, b, upper=transposed)
    return solved


def inverse_diagonal(factor: Tensor) -> Tensor:
    """Compute the diagonal of A⁻¹ = L'⁻¹ L⁻¹, (n,), in blocks that are small beside A.

    Args:
        factor: L, from `factor_in_place`, (n, n).
    """
    n = len(factor)
    found = factor.new_empty(n)
    for start in range(0, n, 256):
        unit = factor.new_zeros(n, min(256, n - start))
        unit[start : start + unit.shape[1]].fill_diagonal_(1.0)
        found[start : start + unit.shape[1]] = solve_rows_in_place(factor, unit).square().sum(dim=0)
    return found


def subtract_square(a: Tensor, t: Tensor, scale: float) -> None:
    """Subtract scale · T T' from the lower triangle of A, block by block.

    Args:
        a: Matrix, (n, n), overwritten; what lies above its diagonal is not defined afterwards.
        t: (n, k).
        scale: Factor.
    """
    step = max(64, (1 << 22) // max(1, t.shape[0]))
    for start in range(0, t.shape[0], step):
        end = min(start + step, t.shape[0])
        a[start:end, :end].addmm_(t[start:end], t[:end].T, alpha=-scale)
