"""Settings of the method `reweight`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.reweight.ratio_spec import RatioModel
from kernfed.methods.reweight.ratios_section import Positive, RatiosSection
from kernfed.methods.shared_settings import BY_ROWS, NO_RIDGE_ALONE, ChosenRidge, NetworkSection
from kernfed.models.network_spec import NetworkKind, make_network_spec
from kernfed.section import Label, MethodSection, Only, Unused

NETWORK = Only(trainer=("adam", "fedavg"))


class NormedNetworkSection(NetworkSection):
    """The network that the trainers `adam` and `fedavg` train, on the standardised columns."""

    kind: NetworkKind = Field(
        NetworkKind.MLP, description="linear, mlp, cnn (LeNet), or own: a module that every client file names."
    )
    source: Annotated[Label | None, Only(kind="own")] = Field(
        None, description="The NAME of its [networks.NAME] in the client files."
    )
    batch_norm: Annotated[Literal["none", "average", "own"], Only(kind=("mlp", "cnn", "own"))] = Field(
        "none",
        description="Normalise hidden layers over the rows of a batch. average: means and variances "
        "are averaged over clients; own: each client keeps its normalisation to itself (FedBN), for trainer fedavg. "
        "Of kind own: what becomes of the batch normalisation and the buffers that the module has; unset: average.",
    )

    @property
    def own_name(self) -> str:
        """See `NetworkSection.own_name`."""
        return self.source or ""

    @model_validator(mode="before")
    @classmethod
    def _moving(cls, data: Any) -> Any:
        """A module of one's own has the buffers that it has."""
        if isinstance(data, Mapping) and data.get("kind") == NetworkKind.OWN:
            return {"batch_norm": "average", **data}
        return data

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.kind is NetworkKind.OWN and self.source is None:
            raise ValueError('kind = "own" needs source, the NAME of [networks.NAME] in every client file; add it')
        if self.kind is NetworkKind.OWN and self.batch_norm == "none":
            raise ValueError('batch_norm = "none" says nothing of a module of one\'s own; use "average" or "own"')
        return self

    @property
    def normed(self) -> bool:
        """Whether hidden layers have batch normalisation."""
        return self.batch_norm != "none"


