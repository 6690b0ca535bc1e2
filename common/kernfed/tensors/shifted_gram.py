"""G + shift I for a symmetric matrix G: products with it, and solves once it is factored, in the memory of one matrix.

On CPU in float64 G stays above the diagonal of its array, and the Cholesky factor of the last shift takes the rest.
Elsewhere G and each factor have an array of their own.
"""

from __future__ import annotations

import torch
from scipy.linalg.blas import dsymm, dsymv, dsyr2, dsyrk
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError
from kernfed.tensors.in_place import factor_in_place, solve_rows_in_place
from kernfed.tensors.linalg import Cholesky, cholesky, largest_eigenvalue, not_positive_definite

_STEP = 512


class GramSum:
    """Z'Z summed over blocks of rows; half of the work where the symmetry can be used."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        """Begin with 0, for rows of `size` numbers."""
        self._sum = torch.zeros(size, size, dtype=dtype, device=device)

    @classmethod
    def onto(cls, total: Tensor) -> GramSum:
        """Go on from a sum, shape (size, size), contiguous, whose upper triangle counts, in its memory."""
        going_on = cls(0, total.dtype, total.device)
        going_on._sum = total
        return going_on

    def add(self, z: Tensor) -> None:
        """Add z'z of a block, shape (b, size)."""
        if z.shape[0] == 0 or z.shape[1] == 0:
            return
        if in_place(self._sum):
            # The transposed view of the sum is column-major: its lower triangle is the upper one of the sum.
            rows = z.numpy()
            by_columns = not rows.flags.c_contiguous and rows.flags.f_contiguous
            a, trans = (rows, 1) if by_columns else (rows.T, 0)
            dsyrk(1.0, a, beta=1.0, c=self._sum.numpy().T, trans=trans, lower=1, overwrite_c=1)
        else:
            self._sum.addmm_(z.T, z)

    def subtract(self, u: Tensor, v: Tensor) -> None:
        """Subtract u v' + v u' of two vectors, shape (size,)."""
        if in_place(self._sum):
            dsyr2(-1.0, u.numpy(), v.numpy(), a=self._sum.numpy().T, lower=1, overwrite_a=1)
        else:
            self._sum.addr_(u, v, alpha=-1.0).addr_(v, u, alpha=-1.0)

    def done(self, scale: float) -> ShiftedGram:
        """The sum times a factor; this object is used up."""
        return ShiftedGram(self._sum.mul_(scale))


class ShiftedGram:
    """A symmetric positive semidefinite G, of which G + shift I is asked for."""

    def __init__(self, gram: Tensor) -> None:
        """Take G over, shape (n, n), contiguous; only its upper triangle is read."""
        self._a = gram
        self._diagonal = gram.diagonal().clone()
        self._shift: float | None = None
        self._factors: dict[float, Cholesky] = {}

    @property
    def size(self) -> int:
        """Rows n of G."""
        return int(self._a.shape[0])

    def product(self, v: Tensor, shift: float) -> Tensor:
        """Compute (G + shift I) V for V of shape (n, C)."""
        if not in_place(self._a):
            return torch.addmm(v, self._a, v, beta=shift)
        if v.numel() == 0:
            return v.clone()
        factored = self._a.diagonal().clone()
        self._a.diagonal().copy_(self._diagonal)  # so that the bits do not hang on what was asked before
        a, columns = self._a.numpy().T, v.numpy()
        if v.shape[1] == 1:  # a quarter of the time of the same for many columns
            found = torch.from_numpy(dsymv(1.0, a, columns[:, 0], lower=1)[:, None])
        else:
            found = torch.from_numpy(dsymm(1.0, a, columns.T, side=1, lower=1).T)
        self._a.diagonal().copy_(factored)
        return found.add_(v, alpha=shift)

    def solve(self, b: Tensor, shift: float, name: str) -> Tensor:
        """Compute (G + shift I)⁻¹ B for B of shape (n, C); the factor is kept until another shift is asked for.

        Args:
            b: Right-hand sides; not changed.
            shift: What is added to the diagonal.
            name: What the matrix is, for the error.

        Raises:
            NotPositiveDefiniteError: It is singular to working precision.
            NumericalError: It holds NaN or infinity.
        """
        if not in_place(self._a):
            if shift not in self._factors:
                self._factors[shift] = cholesky(self._full(shift), name=name)
            return self._factors[shift].solve(b)
        if self._shift != shift:
            self._factor(shift, name)
        x = b.clone(memory_format=torch.contiguous_format)
        return solve_rows_in_place(self._a, solve_rows_in_place(self._a, x), transposed=True)

    def trace(self) -> float:
        """Compute the trace of G."""
        return float(self._diagonal.sum())

    def largest_eigenvalue(self) -> float:
        """Compute the largest eigenvalue of G."""
        return largest_eigenvalue(self._full(0.0))

    def add_to(self, total: Tensor, scale: float) -> None:
        """Add scale · G to the upper triangle of a matrix; below its diagonal anything may stand afterwards."""
        total.add_(self._a, alpha=scale)
        total.diagonal().add_(self._diagonal - self._a.diagonal(), alpha=scale)

    def _factor(self, shift: float, name: str) -> None:
        """Put G + shift I on and below the diagonal, and factor it there."""
        a, n = self._a, self.size
        for start in range(0, n, _STEP):
            end = min(start + _STEP, n)
            a[start:end, :start] = a[:start, start:end].T
            square = a[start:end, start:end].triu(1)
            a[start:end, start:end] = square + square.T
        a.diagonal().copy_(self._diagonal).add_(shift)
        self._shift = shift
        try:
            factor_in_place(a, name=name)
        except NotPositiveDefiniteError as err:
            a.diagonal().copy_(self._diagonal)
            self._shift = None
            raise not_positive_definite(self._full(shift), name) from err

    def _full(self, shift: float) -> Tensor:
        full = self._a.triu(1)
        full += full.T.clone()
        full.diagonal().copy_(self._diagonal).add_(shift)
        return full


def in_place(a: Tensor) -> bool:
    """Whether LAPACK works on this matrix where it lies."""
    return a.device.type == "cpu" and a.dtype is torch.float64
