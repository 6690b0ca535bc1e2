"""How far each client's features are from those of all, and what follows for FedNewton: Δ_D and Υ of the paper.

Client j has the second moments C_j of its training rows' features, M features, and the share p_j of the rows;
C = Σ p_j C_j, H = C + λI, P = Σ p_j (C_j + λI)⁻¹. Rows stand in the place of laws: nobody knows the moments of a law.

Source: FedNewton paper, Definition 1 and Theorem 1; block power iteration (Bathe & Wilson, 1972).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats

TRIPS = 5
"""Trips of a diagnosis."""
_MOMENTS, _SOLVES = 16, 4
"""Directions for the differences of moments, and for P H."""
_NOISE = 1e-10
"""Of the largest eigenvalue of a Gram matrix; directions below it are rounding."""


@dataclass(slots=True)
class Probes:
    """A block power iteration on all C - C_j at once, and one on P H, with the same messages.

    Every number found is that of some direction, so it is a lower bound of what it stands for; with all M directions
    that of the differences is exact.
    """

    clients: tuple[str, ...]
    ridge: float
    moments: Floats
    """Orthonormal directions Q for the differences, shape (M, K)."""
    solves: Floats
    """Directions D for P H, shape (M, L)."""
    right: Floats
    """Right-hand sides of the next solve, shape (M, L): H times the D before, random numbers in the first trip."""
    found: dict[str, float] = field(default_factory=dict)
    """|(C - C_j) Q| in the operator norm, the largest of all trips, by client."""
    before: dict[str, float] = field(default_factory=dict)
    """The same before the last trip."""
    norm: float = 0.0
    """|C|, as far as it is found."""
    mean_square: float = 0.0
    """tr C."""
    _seen: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    """D, H D and P H D of each trip that is whole."""
    _pending: tuple[Floats, Floats] | None = None

    @classmethod
    def drawn(cls, seed: int, num_features: int, clients: tuple[str, ...], ridge: float) -> Probes:
        """Begin with random directions."""
        stream = rng.stream(seed, "newton", "differences")
        num_moments, num_solves = min(_MOMENTS, num_features), min(_SOLVES, num_features)
        whole = num_moments == num_features
        moments = np.eye(num_features) if whole else _orthonormal(stream.normal(num_features, num_moments))
        solves = _orthonormal(stream.normal(num_features, num_solves))
        return cls(clients, ridge, moments, solves, _orthonormal(stream.normal(num_features, num_solves)))

    @property
    def directions(self) -> Floats:
        """Z = [Q, D] of the next trip."""
        return np.concatenate([self.moments, self.solves], axis=1)

    def absorb(self, products: Mapping[str, Floats], product: Floats, solve: Floats, mean_square: float) -> None:
        """Take a trip's answers, and choose the next directions.

        Args:
            products: H_j Z by client.
            product: H Z = Σ p_j H_j Z.
            solve: P G = Σ p_j H_j⁻¹ G.
            mean_square: Σ p_j tr C_j.
        """
        width = self.moments.shape[1]
        if self._pending is not None:
            self._seen.append((*self._pending, solve))
        pooled = product[:, :width] - self.ridge * self.moments
        self.before, images = dict(self.found), [pooled]
        self.norm, self.mean_square = max(self.norm, _norm(pooled)), mean_square
        for client in self.clients:
            away = product[:, :width] - products[client][:, :width]
            self.found[client] = max(self.found.get(client, 0.0), _norm(away))
            images.append(away)
        if width < len(self.moments):
            sizes = [_norm(image) for image in images]
            weighed = [image / size for image, size in zip(images, sizes, strict=True) if size > 0]
            if weighed:
                self.moments = _leading(np.concatenate(weighed, axis=1), width)
        self._pending = (self.solves, product[:, width:])
        self.right, self.solves = product[:, width:], _orthonormal(solve)

    @property
    def largest_step(self) -> float:
        """A lower bound of the largest eigenvalue of P H, whose eigenvalues are all at least 1; 1: nothing is known."""
        if not self._seen:
            return 1.0
        d, hd, phd = (np.concatenate(parts, axis=1) for parts in zip(*self._seen, strict=True))
        scale = 1.0 / np.sqrt(np.maximum(np.einsum("mk,mk->k", d, hd), 1e-300))
        d, hd, phd = d * scale, hd * scale, phd * scale
        values, vectors = np.linalg.eigh(_symmetric(d.T @ hd))
        kept = values > _NOISE * values[-1]
        turn = vectors[:, kept] / np.sqrt(values[kept])
        return max(1.0, float(np.linalg.eigvalsh(_symmetric(turn.T @ (hd.T @ phd) @ turn))[-1]))

    @property
    def contraction(self) -> float:
        """By how much the paper's step multiplies the error in the norm of H at worst, at least: λ_max(P H) - 1."""
        return self.largest_step - 1.0

    @property
    def growth(self) -> float:
        """By which part the last trip raised a client's difference, at most."""
        return max(
            (1.0 - self.before.get(client, 0.0) / found for client, found in self.found.items() if found > 0),
            default=0.0,
        )

    def by_chance(self, share: float, num_rows: int) -> float:
        """About the difference of a client whose rows are of the law of all.

        Rows φ vary about C by E[(φφ' - C)²] ⪯ E[|φ|² φφ'], whose norm is about tr C |C|; the pooled moments hold the
        client's own.

        Args:
            share: p_j.
            num_rows: n_j.

        Source: Tropp (2012), the variance in the matrix Bernstein inequality.
        """
        return math.sqrt(self.mean_square * self.norm * max(1.0 - share, 0.0) / max(num_rows, 1))


def upsilon_part(difference: float, ridge: float) -> float:
    """(Δ/λ)(1 + Δ/λ): a client's part of Υ in Theorem 1, with rows in the place of laws (P = 1, R = 0).

    It bounds |H^½ (C_j + λI)⁻¹ (C_j - C) H^-½|, so Σ p_j of it bounds `Probes.contraction` from above.
    """
    ratio = difference / ridge
    return ratio * (1.0 + ratio)


def rows_enough(most_square: float, ridge: float, delta: float = 0.05) -> float:
    """Rows from which on the proof of Theorem 3 has Υ < 1 for clients of one law: 29 (κ² + 1) log(1/δ)/λ.

    Args:
        most_square: κ², which |φ|² nowhere exceeds.
        ridge: λ.
        delta: Probability that it does not hold.
    """
    return 29.0 * (most_square + 1.0) * math.log(1.0 / delta) / ridge


def _symmetric(a: Floats) -> Floats:
    return (a + a.T) / 2


def _norm(a: Floats) -> float:
    """Operator norm, by the small Gram matrix."""
    return math.sqrt(max(float(np.linalg.eigvalsh(a.T @ a)[-1]), 0.0))


def _leading(a: Floats, width: int) -> Floats:
    """The leading left singular vectors of A, `width` of them."""
    u, _, _ = np.linalg.svd(a, full_matrices=False)
    return np.ascontiguousarray(u[:, :width])


def _orthonormal(a: Floats) -> Floats:
    q: Floats = np.linalg.qr(a)[0]
    return q
