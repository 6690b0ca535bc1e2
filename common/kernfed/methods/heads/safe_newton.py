"""The coordinator's half of FedNewton on heads: a step that cannot raise the loss, and watches over the paper's.

The averaged Newton step Σ p_j (H_j + damping I)⁻¹ q stands between the two loops of limited-memory BFGS, and the pooled
loss decides how far to go: with q from the first loop, the result of the second is a descent direction whatever clients
it came from. Clients that lack a class have almost no curvature in that class's directions, which is where the plain
averaged step overshoots; the pairs of the history, which are of pooled gradients, correct it from the second round on.

numpy alone: the coordinator does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import InvalidReplyError, NumericalError
from kernfed.methods.heads.lbfgs import History

SUFFICIENT_DECREASE = 1e-4
"""c of Armijo's rule F(W - ηd) <= F - c η g'd."""


@dataclass(frozen=True, slots=True)
class Point:
    """The pooled objective at some weights."""

    weights: Floats
    """W, shape (D, C)."""
    value: float
    """F(W)."""
    gradient: Floats
    """∇F(W), shape (D, C)."""
    free_bias: bool = False
    """Whether the ridge leaves out the last row of W."""

    @property
    def shrunk(self) -> Floats:
        """The part of W that the ridge shrinks."""
        return self.weights[:-1] if self.free_bias else self.weights

    def with_other_ridge(self, more: float) -> Point:
        """The same weights where F's ridge is larger by so much, or smaller where it is below 0."""
        gradient, w = self.gradient.copy(), self.shrunk
        gradient[: len(w)] += more * w
        return replace(self, value=self.value + more / 2.0 * float(np.vdot(w, w)), gradient=gradient)


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction d, of which a multiple is subtracted from W."""

    matrix: Floats
    slope: float
    """g'd, above 0: what F loses per unit of step size, to first order."""


