"""Settings of the method `personalise`."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from kernfed.errors import ConfigError
from kernfed.features.kernels import EXACT_KERNELS, RANDOM_KERNELS, Kernel
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.personalise.embeddings import View
from kernfed.methods.personalise.noise import noise_factor
from kernfed.methods.personalise.q_aggregation.paper import PAPER_FACTOR, PAPER_STEPS
from kernfed.methods.shared_settings import BY_ROWS, MAX_SHARE, RIDGE_RULE, BuiltNetworkSection, RidgeNumber
from kernfed.section import ACCEPTED, Label, MethodSection, Only, Section, Unused

Positive = Annotated[float, Field(gt=0)]
Constant = Annotated[float, Field(ge=0, le=1e6)]
Directions = Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto", "all"]


class NoiseSection(Section):
    """Gaussian noise on each client's mean embedding, drawn at the client."""

    epsilon: float = Field(gt=0, le=1e6, description="Privacy loss of a client's embedding, one row exchanged.")
    delta: float = Field(gt=0, lt=1, description="Probability with which epsilon may not hold; far below 1/rows.")

    @property
    def factor(self) -> float:
        """Deviation of the noise, in units of the mean's sensitivity."""
        return noise_factor(self.epsilon, self.delta)


class PersonaliseSettings(MethodSection):
    """A model per client, trained on a mix of all clients' risks that is learned from the data."""

    unused = (
        Unused("evaluate_every", "measures its models once, at the end", Only(trainer=("exact", "newton"))),
        Unused(MAX_SHARE, "finds weights of its own for each client"),
    )

    name: Literal["personalise"]
    ridge: RidgeNumber | Literal["by-rows"] = Field(
        BY_ROWS,
        description="Ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|²; of personal models too, unless "
        f'weights = "crossfit" with the exact trainer, which chooses one. {RIDGE_RULE}',
    )
    weights: Literal["crossfit", "paper", "exact"] = Field(
        "crossfit",
        description="crossfit: embeddings and losses propose, held-out rows decide; paper: Q-aggregation as printed; "
        "exact: its optimum.",
    )
    trainer: Literal["exact", "newton", "fedavg"] = Field(
        "exact",
        description="exact: ridge from weighted normal equations; newton: the same model from gradients and Hessian "
        "solves; fedavg: a network.",
    )
    rounds: Annotated[int, Only(trainer=("newton", "fedavg"))] = Field(
        50,
        ge=1,
        le=1_000_000,
        description="Rounds at most, the first for the weights; the exact trainer has that one only.",
    )
    view: View = Field(View.XY, description="Columns that are embedded: xy (concept shift) or x (covariate shift).")
    embedding_kernel: Kernel = Field(Kernel.GAUSSIAN, description="Kernel of the embedding.")
    embed_unlabelled: Annotated[bool, Only(view="x")] = Field(
        False,
        description="Whether rows of the clients' unlabelled partitions are embedded beside their training rows: of "
        "more rows an embedding is surer. They are to be of the same law.",
    )
    embedding_points: Annotated[
        int,
        Only(view="x", embedding_kernel=RANDOM_KERNELS, density=False, centres=0, keep_shared=False, from_job=""),
    ] = Field(
        0,
        ge=0,
        le=100_000,
        description="Rows of each client at most that leave without targets, where its policy lets them: embeddings "
        "are then by the kernel itself between rows and these points, which every client gets; 0: by random "
        "frequencies.",
    )
    num_frequencies: Annotated[int, Only(embedding_kernel=RANDOM_KERNELS, embedding_points=0)] = Field(
        500, ge=1, le=1_000_000, description="Random frequencies of the embedding."
    )
    lengthscales: list[Positive] = Field(
        [],
        description="Of the embedding, on scaled columns: one for x (and one for y), or one per column; empty: "
        "sqrt(2 d) for a group of d columns.",
    )
    scale_columns: bool = Field(
        True,
        description="Scale the embedded columns by pooled mean and deviation, y too. false: as they are, a "
        "regression's y less its pooled mean; with noise not even that.",
    )
    c_q: Annotated[Constant | Literal["auto", "theorem"], Only(weights=("paper", "exact"))] = Field(
        "auto",
        description="Penalty on the spread; auto: sqrt(log clients), as in the paper's experiments; theorem: "
        "2 log(clients · rows), as in its Theorem 4.4.",
    )
    c_p: Annotated[Constant | Literal["auto", "theorem"], Only(weights=("paper", "exact"))] = Field(
        "auto", description="Penalty on the distance; auto: log clients; theorem: as for c_q."
    )
    steps: Annotated[int, Only(weights="paper")] = Field(
        PAPER_STEPS, ge=1, le=1_000_000, description="Steps T of Algorithm 3."
    )
    step_factor: Annotated[float, Only(weights="paper")] = Field(
        PAPER_FACTOR, gt=0, le=1, description="c of Algorithm 3's step c/(2 |A| + |b|)."
    )
    components: Annotated[int, Only(view="x", embedding_kernel="polynomial2", from_job="")] = Field(
        0,
        ge=0,
        le=10_000,
        description="Principal components of the columns that each client finds beside its model, from the mixture of "
        "embeddings that its own rows prefer; 0: none.",
    )
    density: Annotated[bool, Only(view="x", embedding_kernel="gaussian", from_job="")] = Field(
        False,
        description="Whether each client finds a density of its columns beside its model, from the mixture of "
        "embeddings that its own rows prefer.",
    )
    centres: Annotated[int, Only(view="x", embedding_kernel="gaussian", from_job="")] = Field(
        0,
        ge=0,
        le=1000,
        description="Centres of k-means of the columns that each client finds beside its model, from the mixture of "
        "embeddings that its own rows prefer; 0: none.",
    )
    targets: list[Label] = Field(
        [],
        max_length=100_000,
        description="Clients that get a personal model; the others help them, and get none. Empty: all.",
    )
    grid: Annotated[Literal["auto", "full", "lite", "wide"], Only(weights="crossfit")] = Field(
        "auto",
        description="Candidates: full (525), lite (87), wide (116, larger ridges); auto: full up to 64 "
        "inputs, wide above.",
    )
    directions: Annotated[Directions, Only(weights="crossfit"), Only(trainer="exact")] = Field(
        "auto",
        description="Directions of the features in which ridge models lie: a number; auto: all up to 64, above the "
        "leading ones, at most 64; all.",
    )
    folds: Annotated[int, Only(weights="crossfit")] = Field(
        0, ge=0, le=1000, description="Of each client's rows; 0: 10, or 5 from 20 rows on."
    )
    deviate: Annotated[bool | Literal["auto"], Only(weights="crossfit")] = Field(
        "auto",
        description="Whether a client may leave the common choice where its rows show it; auto: not for networks.",
    )
    judge: Annotated[Literal["kinds", "networks", "ridge"], Only(trainer="fedavg", weights="crossfit")] = Field(
        "kinds",
        description="What chooses the weights of networks: ridge: cross-fitting with ridge models, alone; kinds: "
        "held-out losses of networks choose, for clients that look alike together, between these weights and those of "
        "Q-aggregation, passed on among clients that look alike. This takes as many rounds again, in round 1, with "
        "four networks for each client; networks: the same in half as many, with those of Q-aggregation as they are.",
    )
    kept_apart: Annotated[int, Only(trainer="fedavg")] = Field(
        0,
        ge=0,
        le=1000,
        description="Early stopping: one of so many parts of each client's rows, at least 2, is kept apart from "
        "training, and each network is that of the round in which the clients that it learns from lose least on "
        "these rows, by their weights; 0: no rows are, and networks are those of the last round.",
    )
    keep_shared: Annotated[bool, Only(trainer="exact")] = Field(
        False,
        description="Keep among the artifacts what clients shared, of those whose policy allows it, for clients that "
        "join later; see from_job.",
    )
    from_job: Annotated[str, Only(trainer="exact")] = Field(
        "",
        max_length=4096,
        description="Folder of the artifacts of an earlier job with keep_shared: this job's clients join that one, and "
        "nobody else is asked; empty: none.",
    )
    noise: NoiseSection | None = Field(None, description="Noise on the embeddings; unset: none.")
    min_weight: Annotated[float, Only(trainer=("newton", "fedavg"))] = Field(
        1e-3,
        ge=0,
        lt=1,
        description="A client below this weight does not train a target's model; the others' "
        "weights are scaled up, and the job says by how much.",
    )
    tolerance: Annotated[float, Only(trainer="newton")] = Field(
        1e-8, gt=0, lt=1, description="Certified relative distance at which a model is done."
    )
    network: Annotated[BuiltNetworkSection, Only(trainer="fedavg")] = Field(
        BuiltNetworkSection(), description="What is trained."
    )
    learning_rate: Annotated[Positive, Only(trainer="fedavg")] = Field(0.05, description="Of the clients' steps.")
    local_steps: Annotated[int, Only(trainer="fedavg")] = Field(
        1, ge=1, le=100_000, description="Gradient steps of a client in a round."
    )
    batch_size: Annotated[int, Only(trainer="fedavg")] = Field(0, ge=0, description="Rows per local step; 0: all.")
    weight_decay: Annotated[float, Only(trainer="fedavg")] = Field(
        0.0, ge=0, le=1e3, description="λ of loss + (λ/2)|θ|², without biases."
    )
    optimiser: Annotated[Literal["adam", "average"], Only(trainer="fedavg")] = Field(
        "adam", description="What becomes of the clients' mean movement: a step of Adam, or it is taken as it is."
    )
    network_scale: Annotated[
        Literal["all", "mixture"],
        Only({"network.kind": ("linear", "mlp")}, trainer="fedavg", optimiser="adam"),
    ] = Field(
        "mixture",
        description="Means and deviations that scale columns and targets of a personal network in training: of all "
        "clients' rows, or of the rows that the network learns from, by their weights.",
    )
    step_size: Annotated[Positive, Only(trainer="fedavg", optimiser="adam")] = Field(0.01, description="Of Adam.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.embedding_kernel not in EXACT_KERNELS:
            return self
        if self.noise is not None:
            raise ValueError(
                f"noise needs bounded features, and those of {self.embedding_kernel} are not; use a Gaussian, Laplace "
                "or Matérn embedding_kernel"
            )
        if self.weights != "crossfit":
            for key in ("c_q", "c_p"):
                rule = getattr(self, key)
                if isinstance(rule, str):
                    raise ValueError(
                        f"{key} is {rule}, a rule for features of norm sqrt 2; give numbers for {self.embedding_kernel}"
                    )
        return self

    @model_validator(mode="after")
    def _noise_is_true(self, info: ValidationInfo) -> Self:
        if self.noise is None or (info.context and info.context.get(ACCEPTED)):
            return self
        if self.embedding_points:
            raise ValueError("noise hides nothing with embedding_points, by which rows leave as they are; remove one")
        if self.scale_columns:
            raise ValueError(
                "noise needs scale_columns = false: the scales are moments of all rows without noise, and one row "
                "moves the embedding through them by far more than the sensitivity 2 sqrt(2)/rows; give lengthscales"
            )
        if self.weights == "crossfit" or self.trainer == "exact":
            key = 'weights = "crossfit"' if self.weights == "crossfit" else 'trainer = "exact"'
            raise ValueError(
                f"noise hides nothing with {key}, which sends normal equations of the same rows without noise; use "
                'weights = "paper" or "exact" with trainer = "newton" or "fedavg"'
            )
        return self

    @model_validator(mode="after")
    def _network_fits(self) -> Self:
        if self.trainer != "exact" and self.rounds < 2:
            raise ValueError(f"rounds is 1, and round 1 finds the weights; give at least 2 for {self.trainer}")
        if self.kept_apart == 1:
            raise ValueError("kept_apart is 1, which would keep all rows apart; give at least 2, or 0 for none")
        if self.trainer == "fedavg":
            try:
                self.network.spec(LearningTask.REGRESSION, math.prod(self.network.image), 1)
            except ConfigError as err:
                raise ValueError(str(err)) from err
        return self
