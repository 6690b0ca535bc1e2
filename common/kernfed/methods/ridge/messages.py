"""Steps on the random-feature ridge model: local solves, FedNewton's trips, gradient and proximal steps.

The local objective of client j is F_j(W) = |Z_j W - Y_j|²/(2 n_j) + (ridge/2) |W|², with H_j = Z_j'Z_j/n_j + ridge I
and c_j = Z_j'Y_j/n_j (the FedNewton paper). M features, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Dispensable,
    Kind,
    NumFeatures,
    NumOutputs,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
)
from kernfed.maths.certificate import not_an_energy
from kernfed.maths.folds import FOLDS
from kernfed.maths.model_spread import of_solves
from kernfed.maths.newton import not_a_product, not_a_solve, not_of_its_start

Matrix = Annotated[Array, Shape("M", "C")]
Sketch = Annotated[Array, Shape("M", "K")]
Right = Annotated[Array, Shape("M", "L")]
MOST_DIRECTIONS = 64
"""Columns that a client multiplies, or solves for, in one go."""
Ridge = Annotated[float, Range(1e-300)]
"""Ridge λ of F_j(W) = |Z_j W - Y_j|²/(2 n_j) + (λ/2) |W|²."""
Fold = Annotated[int, Range(0, FOLDS)]
"""Fold of the training rows, from 1 on, that is left out of F_j; 0: none is. A client where it has fewer rows than
`policy.min_rows` leaves none out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel(Reply):
    """A client's own weights."""

    models = ("weights",)
    directions = ("weights",)

    num_rows: Rows
    weights: Matrix
    """The client's weights W_j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSolveRequest(Request[LocalModel]):
    """H_j⁻¹ c_j: the client's own ridge solution (DKRR's upload)."""

    step = "ridge.local_solve"
    reply = LocalModel
    kinds = (Kind.MODEL_UPDATE,)

    ridge: Ridge
    num_features: NumFeatures
    num_outputs: NumOutputs

    def models_differ(self, rows: float) -> float:
        """See `Request.models_differ`."""
        del rows
        return of_solves(self.ridge)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedLocally(Reply):
    """The client trained its own model and keeps it."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLocallyRequest(Request[TrainedLocally]):
    """Solve for the client's own model and keep it there; nothing but the row count leaves."""

    step = "ridge.train_locally"
    reply = TrainedLocally
    kinds = (Kind.SUMMARY,)

    ridge: Ridge
    alone: bool = False
    """Whether scales, lengthscale and means are the client's own. Unset, as earlier coordinators have it: those that
    all clients agreed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewtonStart(Reply):
    """First trip of FedNewton: H_j⁻¹ c_j and c_j."""

    directions = ("moment",)

    num_rows: Rows
    weights: Matrix
    """Local solution W_j = H_j⁻¹ c_j."""
    moment: Matrix
    """c_j = Z_j'Y_j/n_j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewtonStartRequest(Request[NewtonStart]):
    """Factor H_j once; return the local solution and the moment c_j."""

    step = "newton.start"
    reply = NewtonStart
    kinds = (Kind.MODEL_UPDATE, Kind.GRADIENT)

    ridge: Ridge
    num_features: NumFeatures
    num_outputs: NumOutputs
    fold: Fold = 0
    """Left out of F_j."""

    def refusals(self, reply: NewtonStart) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(reply.moment, reply.weights, self.ridge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Reply):
    """H_j W - c_j."""

    directions = ("gradient",)

    num_rows: Rows
    gradient: Matrix
    """H_j W - c_j."""
    energy: Annotated[float, Range(0)] = 0.0
    """Number tr W'H_j W, where it is asked for; 0 from a client of an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRequest(Request[Gradient]):
    """Local gradient at W (Algorithm 1, line 5)."""

    step = "newton.gradient"
    reply = Gradient
    kinds = (Kind.GRADIENT,)

    ridge: Ridge
    weights: Matrix
    """Weights W at which to compute, of all clients."""
    fold: Fold = 0
    """Left out of F_j."""
    energy: Annotated[bool, Dispensable()] = False
    """Whether tr W'H_j W is asked for too."""

    def refusals(self, reply: Gradient) -> Iterator[str]:
        """See `Request.refusals`."""
        if reply.energy:
            yield from not_an_energy(self.weights, reply.energy, self.ridge)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewtonStep(Reply):
    """H_j⁻¹ G."""

    num_rows: Rows
    newton_step: Matrix
    """H_j⁻¹ G."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewtonStepRequest(Request[NewtonStep]):
    """Local Hessian solve on the global gradient G (Algorithm 1, line 7)."""

    step = "newton.step"
    reply = NewtonStep
    kinds = (Kind.NEWTON_STEP,)

    ridge: Ridge
    gradient: Matrix
    """Gradient G of the global objective."""
    fold: Fold = 0
    """Left out of F_j."""

    def refusals(self, reply: NewtonStep) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(self.gradient, reply.newton_step, self.ridge)


@dataclass(frozen=True, slots=True, kw_only=True)
class HessianProduct(Reply):
    """H_j Z."""

    num_rows: Rows
    product: Matrix
    """H_j Z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HessianProductRequest(Request[HessianProduct]):
    """Local Hessian times a direction: the gradient message with zero targets."""

    step = "newton.hessian_product"
    reply = HessianProduct
    kinds = (Kind.GRADIENT,)

    ridge: Ridge
    direction: Matrix
    """Direction Z."""
    fold: Fold = 0
    """Left out of F_j."""

    def refusals(self, reply: HessianProduct) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_product(self.direction, reply.product, self.ridge)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondMoments(Reply):
    """H_j Z, H_j⁻¹ G, and the mean square of the features."""

    diagnostics = ("mean_square",)

    num_rows: Rows
    product: Sketch
    """H_j Z."""
    solve: Right
    """H_j⁻¹ G."""
    mean_square: Annotated[float, Range(0)]
    """tr C_j, the mean of |z|² over the client's training rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondMomentsRequest(Request[SecondMoments]):
    """Second moments C_j of the features along a few directions, and solves with C_j + ridge I: who is different."""

    step = "newton.second_moments"
    reply = SecondMoments
    kinds = (Kind.SUFFICIENT_STATISTIC, Kind.NEWTON_STEP)

    ridge: Ridge
    directions: Sketch
    """Directions Z, at most `MOST_DIRECTIONS`."""
    right: Right
    """Right-hand sides G."""

    def refusals(self, reply: SecondMoments) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(self.right, reply.solve, self.ridge)
        yield from not_a_product(self.directions, reply.product, self.ridge)
        yield from not_of_its_start(reply.solve, self.right, self.directions, reply.product)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutLoss(Reply):
    """What weights are worth on a fold that was left out."""

    num_rows: Rows
    num_apart: Rows
    """Rows of the fold; 0 where they are fewer than `policy.min_rows`, and left out nowhere."""
    loss: Annotated[float, Range(0)]
    """Mean of |y - W'z|² over them; 0 without any."""
    num_correct: Rows = 0
    """Rows of the fold whose class has the largest score; 0 for numbers and for two classes with one score."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`: a fold holds training rows, and not all of them."""
        if self.num_apart and self.num_apart >= stated.num_rows:
            yield f"states {self.num_apart} rows of a fold, and {stated.num_rows} training rows in all"
        if self.loss and not self.num_apart:
            yield "states a loss over no rows"
        if self.num_correct > self.num_apart:
            yield f"states {self.num_correct} rows classified correctly, of {self.num_apart}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutLossRequest(Request[HeldOutLoss]):
    """The loss of W on the rows of a fold that was left out when W was found: by it a ridge is chosen."""

    step = "newton.held_out_loss"
    reply = HeldOutLoss
    kinds = (Kind.METRIC,)

    fold: Annotated[int, Range(1, FOLDS)]
    """The fold."""
    weights: Matrix
    """Weights W."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature(Reply):
    """Largest eigenvalue of H_j."""

    num_rows: Rows
    largest_eigenvalue: Annotated[float, Range(0)]
    """Largest eigenvalue of H_j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvatureRequest(Request[Curvature]):
    """Smoothness of the local objective, from which a safe learning rate follows."""

    step = "fedavg.curvature"
    reply = Curvature
    kinds = (Kind.SUMMARY,)

    ridge: Ridge


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDescentRequest(Request[LocalModel]):
    """FedAvg's local steps: `num_steps` gradient steps from W on the client's own objective."""

    step = "fedavg.local_update"
    reply = LocalModel
    kinds = (Kind.MODEL_UPDATE,)

    ridge: Ridge
    weights: Matrix
    """Weights W at which to compute, of all clients."""
    learning_rate: Annotated[float, Range(0)]
    """Learning rate η of W ← W - η ∇F_j(W)."""
    num_steps: Annotated[int, Range(1, 1_000_000)]
    """Gradient steps."""
    batch_size: Annotated[int, Range(0)]
    """Rows per step; 0: all rows."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the batches; the client derives its own stream from it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProximalSolveRequest(Request[LocalModel]):
    """FedProx's local problem in closed form: argmin F_j(V) + (proximal/2) |V - W|²."""

    step = "fedprox.local_update"
    reply = LocalModel
    kinds = (Kind.MODEL_UPDATE,)

    ridge: Ridge
    weights: Matrix
    """Weights W at which to compute, of all clients."""
    proximal: Annotated[float, Range(0)]
    """Weight μ of (μ/2) |V - W|²."""

    def models_differ(self, rows: float) -> float:
        """See `Request.models_differ`."""
        del rows
        return of_solves(self.ridge + self.proximal)


NEWTON = (NewtonStartRequest, GradientRequest, NewtonStepRequest, HessianProductRequest, SecondMomentsRequest)
"""The requests of FedNewton on a ridge problem."""
