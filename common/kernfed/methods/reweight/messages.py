"""Steps that weigh training rows by density ratios, and train networks on them.

Variants are named: `all`, `own` or `target` by whose test points the ratios are for, `mixture` where these are all and
the ratios to the mixture of all training rows, `fedavg` where all rows weigh the same. P columns of what ratios are
fitted on, N test points, K test distributions, C outputs, V variants, Q parameters of a network.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Exact,
    Kind,
    MaxLength,
    Name,
    Names,
    R_co,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.methods.reweight.ratio_spec import RatioFeatures, RatioSpec
from kernfed.models.network_spec import NetworkSpec

Count = Annotated[int, Range(0, 2**53)]
Networks = Annotated[Array, Shape("V", "Q")]
_ROUNDING = 1e-5
"""By which sums over rows may differ, rounded to float32."""

UNWEIGHTED = "fedavg"
"""The variant where all rows weigh the same."""
APART = "-apart"
"""Ends the name of a variant whose model is fitted without the rows that each client keeps apart."""
APART_SHARE = 0.2
"""Share of a client's training rows that it keeps apart."""
MIXTURE = "mixture"
"""The variant of all test points over the mixture of all clients' training rows."""


class PriorSource(enum.StrEnum):
    """Source of a client's test prior."""

    LABELS = "labels"
    """The labels of its test rows."""
    BLACK_BOX = "black-box"
    """Predictions of a classifier on its unlabelled test points; see `kernfed.methods.reweight.label_shift`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatiosHeld(Reply):
    """Ratios that this client has, and the sample that it would share."""

    num_rows: Rows
    held: Names
    """Variants whose ratios are here."""
    shares: bool
    """Whether its policy lets unlabelled samples leave."""
    num_points: Count
    """Test points that it would give at most."""
    num_columns: Count
    """P of its rows under the map asked about."""
    fingerprint: Name
    """Of the backbone behind the map; empty without one."""
    shares_sums: bool = False
    """Whether its policy lets sums over rows leave: `sufficient_statistic` and `mean_embedding`."""
    median_distance: Annotated[float, Range(0)] = 0.0
    """Median distance between training rows and test points under the map, where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRatiosRequest(Request[RatiosHeld]):
    """Say which ratios are here, and whether test points may be asked for."""

    step = "reweight.look_up"
    reply = RatiosHeld
    kinds = (Kind.SUMMARY,)

    num_points: Annotated[int, Range(1, 10_000_000)]
    """Test points that the job asks of a client at most."""
    features: RatioFeatures
    """The map of rows to what ratios are fitted on."""
    distances: bool = False
    """Whether the median distance is asked for."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Draws the rows whose distances are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlabelledSample(Reply):
    """Test points without their labels."""

    points: Annotated[Array, Shape("N", "P")]
    """Standardised columns, or what the map made of the rows; drawn without replacement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSampleRequest(Request[UnlabelledSample]):
    """Draw a sample of the client's unlabelled or test rows."""

    step = "reweight.share_sample"
    reply = UnlabelledSample
    kinds = (Kind.UNLABELLED_SAMPLE,)

    num_points: Annotated[int, Range(1, 10_000_000)]
    """Points at most."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the draw; the client derives its own stream from it by name."""
    features: RatioFeatures
    """The map of rows to what leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatiosKept(Reply):
    """The ratios are fitted, and kept at the client."""

    num_rows: Rows
    lacking: Annotated[str, MaxLength(512)] = ""
    """Why there are none, where `optional` allowed that; empty where they are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRatiosRequest(Request[RatiosKept]):
    """Fit the ratios of training rows to test points, and keep them."""

    step = "reweight.match_ratios"
    reply = RatiosKept
    kinds = (Kind.SUMMARY,)

    variant: Name
    """Name of the variant."""
    own: bool
    """Whether the test points are the client's own, which then stay there; `points` is empty."""
    points: Annotated[Array, Shape("N", "P")]
    """Test points of all clients that count, in an order that tells nothing."""
    point_weights: Annotated[Array, Shape("N")]
    """1/n of each point, n the number of points that its client gave; sum K."""
    ratios: RatioSpec
    features: RatioFeatures
    """The map under which the points came."""
    optional: bool = False
    """Whether the job goes on where there are no such ratios: then the reply says why, and nothing fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrior(Reply):
    """Shares of the classes among a client's test points."""

    diagnostics = ("smallest_singular_value",)

    num_rows: Rows
    prior: Annotated[Array, Shape("C"), Exact()]
    """On the simplex."""
    smallest_singular_value: Annotated[float, Range(0)]
    """Of the classifier's confusion matrix; 1 where labels were counted."""
    fallback: Name
    """Why the training prior stands in; empty where it does not."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.prior < -_ROUNDING).any() or abs(float(self.prior.sum()) - 1.0) > _ROUNDING:
            yield "the shares of the classes are negative, or do not add up to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPriorRequest(Request[ClassPrior]):
    """Count or estimate the classes of the test points."""

    step = "reweight.class_prior"
    reply = ClassPrior
    kinds = (Kind.SUMMARY,)

    source: PriorSource
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the classifier's folds."""
    all_or_nothing: bool = False
    """Whether the training shares stand in for all classes where the classifier hardly tells some apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRatiosRequest(Request[RatiosKept]):
    """Ratios of the classes' shares, for every training row by its class."""

    step = "reweight.label_ratios"
    reply = RatiosKept
    kinds = (Kind.SUMMARY,)

    variant: Name
    """Name of the variant."""
    own: bool
    """Whether the test prior is the client's own, which then stays there; `test_priors` is empty."""
    test_priors: Annotated[Array, Shape("K", "C"), Exact()]
    source: PriorSource
    """Of the own prior."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the classifier's folds."""
    optional: bool = False
    """As in `MatchRatiosRequest`."""
    all_or_nothing: bool = False
    """As in `ClassPriorRequest`, of the own prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSummary(Reply):
    """Summary of a client's ratios for people, of the first variant in use."""

    diagnostics = ("total", "mean", "greatest", "effective_rows", "bound", "uncovered", "held_out")

    num_rows: Rows
    total: Annotated[float, Range(0)]
    """K, the mean that ratios over the training distribution must have. With ratios to the mixture of all clients'
    training rows 1, their mean over that mixture."""
    mean: float
    """Mean over the training rows before ratios were cut and scaled. With ratios to the mixture: after the cut, and
    over K it is what a row of this client counts for, beside one of the mixture."""
    greatest: Annotated[float, Range(0)]
    """Greatest weight; weights are ratios over their mean here, so of mean 1."""
    effective_rows: Annotated[float, Range(0)]
    """(Σ w)²/Σ w²."""
    num_cut: Count
    """Ratios that were cut down."""
    bound: Annotated[float, Range(0)]
    """Greatest ratio of a bin; of a class, for label shift."""
    uncovered: Annotated[float, Range(0, 1)]
    """Share of the test points that no training row stands for."""
    num_steps: Count
    """Gradient steps of the estimator; 0: closed form, or label shift."""
    histogram: Annotated[Array, Shape(16), Whole()]
    """Training rows by weight: 0, then up to 2^-6, 2^-5, ..., 2^7, and above; int64."""
    target_mean: Annotated[Array, Shape("C"), Exact()]
    """Weighted mean of the (encoded) targets."""
    target_square: Annotated[Array, Shape("C"), Exact()]
    """Weighted mean of their squares."""
    note: Annotated[str, MaxLength(512)]
    """E.g. why a training prior stands in; empty where nothing is to be said."""
    held_out: float = 0.0
    """By how much the ratios are better than equal weights on rows held out, as a share of the divergence; 0 or less:
    no shift was found. 0 for label shift."""
    target_spread: Annotated[tuple[float, ...], MaxLength(1_000_000)] = ()
    """Weighted mean of the squared distances of the targets from `target_mean`, per output, which keeps its digits
    where these lie far from 0; empty from earlier releases."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if len(self.target_spread) not in (0, len(self.target_mean)) or min(self.target_spread, default=0.0) < 0:
            yield f"{len(self.target_spread)} spreads for {len(self.target_mean)} means of targets, or one below 0"
        if self.num_cut > self.num_rows:
            yield f"{self.num_cut} ratios were cut down, of {self.num_rows} rows"
        if self.effective_rows > self.num_rows * (1 + _ROUNDING):
            yield f"{self.effective_rows:.6g} effective rows, of {self.num_rows}"
        if (self.histogram < 0).any() or self.histogram.sum() != self.num_rows:
            yield f"the histogram is not of {self.num_rows} rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRatiosRequest(Request[RatioSummary]):
    """Weigh training rows from here on; steps on the linear model use the first variant."""

    step = "reweight.use_ratios"
    reply = RatioSummary
    kinds = (Kind.SUMMARY,)
    setup = True
    leaves_later = True

    variants: Names
    """Names of variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkScale:
    """Of a regression's targets; zeros and ones for classes."""

    mean: Annotated[Array, Shape("C"), Exact()]
    deviation: Annotated[Array, Shape("C"), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworksRequest(Request[R_co]):
    """A step on each variant's network."""

    network: NetworkSpec
    scale: NetworkScale
    networks: Networks
    """Parameters of each variant's network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedGradient(Reply):
    """Gradients of weighted losses."""

    directions = ("gradients",)

    num_rows: Rows
    gradients: Networks
    """Of each variant."""
    kept_back: Annotated[float, Range(0, 1)] = 0.0
    """Part of the parameters that kept their values, for few rows stand behind their gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedGradientRequest(NetworksRequest[WeightedGradient]):
    """Gradient of each variant's weighted loss at its network, on one batch of rows."""

    step = "reweight.gradient"
    reply = WeightedGradient
    kinds = (Kind.GRADIENT,)

    batch_size: Count
    """Rows; 0: all."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the batch; the client derives its own stream from it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedNetworks(Reply):
    """Networks after local steps."""

    models = ("networks",)
    directions = ("networks",)

    num_rows: Rows
    networks: Networks
    """Parameters of each variant's network."""
    kept_back: Annotated[float, Range(0, 1)] = 0.0
    """Part of the parameters that kept their values, for few rows stand behind their gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedUpdateRequest(NetworksRequest[WeightedNetworks]):
    """Gradient steps on each variant's weighted loss."""

    step = "reweight.local_update"
    reply = WeightedNetworks
    kinds = (Kind.MODEL_UPDATE,)

    learning_rate: Annotated[float, Range(0)]
    """Size of a gradient step."""
    num_steps: Annotated[int, Range(1, 1_000_000)]
    """Gradient steps."""
    batch_size: Count
    """Rows per step; 0: all."""
    weight_decay: Annotated[float, Range(0)]
    """λ of loss + (λ/2) |θ|²."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the batches; the client derives its own stream from it by name."""
    round_num: Count
    """The round, by which the client finds its batch normalisation of before."""
    own_norm: bool
    """Whether this client goes on from its own batch normalisation, and keeps it to itself (FedBN)."""
    proximal: Annotated[float, Range(0)] = 0.0
    """μ of loss + (μ/2) |θ - θ_0|², θ_0 the networks that came (FedProx)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNetworksRequest(NetworksRequest[Evaluation]):
    """Measure each variant's network on the client's own test rows."""

    step = "reweight.measure"
    reply = Evaluation
    kinds = (Kind.METRIC,)

    names: Names
    """Of the networks in the reply."""
    own_norm: bool
    """Whether networks are measured with this client's own batch normalisation, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKept(Reply):
    """The client keeps a network of its own."""

    num_rows: Rows
    normalised: bool
    """Whether it has batch normalisation of its own: one that was never drawn for a round has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOwnNetworkRequest(NetworksRequest[NetworkKept]):
    """Keep the first variant's network, with this client's own batch normalisation, to predict with here (FedBN).

    The networks' normalisation is as training started.
    """

    step = "reweight.keep_network"
    reply = NetworkKept
    kinds = (Kind.SUMMARY,)
