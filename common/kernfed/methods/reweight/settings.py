"""Settings of the method `reweight`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.reweight.ratio_spec import (
    DEFAULT_RATIOS,
    PLAIN_COLUMNS,
    SMALLEST_SIDE,
    Divergence,
    RatioFeatures,
    RatioInput,
    RatioModel,
    RatioSpec,
)
from kernfed.methods.shared_settings import BY_ROWS, NO_RIDGE_ALONE, RIDGE_RULE, NetworkSection, RidgeNumber, Width
from kernfed.models.network_spec import NetworkKind, make_network_spec
from kernfed.section import GIVEN, MethodSection, Only, Section, Unused

Positive = Annotated[float, Field(gt=0)]
FEW_COMPONENTS = 8
"""Principal components of features: with kernels, what many columns add is mostly noise."""


NETWORK = Only(trainer=("adam", "fedavg"))
MATCHING = Only(source="matching")
BINS = Only(source="matching", denominator="client")
"""Bins are made by each client of its own rows and the test points."""
BY_GRADIENT = (
    Only(source="matching", model=("mlp", "cnn")),
    Only(source="matching", divergence=tuple(d for d in Divergence if d is not Divergence.LSIF)),
)
"""Ratios that are not found in closed form."""


class RatiosSection(Section):
    """How density ratios are found."""

    source: Literal["matching", "labels", "black-box"] = Field(
        "matching",
        description="matching: from samples of training and test points; labels: exact under label shift, from the "
        "classes of the clients' test rows; black-box: label shift too, without test labels.",
    )
    denominator: Literal["mixture", "client"] | None = Field(
        None,
        description="Whose training rows ratios are to. mixture, for scope all: those of all clients together, one "
        "ratio fitted from sums, so that no unlabelled row leaves; client: each client's own, as in the paper. Unset: "
        "mixture with scope all, unless another key asks for what only client has.",
    )
    classifier: Annotated[Literal["pooled", "own"], Only(source="black-box")] = Field(
        "pooled",
        description="Whose predictions tell the test classes. pooled: one classifier of all clients' rows, from sums, "
        "with one confusion matrix; own: each client's own, the only one with scope own.",
    )
    features: Annotated[RatioInput, MATCHING] = Field(
        RatioInput.COLUMNS,
        description="What of a row the ratio is a function of, and what of it is shared: its standardised "
        "columns; of images convolutions, the answers of random filters; backbone, a frozen extractor.",
    )
    backbone: Annotated[str | None, Only(source="matching", features="backbone")] = Field(
        None, max_length=63, description="Its name, [backbones.NAME] of every client file."
    )
    num_features: Annotated[int, MATCHING] = Field(
        0,
        ge=0,
        le=100_000,
        description="Project these features (or columns) at random to so many; 0: all of them.",
    )
    num_components: Annotated[int | None, MATCHING] = Field(
        None,
        ge=0,
        le=100_000,
        description="The ratio is a function of so many principal components of a client's rows and the test "
        "points; 0: of all columns. Unset: 8 of features, all of columns.",
    )
    pixel_max: Annotated[
        Positive,
        Only(source="matching", features="convolutions"),
        Only(source="matching", features="backbone", image=GIVEN),
    ] = Field(255.0, description="What is white in the columns, e.g. 255 or 1.")
    divergence: Annotated[Divergence, MATCHING] = Field(
        Divergence.LSIF, description="f of the divergence; lsif (least squares), ukl, logistic, pu or robust."
    )
    model: Annotated[RatioModel, MATCHING] = Field(
        RatioModel.LINEAR,
        description="What the ratio is a function of: linear (random features; with lsif in closed form, "
        "tuned by cross-validation), mlp or cnn.",
    )
    non_negative: Annotated[bool, *BY_GRADIENT] = Field(
        True, description="Keep the divergence's first part at or above 0 (Algorithm 1)."
    )
    hold_out: Annotated[float, *BY_GRADIENT] = Field(
        0.2, ge=0, le=0.9, description="Share of rows and points that decide when to stop; 0: all steps."
    )
    num_steps: Annotated[int, *BY_GRADIENT] = Field(1500, ge=1, le=1_000_000, description="Gradient steps at most.")
    temper: Annotated[bool, *BY_GRADIENT] = Field(
        True,
        description="Draw ratios towards equal weights, as far as the rows held out prefer it, and until the weighted "
        "rows are worth a twentieth of the rows at least.",
    )
    learning_rate: Annotated[float, *BY_GRADIENT] = Field(1e-3, gt=0, le=10, description="Of Adam.")
    batch_size: Annotated[int, *BY_GRADIENT] = Field(
        256, ge=1, le=1_000_000, description="Rows and points of a gradient step."
    )
    weight_decay: Annotated[float, *BY_GRADIENT] = Field(
        0.0, ge=0, le=1e6, description="λ of (λ/2)|θ|², without biases."
    )
    num_clusters: Annotated[int, BINS] = Field(
        30, ge=1, le=100_000, description="Bins (k-means) for the greatest ratio; 20 to 50."
    )
    min_cluster_rows: Annotated[int, BINS] = Field(
        5, ge=1, le=1_000_000, description="A bin with fewer training rows does not count for the greatest ratio."
    )
    num_frequencies: Annotated[int, Only(source="matching", model="linear")] = Field(
        200, ge=1, le=100_000, description="Random frequencies."
    )
    widths: Annotated[list[Width], Only(source="matching", model=("mlp", "cnn"))] = Field(
        [], max_length=16, description="Hidden layers; empty: defaults."
    )
    image: Annotated[
        list[Width],
        Only(source="matching", model="cnn"),
        Only(source="matching", features=("convolutions", "backbone")),
    ] = Field(
        [],
        max_length=3,
        description="[channels, height, width] of a row; with a backbone of rows that are no images left out.",
    )
    power: Annotated[float, Only(source="matching", divergence="robust")] = Field(
        1.0, ge=1e-6, le=100, description="Of the divergence."
    )
    lsif_constant: Annotated[
        bool, Only(source="matching", divergence="lsif", model=("mlp", "cnn"), non_negative=True)
    ] = Field(
        True, description="l1 of lsif is (z² - 1)/2 (the definition); false: z²/2, as the paper's formulas have it."
    )
    clip: Annotated[Literal["auto", "bound", "none"] | Positive, MATCHING] = Field(
        "auto",
        description="Cut ratios at the greatest ratio of a bin (bound), there where rows held out say that it helps "
        "(auto), at this many times their mean, or not (none). With ratios to the mixture, which have no bins, auto is "
        "none.",
    )

    def value_in_effect(self, key: str) -> object:
        """See `Section.value_in_effect`."""
        if key != "denominator" or self.denominator is not None:
            return getattr(self, key)
        asked = self.model_fields_set & {"num_clusters", "min_cluster_rows"} or self.clip == "bound"
        return "client" if self.source == "matching" and (asked or not self._closed_form) else "mixture"

    @property
    def mixes(self) -> bool:
        """Whether ratios for all clients' test points are to the mixture of all training rows."""
        return self.value_in_effect("denominator") == "mixture"

    @property
    def pools_classifier(self) -> bool:
        """Whether one classifier of all clients' rows tells the test classes."""
        return self.source == "black-box" and self.classifier == "pooled"

    @property
    def _closed_form(self) -> bool:
        return self.model is RatioModel.LINEAR and self.divergence is Divergence.LSIF

    def spec(self, seed: int) -> RatioSpec:
        """The estimator as clients get it."""
        return RatioSpec(
            divergence=self.divergence,
            model=self.model,
            non_negative=self.non_negative,
            num_components=self._num_components,
            num_clusters=self.num_clusters,
            min_cluster_rows=self.min_cluster_rows,
            num_frequencies=self.num_frequencies,
            widths=tuple(self.widths),
            image=tuple(self.image),
            num_steps=self.num_steps,
            hold_out=self.hold_out,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            power=self.power,
            lsif_constant=self.lsif_constant,
            clip=0.0 if isinstance(self.clip, str) else self.clip,
            clip_at_bound=self.clip in ("bound", "auto"),
            clip_held_out=self.clip == "auto",
            temper=self.temper,
            seed=seed,
        )

    @property
    def _num_components(self) -> int:
        if self.num_components is None:
            return 0 if self.features is RatioInput.COLUMNS else FEW_COMPONENTS
        return self.num_components

    def map(self, seed: int) -> RatioFeatures:
        """What ratios are fitted on, as clients get it."""
        image = tuple(self.image) if self.features is not RatioInput.COLUMNS else ()
        return RatioFeatures(self.features, self.backbone or "", image, self.pixel_max, self.num_features, seed)

    @model_validator(mode="after")
    def _denominator_fits(self) -> Self:
        if self.denominator == "mixture" and self.source == "matching":
            if not self._closed_form:
                raise ValueError(
                    'denominator = "mixture" is fitted from sums, which model = "linear" and divergence = "lsif" alone '
                    'allow; use these, or denominator = "client"'
                )
            if self.clip == "bound":
                raise ValueError(
                    'clip = "bound" cuts at the ratios of bins, which denominator = "mixture" has not; give a number, '
                    'or use denominator = "client"'
                )
        return self

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        """Check the keys of the map against each other."""
        if self.features is RatioInput.BACKBONE and self.backbone is None:
            raise ValueError('features = "backbone" needs backbone, the name of an extractor; add it')
        if self.model is RatioModel.CNN and (self._num_components or not self.map(0).as_they_are):
            raise ValueError('model = "cnn" takes images, not their features or components; use "linear" or "mlp"')
        if self.features is RatioInput.CONVOLUTIONS or (self.features is RatioInput.BACKBONE and self.image):
            if len(self.image) != 3 or self.image[0] not in (1, 3):
                raise ValueError("image must be [channels, height, width] of a row, with 1 or 3 channels")
            if self.features is RatioInput.CONVOLUTIONS and min(self.image[1:]) < SMALLEST_SIDE:
                raise ValueError(f"image has a side of fewer than {SMALLEST_SIDE} pixels, too small for convolutions")
        return self


