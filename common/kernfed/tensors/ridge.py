"""One client's ridge problem on features: factor once, then solve, differentiate and step.

F_j(W) = |Z W - Y|²/(2 n) + (ridge/2) |W|², with H = Z'Z/n + ridge I and c = Z'Y/n (FedNewton paper, Algorithm 1).
M features, C outputs. Everything keeps the type and device of Z; statistics belong in float64.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Integers
from kernfed.errors import DataError, DivergedError, NumericalError
from kernfed.maths.batches import batches
from kernfed.tensors.rows import FeatureRows, KeptRows
from kernfed.tensors.shifted_gram import GramSum, ShiftedGram


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Encode class indices as rows of zeros with a single one.

    Args:
        labels: Class indices, shape (n,), each from 0 to `num_classes` - 1.
        num_classes: Number of classes C.
        dtype: Of the result.

    Returns:
        Targets, shape (n, C).

    Raises:
        DataError: A label is outside the range.
    """
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise DataError(
            f"class indices run from {int(labels.min())} to {int(labels.max())}, want 0 to {num_classes - 1}"
        )
    out = torch.zeros(labels.shape[0], num_classes, dtype=dtype, device=labels.device)
    return out.scatter_(1, labels.long()[:, None], 1.0)


class LocalRidge:
    """The ridge problem of one client's rows.

    With more than M/2 rows H is formed, block by block of the rows, and factored (M x M); the features are then not
    needed again, but for batches of rows. With fewer, the n x n matrix K = ZZ'/n + ridge I stands in for it:
    H⁻¹ B = (B - Z'K⁻¹ Z B/n)/ridge (Woodbury), all features are kept, and no M x M matrix is ever formed. Factors are
    made when first needed and kept. Without rows H = ridge I and c = 0.

    Not safe for use by two threads at once.

    Attributes:
        num_rows: Rows n.
        ridge: The ridge, above 0.
    """

    def __init__(
        self,
        z: Tensor | FeatureRows,
        y: Tensor,
        ridge: float,
        sums: Callable[[], tuple[ShiftedGram, Tensor]] | None = None,
    ) -> None:
        """Take the rows of a problem; they are kept, not copied.

        Args:
            z: Features, shape (n, M), or what gives them.
            y: Targets, shape (n, C), of the type and device of `z`.
            ridge: Above 0.
            sums: Gives Z'Z/n and Z'Y/n, shape (M, C), of these rows, more than M/2; unset: they are made of the rows.

        Raises:
            DataError: Rows of features and targets do not pair up.
            NumericalError: The ridge is not above 0.
        """
        if len(z.shape) != 2 or y.ndim != 2 or z.shape[0] != y.shape[0]:
            raise DataError(f"features {tuple(z.shape)} and targets {tuple(y.shape)} do not pair row by row")
        if not ridge > 0:
            raise NumericalError(f"ridge is {ridge}; give a number above 0, else H need not be invertible")
        self.num_rows = z.shape[0]
        self.ridge = ridge
        self._rows: FeatureRows = KeptRows(z) if isinstance(z, Tensor) else z
        self._y = y
        self._per_row = 1.0 / max(1, self.num_rows)
        self._dual = uses_rows(self.num_rows, z.shape[1])
        self._gram: ShiftedGram | None = None
        self._moment: Tensor | None = None
        self._whole: Tensor | None = None
        self._sums = None if self._dual else sums

    def at(self, ridge: float) -> LocalRidge:
        """The problem of the same rows with another ridge, above 0; sums over rows are shared, and made once."""
        self.moment()
        self._gram_matrix()
        other = copy.copy(self)
        other.ridge = ridge
        return other

    def moment(self) -> Tensor:
        """Compute c = Z'Y/n, shape (M, C)."""
        if self._moment is None:
            if self._dual:
                self._moment = (self._z.T @ self._y).mul_(self._per_row)
            else:
                self._sum_up()
        assert self._moment is not None  # noqa: S101  # one of the two made it
        return self._moment.clone()

    def solve(self) -> Tensor:
        """Compute the minimiser H⁻¹ c, shape (M, C): the client's own ridge solution."""
        if self._dual:  # Z'K⁻¹ Y/n: nothing cancels
            return (self._z.T @ self._solve_gram(self._y, self.ridge)).mul_(self._per_row)
        return self.newton_step(self.moment())

    def gradient(self, w: Tensor) -> Tensor:
        """Compute the gradient H W - c at W, shape (M, C) (Algorithm 1, line 5)."""
        if self._dual:  # from residuals, which are small near a solution
            residual = torch.addmm(self._y, self._z, w, beta=-1.0)
            return torch.addmm(w, self._z.T, residual, beta=self.ridge, alpha=self._per_row)
        return self.hessian_product(w).sub_(self.moment())

    def newton_step(self, g: Tensor) -> Tensor:
        """Compute H⁻¹ G for G of shape (M, C) (Algorithm 1, line 7)."""
        return self._solve_shifted(g, self.ridge)

    def hessian_product(self, v: Tensor) -> Tensor:
        """Compute H V for V of shape (M, C)."""
        return self._shifted_product(v, self.ridge)

    def largest_eigenvalue(self) -> float:
        """Compute the largest eigenvalue of H: gradient descent converges with learning rates below 2 over it."""
        if self.num_rows == 0:
            return self.ridge
        return self._gram_matrix().largest_eigenvalue() + self.ridge

    def mean_square(self) -> float:
        """Compute tr Z'Z/n, the mean of the rows' squared norms."""
        return self._gram_matrix().trace() if self.num_rows else 0.0

    def gradient_descent(
        self,
        w: Tensor,
        *,
        learning_rate: float,
        num_steps: int,
        batch_size: int = 0,
        seed: int = 0,
        block: Integers | None = None,
    ) -> Tensor:
        """Take gradient steps from W on this client's objective (FedAvg's local update).

        Args:
            w: Where to start, shape (M, C); not changed.
            learning_rate: Step size.
            num_steps: Steps to take.
            batch_size: Rows per step; 0, or at least n: all rows. Each epoch visits the rows in a new random order,
                and its last batch may be smaller.
            seed: Of the orders.
            block: Number of each row's block, none of which a batch divides; unset: rows are drawn one by one.

        Returns:
            Weights, shape (M, C).

        Raises:
            DivergedError: The weights left the range of numbers: the learning rate is too large.
        """
        w = w.clone()
        if batch_size == 0 or batch_size >= self.num_rows:
            for _ in range(num_steps):
                w.sub_(self.gradient(w), alpha=learning_rate)
        else:
            drawn = batches(rng.stream(seed, "ridge", "batches"), self.num_rows, batch_size, block)
            for rows in itertools.islice(drawn, num_steps):
                w.sub_(self._batch_gradient(w, torch.from_numpy(rows).to(self._rows.device)), alpha=learning_rate)
        if not bool(torch.isfinite(w).all()):
            raise DivergedError(
                f"gradient descent with learning rate {learning_rate:g} left the range of numbers; lower "
                "method.learning_rate: it must stay below 2 over the largest eigenvalue of the Hessian"
            )
        return w

    def proximal_solve(self, w: Tensor, proximal: float) -> Tensor:
        """Compute argmin over V of F_j(V) + (proximal/2) |V - W|², shape (M, C): FedProx's local problem.

        Args:
            w: The global weights, shape (M, C).
            proximal: At least 0; 0 gives the client's own solution.
        """
        return self._solve_shifted(torch.add(self.moment(), w, alpha=proximal), self.ridge + proximal)

    def _batch_gradient(self, w: Tensor, rows: Tensor) -> Tensor:
        z = self._rows.take(rows)
        residual = torch.addmm(self._y[rows], z, w, beta=-1.0)
        return torch.addmm(w, z.T, residual, beta=self.ridge, alpha=1.0 / rows.shape[0])

    def add_sums(self, gram: Tensor, moment: Tensor) -> None:
        """Add Z'Z to the upper triangle of one matrix, (M, M), and Z'Y to another, (M, C): pooled rows' sums.

        Below the diagonal of the first anything may stand afterwards.
        """
        moment.add_(self.moment(), alpha=self.num_rows)
        if not self._dual:
            self._gram_matrix().add_to(gram, self.num_rows)
        elif self.num_rows:
            GramSum.onto(gram).add(self._z)

    @property
    def _z(self) -> Tensor:
        """All features, of the dual form."""
        if self._whole is None:
            self._whole = self._rows.whole()
        return self._whole

    def _gram_matrix(self) -> ShiftedGram:
        """Z'Z/n, or ZZ'/n in the dual form; what they have of eigenvalues above 0 is the same."""
        if self._gram is None:
            self._sum_up()
        assert self._gram is not None  # noqa: S101  # it was made just now
        return self._gram

    def _sum_up(self) -> None:
        """One pass over the rows for all sums over them."""
        if self._sums is not None:
            self._gram, self._moment = self._sums()
            return
        rows, y = self._rows, self._y
        gram = GramSum(self.num_rows if self._dual else rows.shape[1], rows.dtype, rows.device)
        if self._dual:
            gram.add(self._z.T)
        else:
            moment = torch.zeros(rows.shape[1], y.shape[1], dtype=rows.dtype, device=rows.device)
            start = 0
            for z in rows.blocks():
                gram.add(z)
                moment.addmm_(z.T, y[start : start + len(z)])
                start += len(z)
            self._moment = moment.mul_(self._per_row)
        self._gram = gram.done(self._per_row)

    def _solve_gram(self, b: Tensor, shift: float) -> Tensor:
        name = "ZZ'/n + ridge I" if self._dual else "local Hessian Z'Z/n + ridge I"
        return self._gram_matrix().solve(b, shift, f"{name} (ridge {shift:g}, {self.num_rows} rows)")

    def _solve_shifted(self, b: Tensor, shift: float) -> Tensor:
        """(Z'Z/n + shift I)⁻¹ b."""
        if not self._dual:
            return self._solve_gram(b, shift)
        x = self._woodbury(b, shift)
        # Woodbury subtracts nearly equal numbers where b lies in the rows' span; one step of refinement restores them.
        return x.add_(self._woodbury(b - self._shifted_product(x, shift), shift))

    def _woodbury(self, b: Tensor, shift: float) -> Tensor:
        inner = self._solve_gram(self._z @ b, shift)
        return torch.addmm(b, self._z.T, inner, alpha=-self._per_row).div_(shift)

    def _shifted_product(self, v: Tensor, shift: float) -> Tensor:
        if self._dual:
            return torch.addmm(v, self._z.T, self._z @ v, beta=shift, alpha=self._per_row)
        return self._gram_matrix().product(v, shift)


def uses_rows(num_rows: int, num_features: int) -> bool:
    """Whether a problem keeps its n x M features and works with an n x n matrix, instead of an M x M one."""
    return 2 * num_rows <= num_features


def ridge_bytes(num_rows: int, num_features: int) -> int:
    """Bytes that `LocalRidge` takes for its matrices in float64, whatever is asked of it but batches of rows."""
    if uses_rows(num_rows, num_features):
        return 8 * num_rows * (num_features + num_rows)
    return 8 * num_features**2
