"""Settings of the methods that train a linear model by the squared loss in closed form, or a head by any loss.

`loss = "ridge"` is the closed form of the random-feature methods; any other loss makes a head on frozen features, for
which further keys exist.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.methods.shared_settings import (
    AUTO,
    AUTO_IF_MANY,
    BY_ROWS,
    MANY_ROWS,
    RIDGE_RULE,
    AveragedSettings,
    ChosenRidge,
    Ridge,
    RidgeNumber,
    Rounds,
)
from kernfed.section import Above, MethodSection, Only

ClientFraction = Annotated[
    float, Field(gt=0, le=1, description="Share of the clients drawn for a round, by the job's seed; at least one is.")
]
Loss = Annotated[
    Literal["ridge", "cross-entropy", "squared"],
    Field(
        description="ridge: squared loss, solved in closed form. A head: cross-entropy (softmax, or logistic for a "
        "binary task), or squared, by the same steps as cross-entropy."
    ),
]
HeadLossKey = Annotated[
    Literal["cross-entropy", "squared"],
    Field(description="cross-entropy: softmax, or logistic for a binary task; squared: least squares."),
]
HEAD_BATCH = 64
"""Rows per local step of a head, where a job does not say."""
BatchSize = Annotated[int, Field(ge=0, description="Rows per local step; 0: all.")]
Epochs = Annotated[int, Field(ge=1, le=100_000, description="Passes of a client over its rows in a round.")]

PenaliseBias = Annotated[
    bool,
    Field(
        description="A head: whether the ridge shrinks the bias too, which then starts at 0. false: the bias is free, "
        "and starts where the head predicts the pooled mean of the targets."
    ),
]

HEAD = ("cross-entropy", "squared")
"""Losses that make a head."""

Begin = Annotated[
    Annotated[
        Literal["zero", "dkrr"],
        Field(description="Weights before round 1: zeros, or the mean of the clients' own solutions, as of `dkrr`."),
    ],
    Only(loss="ridge"),
]


class NewtonSettings(MethodSection):
    """FedNewton on (random) features, or on a head over frozen features."""

    name: Literal["newton"]
    ridge: (
        RidgeNumber
        | Literal["by-rows", "auto", "auto-if-many"]
        | Annotated[list[RidgeNumber], Field(min_length=1, max_length=100)]
    ) = Field(
        AUTO_IF_MANY,
        description=f"Ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|². {RIDGE_RULE} auto, without a head and "
        'with step = "auto": from there on by tens the ridge with which rows that clients keep apart are predicted '
        "best; each client chooses that of its own model alike. A head is searched by `raise_ridge`. auto-if-many: "
        f"auto where it can be had and all clients have {MANY_ROWS} training rows together, else by-rows. A list: the "
        "one of those listed with which folds of the clients' training rows are predicted best, by sums over folds.",
    )
    rounds: Rounds = 30
    step: Literal["auto", "paper"] = Field(
        "auto",
        description="auto: steps that cannot diverge. For ridge, preconditioned conjugate gradients with the paper's "
        "messages; for a head, L-BFGS around the averaged Newton step, accepted by the pooled loss. paper: Algorithm 1 "
        "with step 1, or Algorithm 2 with step_size, stopped with a diagnosis if it diverges.",
    )
    tolerance: Annotated[float | None, Only(loss="ridge"), Only(loss=HEAD, step="auto")] = Field(
        None,
        gt=0,
        lt=1,
        description="Stop when the certified relative distance to the pooled solution is below; of a head, when the "
        "gradient is below this part of that of the first Newton step. Unset: 1e-8, of a head 1e-3.",
    )
    loss: Loss = "ridge"
    differences: Annotated[bool, Only(loss="ridge")] = Field(
        False,
        description="Tell before round 1 how far each client's second moments of the features are from those of all, "
        "and by what Algorithm 1's step multiplies the error; five trips, and clients' policies must allow "
        "sufficient_statistic.",
    )
    solver: Annotated[
        Literal["auto", "exact", "cg", "lbfgs", "lanczos", "eigen", "diagonal", "fisher"], Only(loss=HEAD)
    ] = Field(
        "auto",
        description="How clients solve with their Hessian. auto: exact where it fits and is cheap, else cg. "
        "lbfgs: not at all, curvature comes from the coordinator's history of gradients. lanczos: on the leading "
        "eigenvectors that the Krylov space of the gradient holds. eigen: on the true ones.",
    )
    damping: Annotated[Annotated[float, Field(ge=0, le=1e6)] | Literal["auto"], Only(loss=HEAD)] = Field(
        "auto",
        description="Added to the clients' Hessians. auto: the mean of their diagonal at the start; "
        'step = "auto" adapts it from there.',
    )
    step_size: Annotated[float, Only(loss=HEAD, step="paper")] = Field(
        0.1, gt=0, le=10, description="η of Algorithm 2."
    )
    gradient: Annotated[
        Literal["global", "own"],
        Only(loss=HEAD, step="paper", solver=("auto", "exact", "cg", "lanczos", "eigen", "diagonal", "fisher")),
    ] = Field(
        "global",
        description="What clients solve for. global: the mean of all gradients, as Algorithm 2 says. own: each its own "
        "gradient, as equation (7) prints it; the mean of such steps has another point of rest.",
    )
    line_search: Annotated[bool, Only(loss=HEAD, step="paper")] = Field(
        False,
        description="Choose the step size by the clients' losses at ten sizes from 2 step_size down, one trip of ten "
        "numbers a client.",
    )
    client_fraction: Annotated[float, Only(loss=HEAD)] = Field(
        1.0,
        gt=0,
        le=1,
        description='Share of the clients asked at a time. With step = "auto" gradients are asked for in '
        "shifts until all have answered.",
    )
    history: Annotated[int, Only(loss=HEAD, step="auto"), Only(loss=HEAD, solver="lbfgs")] = Field(
        5, ge=0, le=100, description="Pairs of L-BFGS that the coordinator keeps."
    )
    solver_tolerance: Annotated[float, Only(loss=HEAD, solver=("auto", "cg"))] = Field(
        1e-2, gt=0, lt=1, description="Relative residual at which cg stops."
    )
    solver_iterations: Annotated[int, Only(loss=HEAD, solver=("auto", "cg"))] = Field(
        100, ge=1, le=1_000_000, description="Iterations at which cg stops."
    )
    rank: Annotated[int, Only(loss=HEAD, solver=("lanczos", "eigen"))] = Field(
        20, ge=1, le=10_000, description="Eigenvectors of the solver."
    )
    max_solver_bytes: Annotated[int, Only(loss=HEAD, solver=("auto", "exact"))] = Field(
        1 << 30, ge=1 << 20, description="Most memory of an exact solve at a client, below its own limit."
    )
    warm_start: Annotated[bool, Only(loss=HEAD, step="auto")] = Field(
        True,
        description="Begin with rounds of local training, averaged, for as long as each lowers the loss on rows "
        "kept apart (without any, the pooled loss) by 3 %.",
    )
    validation_fraction: Annotated[
        Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"], Only(loss=HEAD, step="auto", warm_start=True)
    ] = Field(
        "auto",
        description="Share of the training rows that rounds of local training keep apart. auto: a "
        "twentieth, up to a fifth where those are fewer than 100 in all.",
    )
    raise_ridge: Annotated[
        bool | Literal["up"], Only(loss=HEAD, step="auto", warm_start=True, validation_fraction=("auto", Above(0)))
    ] = Field(
        True,
        description="Take the ridge with which rows kept apart are predicted best, from `ridge` on by factors of 10, "
        "lower or higher. up: estimate it once after local training, and take it where it is above `ridge`.",
    )
    penalise_bias: Annotated[PenaliseBias, Only(loss=HEAD)] = False

    @model_validator(mode="after")
    def _searches_where_it_can(self) -> Self:
        refuse_choice_of_head(self)
        if self.ridge == AUTO and not self.may_search:
            raise ValueError(
                'ridge = "auto" belongs to loss = "ridge" with step = "auto": set that, or give ridge a number or '
                '"by-rows"; a head with step = "auto" is searched by raise_ridge'
            )
        return self

    @property
    def may_search(self) -> bool:
        """Whether the ridge of a job without a head can be chosen before round 1, by rows kept apart."""
        return self.step == "auto" and not has_head(self)

    @property
    def chooses_ridge(self) -> bool:
        """Whether rows kept apart have a say about the ridge."""
        return "raise_ridge" not in self.idle_keys() and self.raise_ridge is not False

    @property
    def stop_at(self) -> float:
        """`tolerance`, or what it is where unset."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-3 if has_head(self) else 1e-8


