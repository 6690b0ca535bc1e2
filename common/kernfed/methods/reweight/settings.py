"""Settings of the method `reweight`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.toml_file import Section
from kernfed.methods.personalise.settings import NetworkSection
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
from kernfed.models.network_spec import NetworkKind, make_network_spec

Positive = Annotated[float, Field(gt=0)]
FEW_COMPONENTS = 8
"""Principal components of features: with kernels, what many columns add is mostly noise."""

Width = Annotated[int, Field(ge=1, le=100_000)]


class RatiosSection(Section):
    """How density ratios are found."""

    source: Literal["matching", "labels", "black-box"] = Field(
        "matching",
        description="matching: from samples of training and test points; labels: exact under label shift, from the "
        "classes of the clients' test rows; black-box: label shift too, without test labels.",
    )
    features: RatioInput = Field(
        RatioInput.COLUMNS,
        description="matching: what of a row the ratio is a function of, and what of it is shared: its standardised "
        "columns; of images convolutions, the answers of random filters; backbone, a frozen extractor.",
    )
    backbone: str | None = Field(
        None, max_length=63, description="backbone: its name, [backbones.NAME] of every client file."
    )
    num_features: int = Field(
        0,
        ge=0,
        le=100_000,
        description="matching: project these features (or columns) at random to so many; 0: all of them.",
    )
    num_components: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="matching: the ratio is a function of so many principal components of a client's rows and the test "
        "points; 0: of all columns. Unset: 8 of features, all of columns.",
    )
    pixel_max: Positive = Field(
        255.0, description="convolutions, and backbone of images: what is white in the columns, e.g. 255 or 1."
    )
    divergence: Divergence = Field(
        Divergence.LSIF, description="matching: f of the divergence; lsif (least squares), ukl, logistic, pu or robust."
    )
    model: RatioModel = Field(
        RatioModel.LINEAR,
        description="matching: what the ratio is a function of: linear (random features; with lsif in closed form, "
        "tuned by cross-validation), mlp or cnn.",
    )
    non_negative: bool = Field(
        True, description="matching by gradient steps: keep the divergence's first part at or above 0 (Algorithm 1)."
    )
    hold_out: float = Field(
        0.2,
        ge=0,
        le=0.9,
        description="matching by gradient steps: share of rows and points that decide when to stop; 0: all steps.",
    )
    num_steps: int = Field(1500, ge=1, le=1_000_000, description="matching: gradient steps at most.")
    learning_rate: float = Field(1e-3, gt=0, le=10, description="matching: of Adam.")
    batch_size: int = Field(256, ge=1, le=1_000_000, description="matching: rows and points of a gradient step.")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="matching by gradient steps: λ of (λ/2)|θ|².")
    num_clusters: int = Field(30, ge=1, le=100_000, description="Bins (k-means) for the greatest ratio; 20 to 50.")
    min_cluster_rows: int = Field(
        5, ge=1, le=1_000_000, description="A bin with fewer training rows does not count for the greatest ratio."
    )
    num_frequencies: int = Field(200, ge=1, le=100_000, description="Random frequencies of the linear model.")
    widths: list[Width] = Field([], max_length=16, description="Hidden layers of mlp or cnn; empty: defaults.")
    image: list[Width] = Field(
        [],
        max_length=3,
        description="cnn, convolutions, and backbone of images: [channels, height, width] of a row; else left out.",
    )
    power: float = Field(1.0, ge=1e-6, le=100, description="Of the robust divergence.")
    lsif_constant: bool = Field(
        True, description="l1 of lsif is (z² - 1)/2 (the definition); false: z²/2, as the paper's formulas have it."
    )
    clip: Literal["bound", "none"] | Positive = Field(
        "bound",
        description="matching: cut ratios at the greatest ratio of a bin, at this many times their mean, or not.",
    )

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
            clip_at_bound=self.clip == "bound",
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
    def _features_fit(self) -> Self:
        """Check the keys of the map against each other."""
        if self.source != "matching" and not self.map(0).as_they_are:
            raise ValueError(f'features and num_features are for source = "matching", not "{self.source}"')
        if (self.features is RatioInput.BACKBONE) != (self.backbone is not None):
            raise ValueError('backbone names an extractor with features = "backbone", and is left out otherwise')
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

    batch_norm: Literal["none", "average", "own"] = Field(
        "none",
        description="Normalise hidden layers over the rows of a batch (not for linear). average: means and variances "
        "are averaged over clients; own: each client keeps its normalisation to itself (FedBN), for trainer fedavg.",
    )


class ReweightSettings(Section):
    """One model that is right for the clients' test distributions: rows are weighed by density ratios."""

    name: Literal["reweight"]
    scope: Literal["all", "own", "target"] = Field(
        "all",
        description="Whose test points the model is for. all: every client's (FTW-ERM), of which unlabelled samples "
        "are pooled; own: each client's its own (FITW-ERM), nothing leaves; target: those of one client.",
    )
    target: str | None = Field(None, max_length=63, description="target: the name of that client.")
    on_refusal: Literal["stop", "leave-out", "own"] = Field(
        "stop",
        description="When a client's policy refuses to share a sample: stop the job, go on without its test points, "
        'or go on with scope = "own" for all.',
    )
    num_points: int = Field(
        1000, ge=2, le=10_000_000, description="Unlabelled test points asked of a client; its policy may allow fewer."
    )
    trainer: Literal["newton", "adam", "fedavg"] = Field(
        "newton",
        description="newton: weighted ridge on the feature map; adam: a network, by the clients' weighted gradients "
        "and a step of Adam at the coordinator (the paper's); fedavg: a network, by averaged local steps.",
    )
    client_weights: Literal["equal", "rows"] = Field(
        "equal", description="Weight of a client in means: the same for all, as in the paper, or by training rows."
    )
    ridge: float = Field(1e-3, gt=0, le=1e6, description="newton: ridge of the objective.")
    tolerance: float = Field(1e-8, gt=0, lt=1, description="newton: certified relative distance at which it is done.")
    rounds: int = Field(50, ge=1, le=1_000_000, description="Rounds at most; with newton for each model it compares.")
    client_fraction: float = Field(
        1.0,
        gt=0,
        le=1,
        description="adam and fedavg: share of the clients drawn for a round, by the job's seed; at least one is.",
    )
    learning_rate: Positive = Field(0.05, description="fedavg: of the clients' steps.")
    local_steps: int = Field(5, ge=1, le=100_000, description="fedavg: gradient steps of a client in a round.")
    step_size: Positive = Field(1e-3, description="adam: of the coordinator.")
    batch_size: int = Field(64, ge=0, description="adam and fedavg: rows per gradient; 0: all.")
    weight_decay: float = Field(0.0, ge=0, le=1e3, description="adam and fedavg: λ of loss + (λ/2)|θ|².")
    average_last: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="adam and fedavg: the model is the mean over so many last rounds; 0: the last.",
    )
    compare: bool = Field(
        True,
        description="Train without weights (fedavg) and with own ratios (own) beside, from the same start and batches.",
    )
    network: NormedNetworkSection = Field(NormedNetworkSection(), description="adam and fedavg: what is trained.")
    ratios: RatiosSection = Field(RatiosSection(), description="How density ratios are found.")

    @property
    def num_models(self) -> int:
        """Models that are trained: the job's own, and those that it is compared with."""
        return 1 + (self.compare + (self.compare and self.scope != "own"))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.scope == "target") != (self.target is not None):
            raise ValueError('target names a client with scope = "target", and is left out otherwise')
        if self.scope == "target" and self.on_refusal == "leave-out":
            raise ValueError('on_refusal = "leave-out" would leave no test points of the target; use "stop" or "own"')
        if self.trainer == "newton" and self.client_fraction < 1:
            raise ValueError("client_fraction is for trainers adam and fedavg; newton needs all clients; leave it out")
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
            normed = self.network.batch_norm != "none"
            checks.append((self.network.kind, self.network.all_widths, self.network.image, normed))
        if self.ratios.model is not RatioModel.LINEAR:
            kind = NetworkKind.CNN if self.ratios.model is RatioModel.CNN else NetworkKind.MLP
            checks.append((kind, tuple(self.ratios.widths) or ((6, 16, 120, 84)), self.ratios.image, False))
        for kind, widths, image, normed in checks:
            columns = 1
            for side in image:
                columns *= side
            try:
                make_network_spec(kind, LearningTask.REGRESSION, columns, 1, widths, tuple(image), normed)
            except ConfigError as err:
                raise ValueError(str(err)) from err
        return self
