"""The section `[method.ratios]` of the method `reweight`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

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
from kernfed.methods.shared_settings import Width
from kernfed.section import GIVEN, Only, Section

Positive = Annotated[float, Field(gt=0)]
FEW_COMPONENTS = 8
"""Principal components of features: with kernels, what many columns add is mostly noise."""

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
    stand_in: Annotated[Literal["untold", "all"], Only(source="black-box")] = Field(
        "untold",
        description="What the training shares stand in for where the classifier hardly tells some classes apart. "
        "untold: for what its predictions do not tell; all: for the shares of all classes.",
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
    def all_or_nothing(self) -> bool:
        """Whether a classifier that hardly tells some classes apart tells nothing of any."""
        return self.stand_in == "all"

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
