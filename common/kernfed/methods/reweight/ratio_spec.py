"""The estimate of a density ratio, as a specification that travels; needs no torch.

Source: Ramezani-Kebrya, Liu, Pethick, Chrysos & Cevher, Federated learning under covariate shifts with generalization
guarantees (the FTW-ERM paper), Section 3 and Table 4.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from kernfed.federation.messages.base import MaxLength, Name, Range


class Divergence(enum.StrEnum):
    """Convex functions f of Table 4, each with the estimator that it gives."""

    LSIF = "lsif"
    """(z - 1)²/2: least squares (Kanamori et al., 2009)."""
    UKL = "ukl"
    """z log z - z: Kullback-Leibler importance estimation (Nguyen et al., 2010)."""
    LOGISTIC = "logistic"
    """z log z - (z + 1) log(z + 1): logistic regression."""
    PU = "pu"
    """log(1 - z) + z (log z - log(1 - z)) on (0, 1): positive and unlabelled points (Kato et al., 2019)."""
    ROBUST = "robust"
    """(z^(a+1) - z)/a: robust to outliers (Basu et al., 1998)."""


class RatioModel(enum.StrEnum):
    """Model of the ratio."""

    LINEAR = "linear"
    """Random features of a Gaussian kernel and a constant; with `lsif` in closed form, ridge and lengthscale by
    cross-validation."""
    MLP = "mlp"
    CNN = "cnn"


@dataclass(frozen=True, slots=True)
class RatioSpec:
    """An estimator of r(x) = Σ_l p_l^te(x) / p^tr(x), up to the samples."""

    divergence: Divergence
    model: RatioModel
    non_negative: bool
    """Whether S of (3.2) is held at or above 0 by Algorithm 1; else the plain divergence, which can run away."""
    num_components: Annotated[int, Range(0, 100_000)]
    """Principal components of training rows and test points between which the ratio is estimated; 0: all columns."""
    num_clusters: Annotated[int, Range(1, 100_000)]
    """Bins by k-means, for C = 1/(greatest ratio of a bin)."""
    min_cluster_rows: Annotated[int, Range(1, 1_000_000)]
    """A bin with fewer training rows does not count for the greatest ratio."""
    num_frequencies: Annotated[int, Range(1, 100_000)]
    """Of the linear model."""
    widths: Annotated[tuple[int, ...], MaxLength(16), Range(1, 100_000)]
    """Of a network; see `kernfed.models.network_spec`."""
    image: Annotated[tuple[int, ...], MaxLength(3), Range(1, 100_000)]
    """Channels, height and width of a row (cnn), else empty."""
    num_steps: Annotated[int, Range(1, 1_000_000)]
    """Gradient steps at most; where held-out points say so it ends earlier."""
    hold_out: Annotated[float, Range(0, 0.9)]
    """Share of training rows and test points on which the divergence decides when to stop; 0: all steps are taken, on
    all points."""
    batch_size: Annotated[int, Range(1, 1_000_000)]
    """Training rows, and test points, of a step."""
    learning_rate: Annotated[float, Range(0, 10)]
    """Of Adam."""
    weight_decay: Annotated[float, Range(0, 1e6)]
    """λ of (λ/2) |θ|²."""
    power: Annotated[float, Range(1e-6, 100)]
    """a of `robust`."""
    lsif_constant: bool
    """Whether l1 of `lsif` is (z² - 1)/2, as the definition says, or z²/2, as the paper's formulas have it: it moves
    the switch of Algorithm 1."""
    clip: Annotated[float, Range(0)]
    """Ratios above this many times their mean are cut down to it; 0: none are."""
    clip_at_bound: bool
    """Whether ratios above the greatest ratio of a bin are cut down to it."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of draws."""
    temper: bool = False
    """Whether ratios that were found by steps are drawn towards equal weights, as far as rows held out prefer."""
    clip_held_out: bool = False
    """Whether ratios are cut at the greatest ratio of a bin only where that lowers the divergence on rows held out."""


class RatioInput(enum.StrEnum):
    """Input of the ratio: the part of a row that it is a function of."""

    COLUMNS = "columns"
    """The standardised columns."""
    CONVOLUTIONS = "convolutions"
    """Random filters of the row as an image; see `kernfed.methods.reweight.tensors.ratio_features`."""
    BACKBONE = "backbone"
    """A frozen feature extractor of every client's file."""


@dataclass(frozen=True, slots=True)
class RatioFeatures:
    """A frozen map of rows to what ratios are fitted on, and to what of them is shared."""

    source: RatioInput
    backbone: Name
    """Of the client files; empty for other sources."""
    image: Annotated[tuple[int, ...], MaxLength(3), Range(1, 100_000)]
    """Channels, height and width of a row that is an image; else empty."""
    pixel_max: Annotated[float, Range(0)]
    """Value of white in such a row, whose columns are not standardised for it; above 0."""
    num_features: Annotated[int, Range(0, 100_000)]
    """Numbers to which the outcome is projected at random; 0: it stays as it is."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of filters and directions."""

    @property
    def as_they_are(self) -> bool:
        """Whether ratios are fitted on the standardised columns themselves."""
        return self.source is RatioInput.COLUMNS and self.num_features == 0


FILTER_SIZE = 5
"""Of random convolutions, in pixels each way."""
GRID = 3
"""Parts of the picture, each way, over which a filter's answers are averaged."""
SMALLEST_SIDE = FILTER_SIZE + GRID - 1
"""Of an image for random convolutions, in pixels."""

HISTOGRAM_EDGES = (0.0, *(2.0**e for e in range(-6, 8)))
"""Upper edges of the bins that weights are counted in: 0, then powers of 2; the last bin is above."""

DEFAULT_RATIOS = RatioSpec(
    divergence=Divergence.LSIF,
    model=RatioModel.LINEAR,
    non_negative=True,
    num_components=0,
    num_clusters=30,
    min_cluster_rows=5,
    num_frequencies=200,
    widths=(),
    image=(),
    num_steps=1500,
    hold_out=0.2,
    batch_size=256,
    learning_rate=1e-3,
    weight_decay=0.0,
    power=1.0,
    lsif_constant=True,
    clip=0.0,
    clip_at_bound=True,
    clip_held_out=True,
    temper=True,
    seed=0,
)

PLAIN_COLUMNS = RatioFeatures(RatioInput.COLUMNS, "", (), 255.0, 0, 0)
"""Ratios are fitted on the standardised columns."""
