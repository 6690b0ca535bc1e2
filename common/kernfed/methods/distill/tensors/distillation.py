"""Kernel ridge regression that learns from own rows and from a consensus on public points.

The equations are those of Park, Hong & Hwang, "Towards understanding ensemble distillation in federated learning"
(2023), called the distillation paper below. N own rows (X, Y), N_p public points X_p with targets W, C outputs:

    min over f of α/N Σ |f(x_i) - y_i|² + (1-α)/N_p Σ |f(x_p) - w_p|² + λ |f|²

With a free intercept f = g + b, and the penalty is λ |g|²: a constant costs nothing. The coefficients of g sum to 0.
With M the matrix of the problem and s = M⁻¹ 1 they are c = M⁻¹ (t - b 1), and b = s't / s'1.

Everything is float64 and stays on the device of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.arrays import Integers
from kernfed.errors import DataError
from kernfed.features.kernels import KernelSpec
from kernfed.memory import require_bytes
from kernfed.methods.distill.alpha import check_alpha
from kernfed.methods.distill.tensors.held_out import LeftOut, left_out
from kernfed.tensors.in_place import factor_in_place, solve_rows_in_place, subtract_square
from kernfed.tensors.kernels import gram, lower_gram
from kernfed.tensors.linalg import cholesky

_ROWS = torch.contiguous_format


@dataclass(frozen=True, slots=True)
class KernelModel:
    """f(x) = b + Σ_i k(x, x_i) c_i."""

    kernel: KernelSpec
    points: Tensor
    """(n, d)."""
    coefficients: Tensor
    """(n, C)."""
    offset: Tensor | None = None
    """b, (C,); None: 0. It costs nothing."""
    penalties: Tensor | None = None
    """What each point's kernel value had added in the problem that c solves, (n,); None: it is not known."""

    def __call__(self, x: Tensor) -> Tensor:
        """Predict, shape (m, C), for points of shape (m, d); no (m, n) matrix is formed for many points."""
        step = max(1, (1 << 22) // max(1, len(self.points)))
        parts = [gram(self.kernel, rows, self.points) @ self.coefficients for rows in torch.split(x, step)]
        return self.shifted(torch.cat(parts) if parts else self.coefficients.new_empty(0, self.coefficients.shape[1]))

    def shifted(self, values: Tensor) -> Tensor:
        """Add b to what the kernel gives, shape (m, C)."""
        return values if self.offset is None else values + self.offset


def kernel_ridge(kernel: KernelSpec, x: Tensor, y: Tensor, ridge: float, *, free: bool = False) -> KernelModel:
    """Fit own rows alone: c = (K + N λ I)⁻¹ Y.

    Args:
        kernel: The kernel.
        x: Rows, (N, d).
        y: Targets, (N, C).
        ridge: λ, above 0.
        free: Whether there is an intercept that costs nothing.

    Raises:
        NotPositiveDefiniteError: The ridge is too small for the kernel.

    Source: distillation paper, line 3 of Algorithm 1.
    """
    factor = own_factor(kernel, x, ridge)
    centre = y.mean(dim=0)
    half = solve_rows_in_place(factor, (_with_ones(y - centre) if free else y).clone(memory_format=_ROWS))
    solved = solve_rows_in_place(factor, half, transposed=True)
    penalties = x.new_full((len(x),), len(x) * ridge)
    if not free:
        return KernelModel(kernel, x, solved, penalties=penalties)
    coefficients, offset = free_intercept(solved)
    return KernelModel(kernel, x, coefficients, offset + centre, penalties)


def leave_out(kernel: KernelSpec, x: Tensor, y: Tensor, ridge: float, unit: Integers, *, free: bool) -> LeftOut:
    """Predict each row by the `kernel_ridge` that saw no row of its unit.

    Args:
        kernel: The kernel.
        x: Rows, (N, d), of at least 2 units with a free intercept.
        y: Targets, (N, C).
        ridge: λ; the penalty stays N λ where rows are left out.
        unit: Which rows are left out together, (N,); see `kernfed.maths.folds.units`.
        free: Whether there is an intercept that costs nothing.

    Raises:
        NotPositiveDefiniteError: The ridge is too small for the kernel.
    """
    factor = own_factor(kernel, x, ridge)
    half = solve_rows_in_place(factor, _with_ones(y - y.mean(dim=0) if free else y))
    solved = solve_rows_in_place(factor, half, transposed=True)
    if not free:
        return left_out(solved[:, :-1], factor, unit, len(x) * ridge)
    ones = solved[:, -1]
    return left_out(free_intercept(solved)[0], factor, unit, len(x) * ridge, ones=ones / ones.sum().sqrt())


def own_factor(kernel: KernelSpec, x: Tensor, ridge: float) -> Tensor:
    """Cholesky factor of K + N λ I, as `kernfed.tensors.in_place.factor_in_place` leaves it, (N, N)."""
    system = lower_gram(kernel, x, x.new_empty(len(x), len(x)))
    system.diagonal().add_(len(x) * ridge)
    return factor_in_place(system, name=f"K + N λ I (ridge {ridge:g})")


def free_intercept(solved: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients (n, C) that sum to 0, and the intercept b, (C,).

    Args:
        solved: M⁻¹ [T, 1], (n, C + 1).
    """
    ones = solved[:, -1:]
    offset = solved[:, :-1].sum(dim=0) / ones.sum()
    return solved[:, :-1] - ones * offset, offset


def distil(
    kernel: KernelSpec,
    x: Tensor,
    y: Tensor,
    public: Tensor,
    targets: Tensor,
    ridge: float,
    alpha: float,
    *,
    free: bool = False,
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
        free: Whether there is an intercept that costs nothing.

    Raises:
        ConfigError: α is at an end or outside.
        NotPositiveDefiniteError: The ridge is too small for the kernel.
    """
    check_alpha(alpha)
    points, wanted = torch.cat([x, public]), torch.cat([y, targets])
    root = torch.cat(
        [x.new_full((len(x), 1), math.sqrt(alpha / len(x))), x.new_full((len(public), 1), _root_share(alpha, public))]
    )
    system = gram(kernel, points).mul_(root).mul_(root.T)
    system.diagonal().add_(ridge)
    factor = cholesky(system, name=f"λ I + D^1/2 K D^1/2 (ridge {ridge:g})")
    centre = y.mean(dim=0)
    solved = root * factor.solve(root * (_with_ones(wanted - centre) if free else wanted))
    penalties = ridge / root[:, 0].square()
    if not free:
        return KernelModel(kernel, points, solved, penalties=penalties)
    coefficients, offset = free_intercept(solved)
    return KernelModel(kernel, points, coefficients, offset + centre, penalties)


class DistilledRidge:
    """One client's side of iterative distillation: factored once, then each round is one N_p x N_p product.

    With a = α/N, b = (1-α)/N_p, B = λ I + b K_pp = L L', T = L⁻¹ K_pX and the Schur complement
    S = λ I + a K_XX - a b T'T, the predictions on the public points of the model distilled from W are A W + A_0 with

        A = I - λ L'⁻¹ (I + a b T S⁻¹ T') L⁻¹        A_0 = λ a L'⁻¹ T S⁻¹ Y

    A is symmetric with eigenvalues between 0 and 1. Kept are S⁻¹T' (N, N_p) and three matrices (N_p, N_p); S itself is
    factored in its own memory and dropped. A free intercept adds to A a matrix of rank 1, and the solution for targets
    that are all 1 is kept.

    Source: equation (12) of the distillation paper, by block elimination.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        x: Tensor,
        y: Tensor,
        public: Tensor,
        ridge: float,
        alpha: float,
        *,
        free: bool = False,
    ) -> None:
        """Factor.

        Args:
            kernel: The kernel.
            x: Own rows, float64 (N, d).
            y: Their targets, (N, C).
            public: Public points, (N_p, d).
            ridge: λ, above 0.
            alpha: Weight α of own rows, between 0 and 1.
            free: Whether there is an intercept that costs nothing.

        Raises:
            ConfigError: α is at an end or outside.
            DataError: There are no rows or no public points.
            NotPositiveDefiniteError: The ridge is too small for the kernel.
        """
        check_alpha(alpha)
        if len(x) == 0 or len(public) == 0:
            raise DataError(f"{len(x)} own rows and {len(public)} public points; distillation needs both")
        self._kernel, self._x, self._public, self._free = kernel, x, public, free
        self._a, self._b, self._ridge = alpha / len(x), (1.0 - alpha) / len(public), ridge
        self._centre = y.mean(dim=0) if free else torch.zeros_like(y[0])
        y = _with_ones(y - self._centre) if free else y
        common = gram(kernel, public).mul_(self._b)
        common.diagonal().add_(ridge)
        self._factor = cholesky(common, name=f"λ I + (1-α)/N_p K_pp (ridge {ridge:g})").factor
        del common
        t = self._half_solved_rows()
        lower = self._schur_factor(t)
        half = solve_rows_in_place(lower, y.clone(memory_format=_ROWS))
        self._own = solve_rows_in_place(lower, half, transposed=True)  # S⁻¹ Y
        q = solve_rows_in_place(lower, t)
        inner = q.T @ q  # T S⁻¹ T'
        self._cross = solve_rows_in_place(lower, q, transposed=True)  # S⁻¹ T'
        del lower, q, t
        inner.mul_(self._a * self._b).diagonal().add_(1.0)
        left = torch.linalg.solve_triangular(self._factor.mT, inner, upper=True)
        self._map = torch.linalg.solve_triangular(self._factor, left, upper=False, left=False).mul_(-ridge)
        self._map.diagonal().add_(1.0)
        offset = self._cross.T @ y
        self._offset = torch.linalg.solve_triangular(self._factor.mT, offset, upper=True).mul_(ridge * self._a)
        if free:
            self._free_intercept(y)

    @property
    def affine_map(self) -> tuple[Tensor, Tensor]:
        """A (N_p, N_p) and A_0 (N_p, C): predictions on the public points are A W + A_0."""
        return self._map, self._offset + self._centre - torch.outer(self._map.sum(dim=1), self._centre)

    def predict_public(self, targets: Tensor) -> Tensor:
        """Predictions on the public points, (N_p, C), of the model distilled from targets W, (N_p, C)."""
        return torch.addmm(self._offset, self._map, targets - self._centre) + self._centre

    def model(self, targets: Tensor) -> KernelModel:
        """The model distilled from targets W, (N_p, C); agrees with `distil`."""
        points = torch.cat([self._x, self._public])
        shares = points.new_full((len(points),), self._a)
        shares[len(self._x) :] = self._b
        penalties = self._ridge / shares
        targets = targets - self._centre
        if not self._free:
            return KernelModel(self._kernel, points, self._coefficients(targets), penalties=penalties)
        coefficients, offset = free_intercept(self._coefficients(_with_ones(targets)))
        return KernelModel(self._kernel, points, coefficients, offset + self._centre, penalties)

    def leave_out(self, targets: Tensor, unit: Integers) -> LeftOut:
        """Predict each own row by the model that saw no row of its unit; factors S once more.

        Args:
            targets: W, (N_p, C), which stay as they are.
            unit: Which own rows are left out together, (N,).
        """
        n = len(self._x)
        factor = self._schur_factor(self._half_solved_rows())
        ones = self._ones[:n, 0] / self._ones.sum().sqrt() if self._free else None
        own = self.model(targets).coefficients[:n]
        return left_out(own, factor, unit, self._ridge / self._a, scale=self._a, ones=ones)

    def _free_intercept(self, y: Tensor) -> None:
        """Let the affine map hold the intercept, from that of targets with a last column of ones."""
        ones = torch.ones_like(self._map[:, :1])
        self._ones = self._coefficients(_with_ones(y.new_zeros(len(self._public), y.shape[1] - 1)))[:, -1:]
        missed = (ones - self._map @ ones - self._offset[:, -1:]) / self._ones.sum()
        own, public = self._ones[: len(self._x)], self._ones[len(self._x) :]
        self._offset = self._offset[:, :-1] + missed @ (own.T @ y[:, :-1])
        self._map.addmm_(missed, public.T)

    def _coefficients(self, targets: Tensor) -> Tensor:
        """M⁻¹ [Y; W], (N + N_p, C), for targets W, (N_p, C), with a last column of ones where Y has one."""
        half = torch.linalg.solve_triangular(self._factor, targets, upper=False)
        own = (self._own - self._b * (self._cross @ half)).mul_(self._a)
        # Not from W less its predictions: where the two nearly agree, no digit would be left.
        step = max(1, (1 << 22) // len(self._public))
        parts = zip(torch.split(self._x, step), torch.split(own, step), strict=True)
        across = sum((gram(self._kernel, self._public, rows) @ c for rows, c in parts), torch.zeros_like(targets))
        return torch.cat([own, torch.cholesky_solve(targets - across, self._factor).mul_(self._b)])

    def _schur_factor(self, t: Tensor) -> Tensor:
        schur = lower_gram(self._kernel, self._x, self._x.new_empty(len(self._x), len(self._x))).mul_(self._a)
        subtract_square(schur, t, self._a * self._b)
        schur.diagonal().add_(self._ridge)
        return factor_in_place(schur, name=f"Schur complement of the own rows (ridge {self._ridge:g})")

    def _half_solved_rows(self) -> Tensor:
        """T' = K_Xp L'⁻¹, (N, N_p), in blocks."""
        t = self._x.new_empty(len(self._x), len(self._public))
        step = max(64, (1 << 22) // len(self._public))
        for rows, block in zip(torch.split(self._x, step), torch.split(t, step), strict=True):
            k = gram(self._kernel, rows, self._public)
            block.copy_(torch.linalg.solve_triangular(self._factor.mT, k, upper=True, left=False))
        return t


def memory_needed(num_rows: int, num_public: int, num_columns: int, num_outputs: int) -> int:
    """Bytes that a client needs at its peak, from above: N² + N N_p + 7 N_p² numbers, and blocks.

    The peak is that of `DistilledRidge`, beside which the eigenvectors of K_pp are kept.
    """
    numbers = num_rows**2 + num_rows * num_public + 7 * num_public**2
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
    left = limit - (160 << 20) - 56 * num_public**2
    fits = int(max(0.0, (math.sqrt(num_public**2 + max(0, left) / 2) - num_public) / 2))
    # N² + N N_p = left/8 has the root (sqrt(N_p² + left/2) - N_p)/2.
    advice = (
        f"about {fits} rows would fit: give this client fewer training rows, or let its administrator raise "
        "max_memory_bytes of the client file or name a model in [models] that needs less"
        if fits > 0
        else "use fewer public points, or a machine with more memory"
    )
    what = f"exact kernel ridge regression on {num_rows} rows and {num_public} public points"
    require_bytes(needed, what, advice, limit)


def _with_ones(targets: Tensor) -> Tensor:
    """Targets (n, C) and a last column of ones."""
    return torch.cat([targets, targets.new_ones(len(targets), 1)], dim=1)


def _root_share(alpha: float, public: Tensor) -> float:
    return math.sqrt((1.0 - alpha) / len(public))
