"""Steps on a linear head over frozen features: gradients with losses, local Newton steps, local training.

Client j has F_j(W) = mean loss over its fitting rows + (ridge/2) |W|², on D features (the last one is the constant 1
where the job has an intercept) and C outputs. Rows that it keeps apart for validation are in no F_j. With a free bias
the last row of W is not in |W|².
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Kind, NumOutputs, R_co, Range, Reply, Request, Rows, Shape
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.model_spread import of_epochs, of_solves
from kernfed.maths.newton import not_a_solve

Matrix = Annotated[Array, Shape("D", "C")]
Ridge = Annotated[float, Range(0, 1e6)]
"""Ridge of F_j."""
Seed = Annotated[int, Range(0, 2**63 - 1)]
"""Seed of the batches; the client draws from it by its name."""


class HeadLoss(enum.StrEnum):
    """Loss of a row with scores s = W'z.

    SOFTMAX: cross-entropy of softmax(s) over classes. LOGISTIC: cross-entropy of the positive class, one output.
    SQUARED: |s - y|²/2.
    """

    SOFTMAX = "softmax"
    LOGISTIC = "logistic"
    SQUARED = "squared"


class HeadSolver(enum.StrEnum):
    """A client's solver of (H_j + damping I) X = G.

    EXACT: Cholesky. CG: conjugate gradients on Hessian-vector products. DIAGONAL: the Hessian's diagonal alone. FISHER:
    the diagonal of the empirical Fisher information. LANCZOS: the leading eigenvectors
    that the Krylov space of G holds, with a gradient step beside them. EIGEN: the same with the true ones.
    """

    EXACT = "exact"
    CG = "cg"
    DIAGONAL = "diagonal"
    FISHER = "fisher"
    LANCZOS = "lanczos"
    EIGEN = "eigen"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOpened(Reply):
    """The client's rows are ready for a head."""

    num_rows: Rows
    num_fit_rows: Rows
    """Training rows without those kept apart."""
    num_validation_rows: Rows
    """Training rows kept apart; `num_fit_rows` and these are `num_rows`."""
    memory_bytes: Annotated[int, Range(0)]
    """Memory that a solver's matrices may take at this client."""
    free_bias: bool = False
    """Whether the client follows the request's `free_bias`; one of an earlier version does not know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHeadRequest(Request[HeadOpened]):
    """Put features and targets of a head together and keep validation rows apart."""

    step = "head.open"
    reply = HeadOpened
    kinds = (Kind.SUMMARY,)
    setup = True

    loss: HeadLoss
    bias: bool
    """Whether a last feature that is 1 is added."""
    validation_fraction: Annotated[float, Range(0, 0.5)]
    """Share of the training rows that is kept apart."""
    seed: Seed
    """Seed of the validation rows; the client draws from it by its name."""
    num_features: Annotated[int, Dim("D"), Range(1, 20_000_001)]
    """Features D, with the bias."""
    num_outputs: NumOutputs
    free_bias: bool = False
    """Whether the bias is in no |W|²; W is then the change of a head that predicts the pooled mean of the targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGradient(Reply):
    """F_j and its gradient at W."""

    directions = ("gradient",)

    num_rows: Rows
    loss: Annotated[float, Range(0)]
    """F_j(W)."""
    validation_loss: Annotated[float, Range(0)]
    """Mean loss over the validation rows, without the ridge; 0 where there are none."""
    validation_slope: float
    """⟨its gradient, W⟩, by how much that loss changes as W is scaled; 0 where there are none."""
    mean_curvature: Annotated[float, Range(0)]
    """Mean of the diagonal of H_j(W), without the ridge."""
    gradient: Matrix
    """∇F_j(W)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGradientRequest(Request[HeadGradient]):
    """Loss and gradient at W (Algorithm 2, line 4)."""

    step = "head.gradient"
    reply = HeadGradient
    kinds = (Kind.GRADIENT, Kind.METRIC)

    ridge: Ridge
    leave_out: bool
    """Whether validation rows are left out of F_j."""
    weights: Matrix
    """W."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStep(Reply):
    """(H_j(W) + damping I)⁻¹ G, as far as the solver goes."""

    diagnostics = ("residual",)

    num_rows: Rows
    iterations: Annotated[int, Range(0)]
    """Hessian-vector products that it took; 0 for solvers that take none."""
    residual: Annotated[float, Range(0)]
    """|(H_j + damping I) X - G| over |G|; of a solver that changes the matrix, for the matrix that it solves."""
    newton_step: Matrix
    """X."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStepRequest(Request[HeadStep]):
    """Local Newton step on a direction that all clients get (Algorithm 2, line 6)."""

    step = "head.newton_step"
    reply = HeadStep
    kinds = (Kind.NEWTON_STEP,)

    ridge: Ridge
    damping: Annotated[float, Range(0, 1e12)]
    """Added to the Hessian's diagonal."""
    solver: HeadSolver
    tolerance: Annotated[float, Range(0, 1)]
    """CG stops at this relative residual."""
    max_iterations: Annotated[int, Range(1, 1_000_000)]
    """CG stops here too, short of the tolerance or not: a cut solve is a regularised one."""
    rank: Annotated[int, Range(1, 1_000_000)]
    """Eigenvectors of the solvers that take some."""
    max_bytes: Annotated[int, Range(0)]
    """Most memory of an exact solve; the client's own limit counts too."""
    weights: Matrix
    """W."""
    direction: Matrix
    """G."""

    def refusals(self, reply: HeadStep) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(self.direction, reply.newton_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLosses(Reply):
    """Losses along a line."""

    num_rows: Rows
    losses: Annotated[Array, Shape("L")]
    """F_j(W - step_sizes_i direction)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLossesRequest(Request[HeadLosses]):
    """F_j at several step sizes: what a line search at the coordinator needs, a number per client and step size."""

    step = "head.losses"
    reply = HeadLosses
    kinds = (Kind.METRIC,)

    ridge: Ridge
    weights: Matrix
    """W."""
    direction: Matrix
    """Direction, which is subtracted."""
    step_sizes: Annotated[Array, Shape("L")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWeights(Reply):
    """Weights after a client's own steps."""

    models = ("weights",)
    directions = ("weights",)

    num_rows: Rows
    weights: Matrix
    """Where the client arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsRequest(Request[R_co]):
    """Epochs of steps on F_j over mini-batches."""

    ridge: Ridge
    learning_rate: Annotated[float, Range(0, 1e6)]
    """Step size; of `head.sophia` also the most that a coordinate moves in a step, in deviations of the targets."""
    momentum: Annotated[float, Range(0, 1)]
    """Momentum of the steps; of `head.sophia` β1, of the gradients' moving average."""
    num_epochs: Annotated[int, Range(1, 1_000_000)]
    """Passes over the rows."""
    batch_size: Annotated[int, Range(0)]
    """Rows per step; 0: all rows."""
    seed: Seed
    weights: Matrix
    """Where the steps begin, W."""

    def models_differ(self, rows: float) -> float:
        """See `Request.models_differ`: a client takes as many more steps as it has more rows."""
        return of_epochs(rows)

    def reach(self, rows: int) -> float:
        """See `Request.reach`."""
        return float(-(-rows // self.batch_size)) if self.batch_size else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDescentRequest(EpochsRequest[HeadWeights]):
    """Epochs of mini-batch gradient descent with momentum on F_j(V) + (proximal/2) |V - W|², from V = W."""

    step = "head.descent"
    reply = HeadWeights
    kinds = (Kind.MODEL_UPDATE,)

    proximal: Annotated[float, Range(0, 1e6)]
    """0 for FedAvg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWarmUp(Reply):
    """Weights after a client's own steps, and what those were worth that it began with."""

    models = ("weights",)
    directions = ("weights",)

    num_rows: Rows
    loss: Annotated[float, Range(0)]
    """F_j(W) at the request's weights."""
    validation_loss: Annotated[float, Range(0)]
    """Mean loss there over the validation rows, without the ridge; 0 where there are none."""
    weights: Matrix
    """Where the client arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWarmUpRequest(EpochsRequest[HeadWarmUp]):
    """Losses at W, then epochs of mini-batch gradient descent with momentum on F_j from there."""

    step = "head.warm_up"
    reply = HeadWarmUp
    kinds = (Kind.MODEL_UPDATE, Kind.METRIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSophiaRequest(EpochsRequest[HeadWeights]):
    """FedSophia's local epochs: clipped steps, preconditioned by a moving average of the Hessian's diagonal."""

    step = "head.sophia"
    reply = HeadWeights
    kinds = (Kind.MODEL_UPDATE,)

    curvature_momentum: Annotated[float, Range(0, 1)]
    """β2, of the diagonal's."""
    clip: Annotated[float, Range(0, 1e6)]
    """ρ: a coordinate moves by learning_rate · clamp(m / max(ρ h, ε), -1, 1)."""
    curvature_every: Annotated[int, Range(1, 1_000_000)]
    """Steps between estimates of the diagonal."""
    target_deviation: Annotated[float, Range(0)] = 0.0
    """σ of a regression's targets: a coordinate moves by learning_rate · σ clamp(m / (σ max(ρ h, ε)), -1, 1), which is
    the same in all units. 0: it is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDirection(Reply):
    """FedNew's inner variable y_j."""

    models = ("direction",)
    directions = ("direction",)

    num_rows: Rows
    direction: Matrix
    """y_j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDirectionRequest(Request[HeadDirection]):
    """One step of FedNew's inner ADMM: y_j = (H_j(W) + (damping + penalty) I)⁻¹ (∇F_j(W) - dual + penalty · previous).

    Of each client's own: `dual` is its multiplier, which follows from its replies and is kept by the coordinator.
    """

    step = "head.direction"
    reply = HeadDirection
    kinds = (Kind.NEWTON_STEP,)

    ridge: Ridge
    damping: Annotated[float, Range(0, 1e12)]
    """α, added to the Hessian's diagonal."""
    penalty: Annotated[float, Range(0, 1e12)]
    """ρ, weight of agreement with the mean direction."""
    tolerance: Annotated[float, Range(0, 1)]
    """Relative residual at which conjugate gradients stop."""
    max_iterations: Annotated[int, Range(1, 1_000_000)]
    """Iterations at which conjugate gradients stop in any case."""
    weights: Matrix
    """W."""
    dual: Matrix
    """This client's multiplier λ_j."""
    previous: Matrix
    """The mean direction of the round before."""

    def models_differ(self, rows: float) -> float:
        """See `Request.models_differ`."""
        del rows
        return of_solves(self.ridge + self.damping + self.penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateHeadRequest(Request[Evaluation]):
    """Measure a head on the client's test rows, and where asked one that this client trains alone."""

    step = "head.evaluate"
    reply = Evaluation
    kinds = (Kind.METRIC,)

    weights: Matrix
    """The global head."""
    ridge: Ridge
    """Of the head that the client trains alone."""
    include_global: bool
    """Whether the global head is measured."""
    include_local: bool
    """Whether the client trains a head alone, once, and measures it."""
    choose_ridge: bool = False
    """Whether the client chooses the ridge of its own head by rows that it keeps apart, from `ridge` on."""
    local_shared: bool = False
    """Whether the client also measures a head of its own rows with the scales and features of all clients."""
