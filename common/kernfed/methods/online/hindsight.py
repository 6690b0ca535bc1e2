"""The best function in hindsight, which regret is measured against: of one kernel, for the rows of all clients.

N kernels with F features each, f_i = θ_i'z_i, and the squared loss: sums over rows say all about it. Of the logistic
loss such sums are at given parameters, and at parameters of the coordinator's choice they would tell single rows. The
function of the paper lies in the kernel's space, which no sums over rows reach; this one is of its random features.

Source: Ghari & Shen (2022), equation (12) and Theorem 2.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.triangles import pack, packed_size, unpack

_NOISE = 1e-10
"""Of the largest eigenvalue of a Gram matrix; along directions below it the function stays 0."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What a client's rows say of each kernel's function."""

    gram: Floats
    """Σ z_i z_i' as triangles, (N, F (F + 1)/2)."""
    moment: Floats
    """Σ y z_i, (N, F)."""
    square: float
    """Σ y²."""

    def __add__(self, other: Sums) -> Sums:
        """Sums over both one's rows."""
        return Sums(self.gram + other.gram, self.moment + other.moment, self.square + other.square)

    def loss(self, kernel: int, theta: Floats) -> float:
        """Σ (θ'z - y)² of a kernel's function."""
        gram, moment = unpack(self.gram[kernel], len(theta)), self.moment[kernel]
        return max(self.square - 2.0 * float(theta @ moment) + float(theta @ gram @ theta), 0.0)

    @staticmethod
    def none(num_kernels: int, num_features: int) -> Sums:
        """Over no rows."""
        return Sums(np.zeros((num_kernels, packed_size(num_features))), np.zeros((num_kernels, num_features)), 0.0)

    @staticmethod
    def of(z: Floats, y: Floats) -> Sums:
        """Over rows with features (n, N, F) and targets (n,)."""
        gram = np.stack([pack(z[:, k].T @ z[:, k]) for k in range(z.shape[1])])
        return Sums(gram, np.einsum("n,nkf->kf", y, z), float(y @ y))


@dataclass(frozen=True, slots=True)
class BestFunction:
    """The function of least squared loss over the rows of all clients, of the kernel that has the least."""

    kernel: int
    theta: Floats
    """(F,)."""
    losses: Mapping[str, float]
    """Total loss at each client."""

    @property
    def loss(self) -> float:
        """Over the rows of all clients."""
        return sum(self.losses.values())


def least_penalised(total: Sums, weight: float) -> float:
    """min_i min_θ Σ (θ'z_i - y)² + weight |θ|², for a weight above 0."""
    values = []
    for triangle, moment in zip(total.gram, total.moment, strict=True):
        gram = unpack(triangle, len(moment)) + weight * np.eye(len(moment))
        values.append(total.square - float(moment @ np.linalg.solve(gram, moment)))
    return max(min(values), 0.0)


def pooled(parts: Mapping[str, Sums]) -> Sums:
    """Over the rows of all clients, one at least."""
    return functools.reduce(operator.add, parts.values())


def best_function(parts: Mapping[str, Sums]) -> BestFunction:
    """Find it.

    Args:
        parts: Of each client, one at least.
    """
    total = pooled(parts)
    solved = [_least_squares(triangle, moment) for triangle, moment in zip(total.gram, total.moment, strict=True)]
    losses = [total.loss(k, theta) for k, theta in enumerate(solved)]
    k = int(np.argmin(losses))
    return BestFunction(k, solved[k], {client: part.loss(k, solved[k]) for client, part in parts.items()})


def _least_squares(triangle: Floats, moment: Floats) -> Floats:
    values, vectors = np.linalg.eigh(unpack(triangle, len(moment)))
    kept = values > _NOISE * max(values[-1], 0.0)
    basis = vectors[:, kept]
    theta: Floats = basis @ ((basis.T @ moment) / values[kept])
    return theta


@dataclass(frozen=True, slots=True)
class Rates:
    """Numbers of a job with the paper's rates that Theorem 2 speaks of."""

    learning_rate: float
    """η."""
    least_probability: float
    """ξ/m, with which a kernel is drawn at least."""


_SLOPE = 2.0
"""L of Theorem 2 for the squared loss: losses in [0, 1] have slopes of at most 2, and features norm 1."""


def theorem_2(
    rates: Rates,
    parts: Mapping[str, Sums],
    best: BestFunction,
    num_rows: Mapping[str, int],
    rounds: int,
    clients: Mapping[str, float | None],
) -> float | None:
    """Bound of the regret against the best function: (14) without the error of random features, ε L K T C.

    It holds in expectation over the draws of kernels, for losses in [0, 1]. (14) holds for each θ of each kernel, in
    the place of f* and C; here it is that of the least sum of what θ costs and what it is worse than f*. A round of n
    rows counts n times.

    Args:
        rates: Of the job.
        parts: Of each client.
        best: Of these.
        num_rows: Of each client; all must have the same, n in each round.
        rounds: T.
        clients: Bound of each client's regret against its best kernel, (13); None: there is none.

    Returns:
        None: it says nothing of this job.
    """
    own = list(clients.values())
    counts = set(num_rows.values())
    if len(counts) != 1 or not rounds or any(bound is None for bound in own):
        return None
    rows, K = counts.pop(), len(num_rows)
    if rows % rounds:
        return None
    eta, per_round = rates.learning_rate, rows // rounds
    away = least_penalised(pooled(parts), per_round * K / (2.0 * eta)) - best.loss
    draws = per_round * eta / 2.0 * rounds * K * _SLOPE**2 / rates.least_probability
    return max(away, 0.0) + draws + sum(bound for bound in own if bound is not None)
