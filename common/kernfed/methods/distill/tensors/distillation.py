"""Kernel ridge regression that learns from own rows and from a consensus on public points.

The equations are those of Park, Hong & Hwang, "Towards understanding ensemble distillation in federated learning"
(2023), called the distillation paper below. N own rows (X, Y), N_p public points X_p with targets W, C outputs:

    min over f of α/N Σ |f(x_i) - y_i|² + (1-α)/N_p Σ |f(x_p) - w_p|² + λ |f|²

Everything is float64 and stays on the device of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.errors import DataError
from kernfed.features.kernels import KernelSpec
from kernfed.methods.distill.alpha import check_alpha
from kernfed.tensors.in_place import factor_in_place, solve_rows_in_place, subtract_square
from kernfed.tensors.kernels import gram, lower_gram
from kernfed.tensors.linalg import cholesky


@dataclass(frozen=True, slots=True)
class KernelModel:
    """f(x) = Σ_i k(x, x_i) c_i."""

    kernel: KernelSpec
    points: Tensor
    """(n, d)."""
    coefficients: Tensor
    """(n, C)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Predict, shape (m, C), for points of shape (m, d); no (m, n) matrix is formed for many points."""
        step = max(1, (1 << 22) // max(1, len(self.points)))
        parts = [gram(self.kernel, rows, self.points) @ self.coefficients for rows in torch.split(x, step)]
        return torch.cat(parts) if parts else self.coefficients.new_empty(0, self.coefficients.shape[1])


def kernel_ridge(kernel: KernelSpec, x: Tensor, y: Tensor, ridge: float) -> KernelModel:
    """Fit own rows alone: c = (K + N λ I)⁻¹ Y.

    Args:
        kernel: The kernel.
        x: Rows, (N, d).
        y: Targets, (N, C).
        ridge: λ, above 0.

    Raises:
        NotPositiveDefiniteError: The ridge is too small for the kernel.

    Source: distillation paper, line 3 of Algorithm 1.
    """
    system = lower_gram(kernel, x, x.new_empty(len(x), len(x)))
    system.diagonal().add_(len(x) * ridge)
    factor = factor_in_place(system, name=f"K + N λ I (ridge {ridge:g})")
    half = solve_rows_in_place(factor, y.clone(memory_format=torch.contiguous_format))
    return KernelModel(kernel, x, solve_rows_in_place(factor, half, transposed=True))


def distil(
    kernel: KernelSpec, x: Tensor, y: Tensor, public: Tensor, targets: Tensor, ridge: float, alpha: float
) -> KernelModel:
    """Fit own rows and targets of public points, by one solve of all.

    c = D^1/2 (λ I + D^1/2 K D^1/2)⁻¹ D^1/2 [Y; W] with D = diag(α/N, ..., (1-α)/N_p, ...), the symmetric form of the
    paper's equation (12). `DistilledRidge` gives the same for many targets at the price of one product each.

    Args:
        kernel: The kernel.
        x: Own rows, (N, d).
        y: Their targets, (N, C).
        public: Public points, (N_p, d).
        targets: Their targets W, (N_p, C).
        ridge: λ, above 0.
        alpha: Weight α of own rows, between 0 and 1.

    Raises:
        ConfigError: α is at an end or outside.
        NotPositiveDefiniteError: The ridge is too small for the kernel.
    """
    check_alpha(alpha)
    points = torch.cat([x, public])
    root = torch.cat(
        [x.new_full((len(x), 1), math.sqrt(alpha / len(x))), x.new_full((len(public), 1), _root_share(alpha, public))]
    )
    system = gram(kernel, points).mul_(root).mul_(root.T)
    system.diagonal().add_(ridge)
    solved = cholesky(system, name=f"λ I + D^1/2 K D^1/2 (ridge {ridge:g})").solve(root * torch.cat([y, targets]))
    return KernelModel(kernel, points, root * solved)


class DistilledRidge:
    """One client's side of iterative distillation: factored once, then each round is one N_p x N_p product.

    With a = α/N, b = (1-α)/N_p, B = λ I + b K_pp = L L', T = L⁻¹ K_pX and the Schur complement
    S = λ I + a K_XX - a b T'T, the predictions on the public points of the model distilled from W are A W + A_0 with

        A = I - λ L'⁻¹ (I + a b T S⁻¹ T') L⁻¹        A_0 = λ a L'⁻¹ T S⁻¹ Y

    A is symmetric with eigenvalues between 0 and 1. Kept are S⁻¹T' (N, N_p) and three matrices (N_p, N_p); S itself is
    factored in its own memory and dropped.

    Source: equation (12) of the distillation paper, by block elimination.
    """

    def __init__(self, kernel: KernelSpec, x: Tensor, y: Tensor, public: Tensor, ridge: float, alpha: float) -> None:
        """Factor.

        Args:
            kernel: The kernel.
            x: Own rows, float64 (N, d).
            y: Their targets, (N, C).
            public: Public points, (N_p, d).
            ridge: λ, above 0.
            alpha: Weight α of own rows, between 0 and 1.

        Raises:
            ConfigError: α is at an end or outside.
            DataError: There are no rows or no public points.
            NotPositiveDefiniteError: The ridge is too small for the kernel.
        """
        check_alpha(alpha)
        if len(x) == 0 or len(public) == 0:
            raise DataError(f"{len(x)} own rows and {len(public)} public points; distillation needs both")
        self._kernel, self._x, self._public = kernel, x, public
        self._a, self._b, self._ridge = alpha / len(x), (1.0 - alpha) / len(public), ridge
        common = gram(kernel, public).mul_(self._b)
        common.diagonal().add_(ridge)
        self._factor = cholesky(common, name=f"λ I + (1-α)/N_p K_pp (ridge {ridge:g})").factor
        del common
        t = self._half_solved_rows()
        schur = lower_gram(kernel, x, x.new_empty(len(x), len(x))).mul_(self._a)
        subtract_square(schur, t, self._a * self._b)
        schur.diagonal().add_(ridge)
        lower = factor_in_place(schur, name=f"Schur complement of the own rows (ridge {ridge:g})")
        half = solve_rows_in_place(lower, y.clone(memory_format=torch.contiguous_format))
        self._own = solve_rows_in_place(lower, half, transposed=True)  # S⁻¹ Y
        q = solve_rows_in_place(lower, t)
        inner = q.T @ q  # T S⁻¹ T'
        self._cross = solve_rows_in_place(lower, q, transposed=True)  # S⁻¹ T'
        del schur, lower, q, t
        inner.mul_(self._a * self._b).diagonal().add_(1.0)
        left = torch.linalg.solve_triangular(self._factor.mT, inner, upper=True)
        self._map = torch.linalg.solve_triangular(self._factor, left, upper=False, left=False).mul_(-ridge)
        self._map.diagonal().add_(1.0)
        offset = self._cross.T @ y
        self._offset = torch.linalg.solve_triangular(self._factor.mT, offset, upper=True).mul_(ridge * self._a)

    @property
    def affine_map(self) -> tuple[Tensor, Tensor]:
        """A (N_p, N_p) and A_0 (N_p, C): predictions on the public points are A W + A_0."""
        return self._map, self._offset

    def predict_public(self, targets: Tensor) -> Tensor:
        """Predictions on the public points, (N_p, C), of the model distilled from targets W, (N_p, C)."""
        return torch.addmm(self._offset, self._map, targets)

    def model(self, targets: Tensor) -> KernelModel:
        """The model distilled from targets W, (N_p, C); agrees with `distil`."""
        half = torch.linalg.solve_triangular(self._factor, targets, upper=False)
        own = (self._own - self._b * (self._cross @ half)).mul_(self._a)
        # By the second block row of the system: no kernel is computed again.
        public = (targets - self.predict_public(targets)).mul_(self._b / self._ridge)
        return KernelModel(self._kernel, torch.cat([self._x, self._public]), torch.cat([own, public]))

    def _half_solved_rows(self) -> Tensor:
        """T' = K_Xp L'⁻¹, (N, N_p), in blocks."""
        t = self._x.new_empty(len(self._x), len(self._public))
        step = max(64, (1 << 22) // len(self._public))
        for rows, block in zip(torch.split(self._x, step), torch.split(t, step), strict=True):
            k = gram(self._kernel, rows, self._public)
            block.copy_(torch.linalg.solve_triangular(self._factor.mT, k, upper=True, left=False))
        return t


def memory_needed(num_rows: int, num_public: int, num_columns: int, num_outputs: int) -> int:
    """Bytes that `DistilledRidge` needs at its peak, from above: N² + N N_p + 6 N_p² numbers, and blocks."""
    numbers = num_rows**2 + num_rows * num_public + 6 * num_public**2
    numbers += (num_rows + num_public) * (2 * num_columns + 4 * num_outputs)
    return 8 * numbers + (160 << 20)


def check_memory(needed: int, limit: int, num_rows: int, num_public: int) -> None:
    """Refuse before the machine dies.

    Args:
        needed: Bytes, from `memory_needed`.
        limit: Bytes that may be used.
        num_rows: Own rows N.
        num_public: Public points N_p.

    Raises:
        DataError: The estimate exceeds the limit; says what would fit.
    """
    if needed <= limit:
        return
    left = limit - (160 << 20) - 48 * num_public**2
    fits = int(max(0.0, (math.sqrt(num_public**2 + max(0, left) / 2) - num_public) / 2))
    # N² + N N_p = left/8 has the root (sqrt(N_p² + left/2) - N_p)/2.
    advice = (
        f"about {fits} rows would fit: give this client fewer training rows, or let its administrator raise "
        "max_memory_bytes of the client file or name a model in [models] that needs less"
        if fits > 0
        else "use fewer public points, or a machine with more memory"
    )
    raise DataError(
        f"exact kernel ridge regression on {num_rows} rows and {num_public} public points needs about "
        f"{needed / 2**30:.1f} GiB, and {limit / 2**30:.1f} GiB may be used here; {advice}"
    )


def _root_share(alpha: float, public: Tensor) -> float:
    return math.sqrt((1.0 - alpha) / len(public))