class FedAvgSettings(AveragedSettings):
    """Federated averaging of local gradient steps, on the ridge objective or on a head."""

    name: Literal["fedavg"]
    ridge: ChosenRidge = BY_ROWS
    rounds: Rounds = 50
    learning_rate: float | Literal["auto"] = Field(
        "auto", description="auto: 1 / the largest curvature of any client's objective; of a head, 0.01."
    )
    local_steps: Annotated[int, Only(loss="ridge")] = Field(
        5, ge=1, le=100_000, description="Gradient steps of a client in a round."
    )
    batch_size: int | None = Field(None, ge=0, description="Rows per local step; 0: all. Unset: all, of a head 64.")
    client_fraction: ClientFraction = 1.0
    begin: Begin = "zero"
    loss: Loss = "ridge"
    momentum: Annotated[float, Only(loss=HEAD)] = Field(0.9, ge=0, lt=1, description="Momentum of the local steps.")
    local_epochs: Annotated[Epochs, Only(loss=HEAD)] = 1
    penalise_bias: Annotated[PenaliseBias, Only(loss=HEAD)] = False

    @model_validator(mode="after")
    def _chooses_where_it_can(self) -> Self:
        refuse_choice_of_head(self)
        return self

    @property
    def step_rows(self) -> int:
        """`batch_size`, or what it is where unset."""
        unset = HEAD_BATCH if has_head(self) else 0
        return unset if self.batch_size is None else self.batch_size