@dataclass(frozen=True, slots=True)
class SafeNewton:
    """State between rounds. A round: `preconditioned` to the clients, `direction`, then probes until `accepts`."""

    point: Point
    history: History
    damping: float
    """Added to the clients' Hessians in the next round; 0: to be set at the first gradient."""
    step_size: float = 1.0
    """First step size to try in the next round."""

    def preconditioned(self) -> tuple[Floats, tuple[float, ...]]:
        """The direction for which clients solve, q, and what `direction` needs of it."""
        return self.history.first_half(self.point.gradient)

    def direction(self, newton_step: Floats, coefficients: tuple[float, ...]) -> Direction:
        """The search direction from the clients' averaged solves of q.

        Raises:
            InvalidReplyError: The shape is not that of the weights.
            NumericalError: It is not finite, or no descent direction: some client's solve was none.
        """
        if newton_step.shape != self.point.weights.shape:
            raise InvalidReplyError(f"Newton step of shape {newton_step.shape}, want {self.point.weights.shape}")
        d = self.history.second_half(newton_step, coefficients)
        slope = float(np.vdot(self.point.gradient, d))
        if not (math.isfinite(slope) and np.isfinite(d).all()):
            raise NumericalError("the averaged Newton step is not finite; raise damping or ridge")
        if slope < 0 or (slope == 0 and bool(self.point.gradient.any())):
            raise NumericalError(
                f"the averaged Newton step is no descent direction (slope {-slope:.3g}); some client's step is not a "
                "solve with its Hessian, or was cut too short: lower solver_tolerance, or raise damping"
            )
        return Direction(d, slope)

    def accepts(self, direction: Direction, step_size: float, value: float) -> bool:
        """Whether F at W - step_size d is low enough (Armijo)."""
        return value <= self.point.value - SUFFICIENT_DECREASE * step_size * direction.slope

    def shortened(self, direction: Direction, step_size: float, value: float) -> float:
        """The next step size to try: the minimum of the parabola through F, its slope and the trial, within bounds."""
        excess = value - self.point.value + step_size * direction.slope
        wanted = direction.slope * step_size**2 / (2.0 * excess) if excess > 0 and math.isfinite(excess) else 0.0
        return min(max(wanted, 0.1 * step_size), 0.5 * step_size)

    def moved(self, direction: Direction, step_size: float, at: Point) -> SafeNewton:
        """The state at an accepted point, with damping and step size adapted to how the slope changed on the way.

        With t the slope there over that at the start, a parabola has its minimum at step_size/(1 - t). Beyond 1, the
        averaged inverse Hessians are too short: less damping. Below a quarter they are too long: more.
        """
        remaining = float(np.vdot(at.gradient, direction.matrix)) / direction.slope
        best = step_size / (1.0 - remaining) if remaining < 1.0 else math.inf
        damping = self.damping
        if best >= 1.0:
            damping /= 4.0
        elif best <= 0.25:
            damping *= 2.0
        history = self.history.add(-step_size * direction.matrix, at.gradient - self.point.gradient)
        return SafeNewton(at, history, damping, min(best, 1.0))

    def restarted(self, point: Point) -> SafeNewton:
        """The state where the objective changed, as when a client left: pairs of the old one would mislead."""
        return replace(self, point=point, history=History(self.history.limit))

    def to_arrays(self) -> dict[str, Floats]:
        """The whole state as arrays, from which `from_arrays` goes on bit for bit."""
        scalars = np.array([self.point.value, self.step_size, self.damping, float(self.history.limit)])
        return {
            "weights": self.point.weights,
            "gradient": self.point.gradient,
            "scalars": scalars,
            **self.history.to_arrays(self.point.weights.shape),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats], *, free_bias: bool = False) -> SafeNewton:
        """Rebuild a state that `to_arrays` gave."""
        value, step_size, damping, limit = (float(v) for v in arrays["scalars"])
        point = Point(arrays["weights"], value, arrays["gradient"], free_bias)
        return cls(point, History.from_arrays(int(limit), arrays), damping, step_size)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Change of the losses as W is scaled: of the rows that it was trained on, and of other rows.

    W is here what the ridge shrinks: all but a free bias.
    """

    square: float
    """|W|²."""
    trained: float
    """⟨∇L, W⟩, L being the mean loss, without a ridge, of the rows that W was trained on."""
    apart: float
    """⟨∇V, W⟩, V being that of rows kept apart."""

    @classmethod
    def of(cls, point: Point, ridge: float, apart: float, share_apart: float) -> Scaling:
        """From F's gradient at W, in which rows kept apart have this share, below 1; 0 where they are left out."""
        w = point.shrunk
        square = float(np.vdot(w, w))
        slope = float(np.vdot(point.gradient[: len(w)], w)) - ridge * square
        return cls(square, (slope - share_apart * apart) / (1.0 - share_apart), apart)

    @property
    def under_fitted(self) -> bool:
        """Whether rows kept apart gain at least half as much as the others where W grows."""
        return self.trained < 0 and self.apart <= self.trained / 2.0

    @property
    def ridge(self) -> float:
        """The ridge that is missing, λ = ⟨∇V - ∇L, W⟩/|W|²; 0 where W is.

        With it, rows that W was trained on pull at its size as hard as others do. It needs no minimum, and hardly
        changes along a path of training, but for its beginning, where W is small: see `under_fitted`.
        """
        return (self.apart - self.trained) / self.square if self.square > 0 else 0.0


def line_search_sizes(largest: float, count: int = 10) -> Floats:
    """Step sizes that the coordinator asks losses for: the largest and its halves, shape (count,)."""
    sizes: Floats = largest * np.exp2(-np.arange(count, dtype=np.float64))
    return sizes


def choose_step_size(value: float, slope: float, sizes: Floats, losses: Floats) -> float | None:
    """The step size with the least pooled loss among those that lower it enough; None where none does.

    Args:
        value: F(W).
        slope: g'd.
        sizes: Step sizes tried, shape (L,).
        losses: F(W - size d), shape (L,).
    """
    enough = losses <= value - SUFFICIENT_DECREASE * sizes * slope
    if not enough.any():
        return None
    return float(sizes[int(np.argmin(np.where(enough, losses, np.inf)))])
