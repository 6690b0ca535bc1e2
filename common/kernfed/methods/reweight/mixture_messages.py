"""Steps that find ratios to the mixture of all clients' training rows, and pooled classifiers: sums over rows leave.

P columns of what ratios are fitted on, Q of them after a projection, M random features, D = M + 1 with the constant
before them, T = D (D + 1)/2, F folds, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Dim, Exact, Kind, Name, Range, Reply, Request, Rows, Shape, Stated, Whole
from kernfed.methods.reweight.messages import Count, RatiosKept
from kernfed.methods.reweight.ratio_spec import RatioFeatures

Axes = Annotated[Array, Shape("P", "Q"), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointMoments(Reply):
    """Sums over a client's training rows and test points, under the map of ratios."""

    num_rows: Rows
    num_points: Count
    """Training rows and test points that the sums stand for."""
    sums: Annotated[Array, Shape("P"), Exact()]
    """Σ x."""
    second_moments: Annotated[Array, Shape("S"), Exact()]
    """Σ x x' as the upper triangle, S = P (P + 1)/2."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        if self.num_points < stated.num_rows:
            yield f"sums of {self.num_points} points, fewer than the {stated.num_rows} training rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointMomentsRequest(Request[PointMoments]):
    """First and second moments of training rows and test points, for the principal axes of all clients' points."""

    step = "reweight.point_moments"
    reply = PointMoments
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    features: RatioFeatures
    """The map of rows to points."""
    num_points: Annotated[int, Range(1, 10_000_000)]
    """Test points at most."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the draw of test points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSums(Reply):
    """Sums over the rows of each fold; a fold without rows has zeros."""

    diagnostics = ("second_moments", "point_sums")  # bounded by the rows, see `kernfed.methods.reweight.mixture.check`

    num_rows: Rows
    fold_rows: Annotated[Array, Shape("F"), Whole()]
    """Training rows in each fold, int64; copies of a row lie in one."""
    second_moments: Annotated[Array, Shape("F", "T"), Exact()]
    """Σ φφ' over them, as upper triangles; the constant is first."""
    target_moments: Annotated[Array, Shape("F", "D", "C"), Exact()]
    """Σ φ y' over them, y the class as zeros and a one."""
    fold_points: Annotated[Array, Shape("F"), Whole()]
    """Test points in each fold, int64; zeros where they are fewer than the policy lets an aggregate stand for."""
    point_sums: Annotated[Array, Shape("F", "D"), Exact()]
    """Σ φ over them."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.fold_rows < 0).any() or self.fold_rows.sum() != self.num_rows:
            yield f"its folds have {self.fold_rows.sum()} rows, not {self.num_rows}"
        if (self.fold_points < 0).any():
            yield "a fold has fewer than 0 test points"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSumsRequest(Request[FoldSums]):
    """Sums of random features over folds of training rows and of test points."""

    step = "reweight.fold_sums"
    reply = FoldSums
    kinds = (Kind.SUFFICIENT_STATISTIC, Kind.MEAN_EMBEDDING)

    features: RatioFeatures
    """The map of rows to points."""
    axes: Axes
    """Directions on which points are projected; without columns Q they are not."""
    map: FeatureSpec
    """Random features of the points."""
    num_folds: Annotated[int, Dim("F"), Range(1, 100)]
    """Folds."""
    num_outputs: Annotated[int, Dim("C"), Range(0, 1_000_000)]
    """Classes; 0: no targets."""
    num_points: Annotated[int, Range(1, 10_000_000)]
    """Test points at most."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the folds and of the draw of test points; the client derives its own streams from it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureRatiosRequest(Request[RatiosKept]):
    """Compute the ratios of training rows by an agreed function, and keep them."""

    step = "reweight.mixture_ratios"
    reply = RatiosKept
    kinds = (Kind.SUMMARY,)

    variant: Name
    """Name of the variant."""
    features: RatioFeatures
    """The map of rows to points."""
    axes: Axes
    """Directions on which points are projected; without columns Q they are not."""
    map: FeatureSpec
    """Random features of the points."""
    coefficients: Annotated[Array, Shape("D"), Exact()]
    """Of the ratio: of the constant, then of the features. Its mean over the mixture of all training rows is 1."""
    clip: Annotated[float, Range(0)]
    """Ratios above are cut down to it; 0: none are."""
    held_out: float
    """As in `RatioSummary`, to be told."""
    uncovered: Annotated[float, Range(0, 1)]
    """As in `RatioSummary`, to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureClassesRequest(Request[RatiosKept]):
    """Ratios of training rows by their class, as agreed, and keep them."""

    step = "reweight.mixture_classes"
    reply = RatiosKept
    kinds = (Kind.SUMMARY,)

    variant: Name
    """Name of the variant."""
    ratios: Annotated[Array, Shape("C"), Exact()]
    """Of each class; the mean over the mixture of all training rows is 1."""
    uncovered: Annotated[float, Range(0, 1)]
    """As in `RatioSummary`, to be told."""
    note: Name
    """As in `RatioSummary`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts(Reply):
    """Training rows by class."""

    num_rows: Rows
    counts: Annotated[Array, Shape("C"), Whole()]
    """int64."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.counts < 0).any() or self.counts.sum() != self.num_rows:
            yield f"its classes have {self.counts.sum()} rows, not {self.num_rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCountsRequest(Request[ClassCounts]):
    """Count the classes of the training rows."""

    step = "reweight.class_counts"
    reply = ClassCounts
    kinds = (Kind.SUMMARY,)

    num_outputs: Annotated[int, Dim("C"), Range(1, 1_000_000)]
    """Classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified(Reply):
    """Counts of what classifiers say of rows that they were not trained on."""

    num_rows: Rows
    confusion: Annotated[Array, Shape("C", "C"), Whole()]
    """Training rows by predicted class (row) and class (column), int64."""
    predicted: Annotated[Array, Shape("C"), Whole()]
    """Predictions on test points, by all classifiers, int64."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.confusion < 0).any() or self.confusion.sum() != self.num_rows:
            yield f"its confusion matrix is of {self.confusion.sum()} rows, not {self.num_rows}"
        if (self.predicted < 0).any():
            yield "a class was predicted fewer than 0 times"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyRequest(Request[Classified]):
    """Predict the classes of each fold by the classifier that was trained without it, and of test points by all."""

    step = "reweight.classify"
    reply = Classified
    kinds = (Kind.SUMMARY,)

    features: RatioFeatures
    """The map of rows to points."""
    map: FeatureSpec
    """Random features of the points."""
    num_folds: Annotated[int, Dim("F"), Range(1, 100)]
    """Folds."""
    weights: Annotated[Array, Shape("F", "D", "C"), Exact()]
    """Of the classifier without each fold; the constant's first."""
    num_points: Annotated[int, Range(1, 10_000_000)]
    """Test points at most."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """That of the folds, as in `FoldSumsRequest`."""