class ReweightSettings(MethodSection):
    """One model that is right for the clients' test distributions: rows are weighed by density ratios."""

    unused = (
        Unused("features", "trains a network on the columns, without a feature map", NETWORK),
        replace(NO_RIDGE_ALONE, where=NETWORK),
        Unused("data.validation_fraction", "is made for the test rows, and other rows cannot stand for them"),
    )

    name: Literal["reweight"]
    scope: Literal["all", "own", "target"] = Field(
        "all",
        description="Whose test points the model is for. all: every client's (FTW-ERM); own: each client's its own "
        "(FITW-ERM), nothing leaves; target: those of one client, of which an unlabelled sample is shared.",
    )
    target: Annotated[str | None, Only(scope="target")] = Field(
        None, max_length=63, description="The name of that client."
    )
    on_refusal: Annotated[
        Literal["stop", "leave-out", "own"], Only({"ratios.source": "matching"}, scope=("all", "target"))
    ] = Field(
        "stop",
        description="When a client's policy refuses to share what ratios need (sums over rows; a sample with "
        "denominator client): stop the job, go on without its test points (and, with ratios to the mixture, without "
        'its rows), or go on with scope = "own" for all.',
    )
    num_points: Annotated[int, Only({"ratios.source": "matching"}, scope=("all", "target"))] = Field(
        1000,
        ge=2,
        le=10_000_000,
        description="Unlabelled test points of a client that count; where they are shared its policy may allow fewer.",
    )
    trainer: Literal["newton", "adam", "fedavg"] = Field(
        "newton",
        description="newton: weighted ridge on the feature map; adam: a network, by the clients' weighted gradients "
        "and a step of Adam at the coordinator (the paper's); fedavg: a network, by averaged local steps.",
    )
    client_weights: Literal["rows", "effective", "equal"] = Field(
        "rows",
        description="Weight of a client in means: by its training rows, by what its weighted rows are worth, or the "
        "same for all, as in the paper.",
    )
    ridge: Annotated[ChosenRidge, Only(trainer="newton")] = BY_ROWS
    tolerance: Annotated[float, Only(trainer="newton")] = Field(
        1e-8, gt=0, lt=1, description="Certified relative distance at which it is done."
    )
    rounds: int = Field(50, ge=1, le=1_000_000, description="Rounds at most; with newton for each model it compares.")
    client_fraction: Annotated[float, NETWORK] = Field(
        1.0, gt=0, le=1, description="Share of the clients drawn for a round, by the job's seed; at least one is."
    )
    learning_rate: Annotated[Positive, Only(trainer="fedavg")] = Field(0.05, description="Of the clients' steps.")
    local_steps: Annotated[int, Only(trainer="fedavg")] = Field(
        5, ge=1, le=100_000, description="Gradient steps of a client in a round."
    )
    proximal: Annotated[float, Only(trainer="fedavg")] = Field(
        0.0,
        ge=0,
        le=1e3,
        description="μ of a client's loss + (μ/2)|θ - θ_0|², which holds its steps near the round's network (FedProx); "
        "means and variances of batch normalisation apart.",
    )
    optimiser: Annotated[Literal["average", "adam", "yogi"], Only(trainer="fedavg")] = Field(
        "average",
        description="What becomes of the clients' mean movement: it is taken as it is (FedAvg), or makes a step of "
        "Adam (FedAdam) or of Yogi (FedYogi) at the coordinator.",
    )
    step_size: Annotated[Positive, Only(trainer="adam"), Only(trainer="fedavg", optimiser=("adam", "yogi"))] = Field(
        1e-3, description="Of the coordinator's Adam or Yogi."
    )
    batch_size: Annotated[int, NETWORK] = Field(64, ge=0, description="Rows per gradient; 0: all.")
    weight_decay: Annotated[float, NETWORK] = Field(
        0.0, ge=0, le=1e3, description="λ of loss + (λ/2)|θ|², without biases."
    )
    average_last: Annotated[int, NETWORK] = Field(
        0, ge=0, le=1_000_000, description="The model is the mean over so many last rounds; 0: the last."
    )
    compare: bool = Field(
        True,
        description="Train without weights (fedavg) and with own ratios (own) beside, from the same start and batches.",
    )
    compare_spectra: bool = Field(
        False,
        description="Tell before round 1 whether eigenvalues of training and test rows meet Theorem 2's condition.",
    )
    deliver: Annotated[Literal["better", "better-on-test", "weighted"], Only(compare=True)] = Field(
        "better",
        description="better: the job's model is the weighted or the unweighted one, as training rows say to which "
        "neither was fitted, weighed for the test points; both are then fitted to all rows, and the other lies beside. "
        "better-on-test: as the test rows say whose metrics are shown; weighted: the weighted one in any case.",
    )
    network: Annotated[NormedNetworkSection, NETWORK] = Field(NormedNetworkSection(), description="What is trained.")
    ratios: RatiosSection = Field(RatiosSection(), description="How density ratios are found.")

    def as_before(self) -> ReweightSettings:
        """The settings by which a job goes on that an earlier release began: with the rules of then, by their names."""
        ratios = self.ratios.model_copy(update={"denominator": "client", "classifier": "own", "temper": False})
        deliver = "better-on-test" if self.deliver == "better" else self.deliver
        return self.model_copy(update={"ratios": ratios, "deliver": deliver})

    @model_validator(mode="before")
    @classmethod
    def _denominator_by_scope(cls, data: Any) -> Any:
        """Ratios are to a client's rows with another scope than all, and with weights that mixtures do not have."""
        if not isinstance(data, Mapping):
            return data
        if data.get("scope", "all") == "all" and data.get("client_weights") != "effective":
            return data
        ratios = data.get("ratios", {})
        if not isinstance(ratios, Mapping):
            return data
        settled = {"denominator": "client"}
        if data.get("scope") == "own" and ratios.get("source") == "black-box":
            settled["classifier"] = "own"
        return {**data, "ratios": {**settled, **ratios}}

    @property
    def num_models(self) -> int:
        """Models that are trained: the job's own, those that it is compared with, and two that choose."""
        if not self.compare:
            return 1
        return 2 + (self.scope != "own") + 2 * (self.deliver == "better")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.scope == "target" and self.target is None:
            raise ValueError('scope = "target" needs target, the name of a client; add it')
        if self.scope == "target" and self.on_refusal == "leave-out":
            raise ValueError('on_refusal = "leave-out" would leave no test points of the target; use "stop" or "own"')
        if self.ratios.denominator == "mixture" and (self.scope != "all" or self.client_weights == "effective"):
            raise ValueError(
                'ratios.denominator = "mixture" is for scope = "all" and client_weights = "rows" or "equal"; set that, '
                'or use "client"'
            )
        if self.scope == "own" and self.ratios.pools_classifier:
            raise ValueError(
                'ratios.classifier = "pooled" sends sums, and with scope = "own" nothing leaves; use "own"'
            )
        if self.network.batch_norm == "own" and (self.trainer != "fedavg" or self.average_last):
            raise ValueError(
                'network.batch_norm = "own" is FedBN: use it with trainer = "fedavg" and without average_last'
            )
        if self.average_last > self.rounds:
            raise ValueError(f"average_last is {self.average_last}, more than the {self.rounds} rounds")
        return self

    @model_validator(mode="after")
    def _networks_fit(self) -> Self:
        checks: list[tuple[NetworkKind, tuple[int, ...], list[int], bool]] = []
        if self.trainer != "newton" and self.network.kind is not NetworkKind.OWN:
            checks.append((self.network.kind, self.network.all_widths, self.network.image, self.network.normed))
        if self.ratios.model is not RatioModel.LINEAR:
            kind = NetworkKind.CNN if self.ratios.model is RatioModel.CNN else NetworkKind.MLP
            checks.append((kind, tuple(self.ratios.widths) or ((6, 16, 120, 84)), self.ratios.image, False))
        for kind, widths, image, normed in checks:
            try:
                make_network_spec(kind, LearningTask.REGRESSION, math.prod(image), 1, widths, tuple(image), normed)
            except ConfigError as err:
                raise ValueError(str(err)) from err
        return self