class FedProxSettings(AveragedSettings):
    """FedProx: a proximal term holds clients near the global weights; in closed form, or by local steps on a head."""

    name: Literal["fedprox"]
    ridge: ChosenRidge = BY_ROWS
    rounds: Rounds = 50
    proximal: float = Field(0.1, ge=0, le=1e6, description="Weight of (proximal/2)|V - W|².")
    client_fraction: ClientFraction = 1.0
    begin: Begin = "zero"
    loss: Loss = "ridge"
    learning_rate: Annotated[float, Only(loss=HEAD)] = Field(
        0.01, gt=0, le=1e3, description="Step size of the local steps."
    )
    momentum: Annotated[float, Only(loss=HEAD)] = Field(0.9, ge=0, lt=1, description="Momentum of the local steps.")
    local_epochs: Annotated[Epochs, Only(loss=HEAD)] = 1
    batch_size: Annotated[BatchSize, Only(loss=HEAD)] = HEAD_BATCH
    penalise_bias: Annotated[PenaliseBias, Only(loss=HEAD)] = False

    @model_validator(mode="after")
    def _chooses_where_it_can(self) -> Self:
        refuse_choice_of_head(self)
        return self


class FedSophiaSettings(AveragedSettings):
    """FedSophia on a head: clipped local steps, preconditioned by estimates of the Hessian's diagonal."""

    name: Literal["fedsophia"]
    ridge: Ridge = BY_ROWS
    rounds: Rounds = 50
    loss: HeadLossKey = "cross-entropy"
    client_fraction: ClientFraction = 1.0
    learning_rate: float = Field(
        0.01,
        gt=0,
        le=1e3,
        description="Most that a coordinate moves in a local step; of a regression in deviations of its targets.",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="β1, of the gradients' moving average.")
    curvature_momentum: float = Field(0.99, ge=0, lt=1, description="β2, of the diagonal's moving average.")
    clip: float = Field(0.04, gt=0, le=1e6, description="ρ: steps are clamp(m / (ρ h), -1, 1) learning_rate.")
    curvature_every: int = Field(10, ge=1, le=1_000_000, description="Local steps between estimates of the diagonal.")
    local_epochs: Epochs = 1
    batch_size: BatchSize = HEAD_BATCH
    penalise_bias: PenaliseBias = False


class FedNewSettings(MethodSection):
    """FedNew on a head: one step of an inner ADMM on the Newton direction in each round."""

    name: Literal["fednew"]
    ridge: Ridge = BY_ROWS
    rounds: Rounds = 50
    loss: HeadLossKey = "cross-entropy"
    client_fraction: ClientFraction = 1.0
    damping: float = Field(0.1, ge=0, le=1e6, description="α, added to the clients' Hessians.")
    penalty: float = Field(0.1, gt=0, le=1e6, description="ρ of the ADMM: weight of agreement between directions.")
    step_size: float = Field(1.0, gt=0, le=10, description="Part of the direction that is taken.")
    solver_tolerance: float = Field(1e-6, gt=0, lt=1, description="Relative residual at which local solves stop.")
    solver_iterations: int = Field(200, ge=1, le=1_000_000, description="Iterations at which local solves stop.")
    penalise_bias: PenaliseBias = False


def has_head(method: object) -> bool:
    """Whether a method's settings ask for a head and not for the closed form of ridge regression."""
    return getattr(method, "loss", "ridge") != "ridge"


def refuse_choice_of_head(settings: NewtonSettings | FedAvgSettings | FedProxSettings) -> None:
    """Refuse a ridge that sums over folds are to choose where a head is trained: they say nothing of its loss.

    Raises:
        ValueError: It is.
    """
    searched = isinstance(settings, NewtonSettings)
    if has_head(settings) and (isinstance(settings.ridge, list) or (settings.ridge == AUTO and not searched)):
        raise ValueError(
            'ridge = "auto", or a list, belongs to loss = "ridge"; give ridge a number or "by-rows" for a head, or let '
            "`newton` search it by raise_ridge"
        )
