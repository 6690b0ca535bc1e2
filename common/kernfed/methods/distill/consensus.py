"""The coordinator's half of ensemble distillation: averages, de-regularisation, memory, and what may be said of limits.

numpy alone: V is the consensus, shape (N_p, C), that is N_p public points and C outputs. The distillation paper is
Park, Hong & Hwang, "Towards understanding ensemble distillation in federated learning" (2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigh

from kernfed.arrays import Floats
from kernfed.errors import NumericalError

AffineMaps = Sequence[tuple[Floats, Floats]]
"""Of each client: A (N_p, N_p) and A_0 (N_p, C); see
`kernfed.methods.distill.tensors.distillation.DistilledRidge.affine_map`."""


class Deregulariser:
    """Undoes the shrinkage that a round of distillation adds: W = V + N_p λ₀ K_pp⁻¹ V.

    By one Cholesky factor of K_pp and no jitter: condition numbers up to 1e10 and more are benign here, for V is (close
    to) what K_pp makes of moderate coefficients. Where public points repeat, or lie so close that K_pp is singular to
    working precision, its eigenvectors with eigenvalues above N_p · eps · the largest span what is inverted; on the
    rest W = V.

    With a free intercept, which a round does not shrink, what is inverted is a fit with one: W = V + N_p λ₀ c with
    K_pp c + b 1 = V and 1'c = 0.

    Attributes:
        rank: Dimension that is inverted: N_p, or less where K_pp is singular.

    Source: distillation paper, equation (7).
    """

    def __init__(self, gram: Floats, ridge: float, *, free: bool = False) -> None:
        """Factor.

        Args:
            gram: K_pp, (N_p, N_p).
            ridge: λ₀, at least 0; the paper takes the clients' λ.
            free: Whether the clients' models have an intercept that costs nothing.

        Raises:
            NumericalError: The matrix holds NaN or infinity.
        """
        if not np.isfinite(gram).all():
            raise NumericalError("the kernel matrix of the public points holds NaN or infinity; check the points")
        self.rank = len(gram)
        self._free = free
        self._scale = len(gram) * ridge
        self._factor: tuple[Floats, bool] | None = None
        self._vectors: Floats | None = None
        eps = float(np.finfo(np.float64).eps)
        try:
            factor, lower = cho_factor(gram, lower=True)
            pivots = np.diagonal(factor)
            if pivots.min() ** 2 > len(gram) * eps * pivots.max() ** 2:
                self._factor = factor, lower
                return
        except LinAlgError:
            pass
        values, vectors = eigh(gram)
        kept = values > len(gram) * eps * values[-1]
        self.rank = int(kept.sum())
        self._vectors = vectors[:, kept]
        self._values = values[kept]

    def __call__(self, consensus: Floats) -> Floats:
        """W, (N_p, C), for V, (N_p, C)."""
        if not self._free:
            return consensus + self._scale * self._solve(consensus)
        ones = np.ones((len(consensus), 1))
        solved = self._solve(np.hstack([consensus - consensus.mean(axis=0), ones]))
        offset = solved[:, :-1].sum(axis=0) / solved[:, -1].sum()
        found: Floats = consensus + self._scale * (solved[:, :-1] - solved[:, -1:] * offset)
        return found

    def _solve(self, right: Floats) -> Floats:
        found: Floats
        if self._factor is not None:
            found = cho_solve(self._factor, right)
        else:
            assert self._vectors is not None  # noqa: S101  # made where there is no factor
            found = self._vectors @ ((self._vectors.T @ right) / self._values[:, None])
        return found


def mean_predictions(predictions: Sequence[Floats]) -> Floats:
    """Mean over clients, each counting once, added in the order given; shapes (N_p, C)."""
    total = np.array(predictions[0], dtype=np.float64)
    for part in predictions[1:]:
        total += part
    return total / len(predictions)


def remember(before: Floats | None, new: Floats, round_num: int, exponent: float) -> Floats:
    """V ← (1 - γ) V_old + γ V_new with γ = round^-exponent; the first round takes the new one.

    Source: distillation paper, Algorithm 3, line 8, and equation (52).
    """
    if before is None or exponent == 0.0:
        return new
    gamma = float(round_num) ** -exponent
    found: Floats = (1.0 - gamma) * before + gamma * new
    return found


def fixed_point(
    maps: AffineMaps, gram: Floats | None = None, ridge: float = 0.0, *, shares: Sequence[float] = ()
) -> Floats:
    """The consensus that iteration tends to, by one solve; for those who hold all clients' maps, as a simulation does.

    Args:
        maps: Of all clients.
        gram: K_pp, for the de-regularised iteration (Algorithm 2); unset: plain (Algorithm 1).
        ridge: λ₀.
        shares: What each client counts, above 0, relative to the others, as where some are drawn more often; empty: all
            the same.

    Returns:
        V with V = Ā W(V) + Ā_0, (N_p, C).

    Raises:
        NumericalError: The iteration has no single limit.

    Source: distillation paper, Theorem C.16.
    """
    mean_map, offset = _mean_map(maps, shares)
    root = None if gram is None else _root(gram, ridge)
    system = np.eye(len(offset)) - (mean_map if root is None else root @ mean_map @ root)
    right = offset if root is None else root @ offset
    try:
        factor = cholesky((system + system.T) / 2, lower=True)
        if np.diagonal(factor).min() <= 1e-12:
            raise LinAlgError("singular")
    except LinAlgError:
        raise NumericalError("the iteration has no single limit: its map has an eigenvalue of 1 or more") from None
    found: Floats = cho_solve((factor, True), right)
    if root is not None:
        found = np.asarray(np.linalg.solve(root, found), dtype=np.float64)
    return found


def spectral_radius(maps: AffineMaps, gram: Floats | None = None, ridge: float = 0.0) -> float:
    """By what a round multiplies the distance to the limit, at worst; arguments as of `fixed_point`."""
    mean_map, _ = _mean_map(maps)
    if gram is not None:
        root = _root(gram, ridge)
        mean_map = root @ mean_map @ root
    values: Floats = eigh((mean_map + mean_map.T) / 2, eigvals_only=True)
    return float(np.abs(values).max())


def _mean_map(maps: AffineMaps, shares: Sequence[float] = ()) -> tuple[Floats, Floats]:
    by = np.array(shares) * (len(maps) / np.sum(shares)) if len(shares) else np.ones(len(maps))
    found = [mean_predictions([s * pair[i] for s, pair in zip(by, maps, strict=True)]) for i in (0, 1)]
    return found[0], found[1]


def _root(gram: Floats, ridge: float) -> Floats:
    """Square root of I + N_p λ₀ K_pp⁻¹, in whose coordinates the de-regularised map is symmetric."""
    values, vectors = eigh(gram)
    floor = len(gram) * float(np.finfo(np.float64).eps) * values[-1]
    scale = np.where(values > floor, np.sqrt(1.0 + len(gram) * ridge / np.maximum(values, floor)), 1.0)
    found: Floats = (vectors * scale) @ vectors.T
    return found