assert RatiosSection().spec(0) == DEFAULT_RATIOS  # noqa: S101  # the library and the job file have the same defaults
assert RatiosSection().map(0) == PLAIN_COLUMNS  # noqa: S101


class NormedNetworkSection(NetworkSection):
    """The network that the trainers `adam` and `fedavg` train, on the standardised columns."""

    batch_norm: Annotated[Literal["none", "average", "own"], Only(kind=("mlp", "cnn"))] = Field(
        "none",
        description="Normalise hidden layers over the rows of a batch. average: means and variances "
        "are averaged over clients; own: each client keeps its normalisation to itself (FedBN), for trainer fedavg.",
    )

    @property
    def normed(self) -> bool:
        """Whether hidden layers have batch normalisation."""
        return self.batch_norm != "none"


class ReweightSettings(MethodSection):
    """One model that is right for the clients' test distributions: rows are weighed by density ratios."""

    unused = (
        Unused("features", "trains a network on the columns, without a feature map", NETWORK),
        replace(NO_RIDGE_ALONE, where=NETWORK),
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
    ridge: Annotated[RidgeNumber | Literal["by-rows"], Only(trainer="newton")] = Field(
        BY_ROWS, description=f"Ridge of the objective. {RIDGE_RULE}"
    )
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
    step_size: Annotated[Positive, Only(trainer="adam")] = Field(1e-3, description="Of the coordinator's Adam.")
    batch_size: Annotated[int, NETWORK] = Field(64, ge=0, description="Rows per gradient; 0: all.")
    weight_decay: Annotated[float, NETWORK] = Field(
        0.0, ge=0, le=1e3, description="λ of loss + (λ/2)|θ|², without biases."
    )
    average_last: Annotated[int, NETWORK] = Field(
        0,
        ge=0,
        le=1_000_000,
        description="The model is the mean over so many last rounds; 0: the last.",
    )
    compare: bool = Field(
        True,
        description="Train without weights (fedavg) and with own ratios (own) beside, from the same start and batches.",
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
        checks = []
        if self.trainer != "newton":
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
