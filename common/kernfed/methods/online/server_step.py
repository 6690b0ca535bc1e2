"""The coordinator's step of online multi-kernel learning: one parameter vector per kernel, moved by those that sent it.

`paper_step` is equation (10) of Ghari & Shen (2022). `AdaptiveStep` takes the same sums and needs no learning rate: its
step is at most what keeps every kernel's iteration non-expansive, whatever was drawn, and falls like 1/sqrt t, scaled
by the distance travelled, once noise dominates. No theorem covers it, for the step depends on the draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Indices
from kernfed.methods.online.losses import Loss

MOST_PARAMETER = 1e9
"""Targets lie in [0, 1] and features have norm 1, so no sound parameter is larger."""

RUN_AWAY = (
    "parameters beyond {:.0e}, where targets lie between 0 and 1; lower method.learning_rate (of perfedavg also "
    'method.adaptation_rate), or use name = "online" with its default rates'
)
"""What is said of parameters that ran away."""


def sound(parameters: Floats) -> bool:
    """Whether parameters are finite and none is larger than `MOST_PARAMETER`."""
    return bool(np.abs(parameters).max(initial=0.0) <= MOST_PARAMETER)  # NaN compares as False


@dataclass(frozen=True, slots=True)
class ClientStep:
    """A client's message: gradients of its bin over the bin's probability, meant over its rows."""

    kernels: Indices
    """Numbers of the kernels, shape (B,)."""
    gradient: Floats
    """Shape (B, 2 D)."""
    num_samples: int
    """Rows behind it."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """Sums over the clients that took part."""

    gradient: Floats
    """g: the mean over all rows of the round, counting 0 where a client did not send a kernel, shape (N, 2 D)."""
    pull: Floats
    """s: sum over the clients that sent a kernel of their share of the rows over the least probability, shape (N,).
    The loss of kernel i in this round has a curvature of at most s_i times that of one row."""


def most_gradient(theta: Floats, loss: Loss, spans: float, least_probability: float, regularisation: float) -> Floats:
    """Largest norm of a gradient that rows can give for each kernel, shape (N,): features have norm 1.

    Args:
        theta: Where the gradient is taken, (N, 2 D).
        loss: Of the job.
        spans: How far beyond [0, 1] targets may lie; 0: there is no limit.
        least_probability: By which a gradient is divided at most.
        regularisation: λ of loss + λ |theta|².
    """
    norms = np.sqrt(np.square(theta).sum(axis=1))
    slope = 1.0 if loss is Loss.LOGISTIC else 2.0 * (norms + 1.0 + spans) if spans else math.inf
    most: Floats = (slope + 2.0 * regularisation * norms) / least_probability
    return most


def most_parameter(
    start: Floats, rounds: Floats, loss: Loss, spans: float, learning_rate: float, regularisation: float
) -> Floats:
    """Largest norm that a kernel's parameters can have after so many steps of a client's own, shape (N,).

    θ ← θ - η (mean of l'(f) z + 2 λ θ) with |z| = 1. Of the squared loss it stretches θ by b = |1 - 2 η (1 + λ)| at
    most, or not at all, and adds 2 η (1 + spans) at most; of the logistic loss b = |1 - 2 η λ|, and it adds η.

    Args:
        start: Norms before these steps, (N,).
        rounds: Steps of each kernel, (N,).
        loss: Of the job.
        spans: How far beyond [0, 1] targets may lie; 0: there is no limit.
        learning_rate: η.
        regularisation: λ.
    """
    if loss is Loss.LOGISTIC:
        bend, added = abs(1.0 - 2.0 * learning_rate * regularisation), learning_rate
    else:
        bend = abs(1.0 - 2.0 * learning_rate * (1.0 + regularisation))
        added = 2.0 * learning_rate * (1.0 + spans) if spans else math.inf
    if bend <= 1.0:
        return start + added * np.maximum(rounds, 1.0)
    stretched = np.exp(np.minimum(rounds * math.log(bend), 700.0))
    most: Floats = start * stretched + added * (stretched - 1.0) / (bend - 1.0)
    return most


def most_loss(norms: Floats, loss: Loss, spans: float, regularisation: float) -> Floats:
    """Largest mean loss that rows can have for kernels whose parameters have these norms, shape (N,).

    Args:
        norms: Shape (N,).
        loss: Of the job.
        spans: As in `most_parameter`.
        regularisation: λ of loss + λ |theta|².
    """
    penalty = regularisation * np.square(norms)
    if loss is Loss.LOGISTIC:
        return norms + math.log(2.0) + penalty
    return np.square(norms + 1.0 + spans) + penalty if spans else np.full_like(norms, math.inf)


def pool(steps: Sequence[ClientStep], num_kernels: int, num_features: int, least_probability: float) -> Pooled:
    """Add up what clients sent, in the given order (by name).

    Args:
        steps: Of the clients that had rows; at least one.
        num_kernels: N.
        num_features: 2 D.
        least_probability: ξ/m, below which no bin's probability is; exact where ξ = 1.

    Source: Ghari & Shen (2022), equation (10), with K those who took part.
    """
    rows = sum(step.num_samples for step in steps)
    gradient, pull = np.zeros((num_kernels, num_features)), np.zeros(num_kernels)
    for step in steps:
        share = step.num_samples / rows
        gradient[step.kernels] += share * step.gradient
        pull[step.kernels] += share / least_probability
    return Pooled(gradient, pull)


def paper_step(theta: Floats, pooled: Pooled, learning_rate: float, limit: float | None = None) -> tuple[Floats, int]:
    """Move every kernel by learning_rate · g, equation (10).

    Args:
        theta: Shape (N, 2 D).
        pooled: What the clients sent.
        learning_rate: η.
        limit: The step of kernel i is at most limit/s_i; unset: unbounded, as printed. With few clients importance
            weights make the printed step unstable; 2 over the loss's curvature is the most that does not expand.

    Returns:
        The new parameters, and how many kernels met the limit.
    """
    if limit is None:
        return theta - learning_rate * pooled.gradient, 0
    bound = np.divide(limit, pooled.pull, out=np.full(len(theta), np.inf), where=pooled.pull > 0.0)
    rates = np.minimum(learning_rate, bound)
    return theta - rates[:, None] * pooled.gradient, int((bound < learning_rate).sum())


@dataclass(frozen=True, slots=True)
class AdaptiveStep:
    """Parameters of all kernels with what their steps are made of."""

    theta: Floats
    """Shape (N, 2 D)."""
    squares: Floats
    """Sum of |g_i|² so far, shape (N,)."""
    distance: Floats
    """Largest |theta_i| so far, shape (N,)."""

    @staticmethod
    def start(num_kernels: int, num_features: int) -> AdaptiveStep:
        """All zero."""
        return AdaptiveStep(np.zeros((num_kernels, num_features)), np.zeros(num_kernels), np.zeros(num_kernels))

    def update(self, pooled: Pooled, curvature: float = 2.0) -> AdaptiveStep:
        """theta_i ← theta_i - η_i g_i with η_i = 1/(curvature max(s_i, 1)), at most distance_i / sqrt(Σ |g_i|²).

        Args:
            pooled: What the clients sent.
            curvature: Of the loss by the prediction: 2 for the squared loss.
        """
        squares = self.squares + np.einsum("nd,nd->n", pooled.gradient, pooled.gradient)
        rate = 1.0 / (curvature * np.maximum(pooled.pull, 1.0))
        scale = np.divide(self.distance, np.sqrt(squares), out=np.full(len(rate), np.inf), where=squares > 0.0)
        rate = np.where(self.distance > 0.0, np.minimum(rate, scale), rate)
        theta = self.theta - rate[:, None] * pooled.gradient
        norms = np.sqrt(np.einsum("nd,nd->n", theta, theta))
        return AdaptiveStep(theta, squares, np.maximum(self.distance, norms))
