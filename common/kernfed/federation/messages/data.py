"""Steps that every method starts with: check the data, agree on scales and classes, map features, centre.

What leaves a site here: row counts, class names, per-column means and deviations, the median distance between rows
(`summary`), and the mean of the feature map where the model has an intercept (`mean_embedding`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import GREATEST, Array
from kernfed.columns.plan import NUM_QUANTILES, ColumnFound, ColumnPlan, columns_of
from kernfed.columns.plan import MissingRule as MissingRule
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import (
    Dispensable,
    Exact,
    Kind,
    MaxLength,
    Name,
    Names,
    NumFeatures,
    NumOutputs,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
)
from kernfed.wording import is_class_name


class LearningTask(enum.StrEnum):
    """The learning task."""

    REGRESSION = "regression"
    BINARY = "binary"
    CLASSIFICATION = "classification"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """The plausible values of a column, in the data's units."""

    column: Name
    """A feature column, or the target of a regression."""
    low: float
    """Least value."""
    high: float
    """Greatest value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """The job's demands on every client's data set."""

    task: LearningTask
    target: Name
    """Column to predict."""
    features: Names
    """Columns to predict from, in the order of the columns of x. P of them."""
    classes: Names
    """Classes named by the job; empty: the clients' own classes are united."""
    missing: MissingRule
    test_fraction: Annotated[float, Range(0, 0.9)]
    """Share of rows held out where a client has no `test` partition of its own."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of draws of rows."""
    backbone: Name = ""
    """Backbone of the client file that makes the feature columns; empty: they are columns of the data."""
    clipped: bool = False
    """Whether training rows that stand far out are moved; see `kernfed.maths.clipping.clip_rows`."""
    ranges: Annotated[tuple[ColumnRange, ...], MaxLength(65536)] = ()
    """R of them; rows outside of any are left out."""
    copies_together: bool = False
    """Whether copies of a row are held out, or trained on, all together."""
    by_content: bool = False
    """Whether a digest of each row's content decides which are held out, copies together; else `seed` draws them."""
    on_stream: bool = False
    """Whether the method learns from the partition `stream` where a client has one: other rows than these."""
    by_record: bool = False
    """Whether a digest of the whole record, with columns that the job does not use, orders rows for `by_content`, and
    for batches and folds."""
    columns: Annotated[tuple[ColumnPlan, ...], MaxLength(65536)] = ()
    """Of the table, from which `features` are made; empty: these are its columns."""
    validation_fraction: Annotated[float, Range(0, 0.9)] = 0.0
    """Above 0: this share of rows, behind the test rows, stands for the test rows, which are not used at all."""

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Columns of the table that features are made of."""
        return columns_of(self.columns, self.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundColumns(Reply):
    """What a client has in the columns that it was asked about."""

    columns: Annotated[tuple[ColumnFound, ...], MaxLength(65536)]
    """As many as were asked for, in their order."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        for column in self.columns:
            if abs(column.mean) > GREATEST or column.deviation > GREATEST:
                yield "states a mean or a deviation of a column beyond all numbers of tables"
            if len(set(column.levels)) != len(column.levels) or not all(map(is_class_name, column.levels)):
                yield "states a level twice, or one that no client's reader lets through"
            if list(column.quantiles) != sorted(column.quantiles) or any(abs(q) > GREATEST for q in column.quantiles):
                yield "states quantiles of a column that are not in their order, or beyond all numbers of tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindColumnsRequest(Request[FoundColumns]):
    """State levels, means and quantiles of columns of the training partition, for the clients to agree on them.

    Rows that are held out later count. A level is stated that has enough rows; a number of rows, a mean, a deviation
    and quantiles are rounded, so that nothing is told of few rows beside the other numbers of the job.
    """

    step = "data.columns"
    reply = FoundColumns
    kinds = (Kind.SUMMARY,)

    dataset: Name
    """Data set of the client file."""
    columns: Annotated[tuple[ColumnPlan, ...], MaxLength(65536)]
    """Columns to look at."""

    def refusals(self, reply: FoundColumns) -> Iterator[str]:
        """See `Request.refusals`."""
        if len(reply.columns) != len(self.columns):
            yield f"states {len(reply.columns)} columns where {len(self.columns)} were asked for"
        for plan, column in zip(self.columns, reply.columns, strict=False):
            wanted = NUM_QUANTILES if plan.agrees_on_quantiles and column.num_rows else 0
            if len(column.quantiles) != wanted:
                yield f"states {len(column.quantiles)} quantiles of a column, and {wanted} were asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDescription(Reply):
    """Description of a client's data, before anything is scaled."""

    diagnostics = (
        "mean",
        "sum_squares",
        "deviation",
        "mean_rest",
        "target_mean",
        "target_deviation",
    )  # the agreement on scales names clients in other units

    num_rows: Rows
    num_test_rows: Rows
    num_dropped_rows: Rows
    classes: Names
    """Classes that occur here, sorted; empty for regression."""
    class_counts: Annotated[tuple[int, ...], MaxLength(65536)]
    """Training rows per class, in the order of `classes`; empty for regression."""
    mean: Annotated[Array, Shape("P"), Exact()]
    """Mean per feature column over training rows, float64."""
    sum_squares: Annotated[Array, Shape("P"), Exact()]
    """Sum of squared deviations from `mean` per feature column, float64; 0 where it is below the range of numbers."""
    backbone: Name = ""
    """Fingerprint of the backbone behind the columns; empty without one."""
    deviation: Annotated[tuple[float, ...], MaxLength(65536), Range(0)] = ()
    """Root of the mean squared deviation per feature column, P of them; empty: `sum_squares` tells it."""
    mean_rest: Annotated[tuple[float, ...], MaxLength(65536)] = ()
    """What `mean` lost to rounding per feature column, P of them; empty: nothing is known of it."""
    far_rows: Annotated[tuple[int, ...], MaxLength(65536), Range(0, 2**53)] = ()
    """Training rows that stand far out per feature column, P of them; empty: none does."""
    target_mean: float = 0.0
    """Mean of a regression's target over training rows."""
    target_deviation: Annotated[float, Range(0)] = 0.0
    """Standard deviation of a regression's target over training rows; 0 also where it is not told."""
    num_outside_rows: Annotated[int, Range(0, 2**53)] = 0
    """Rows of all partitions left out for a value outside of its range; not among `num_dropped_rows`."""
    outside_rows: Annotated[tuple[int, ...], MaxLength(65536), Range(0, 2**53)] = ()
    """The same per range, R of them; a row may be outside of several."""
    few_test_rows: bool = False
    """Whether there are fewer test rows than the client's policy lets a metric stand for; they count as none."""
    rare_classes_left_out: bool = False
    """Whether rows were left out since their class has fewer training rows than the client's policy asks for."""
    sparse_columns: Names = ()
    """Columns, the target among them, in which fewer rows stood out than the client's policy lets a number stand for;
    these rows are taken as the others."""
    block_rows: Annotated[int, Range(0, 2**53)] = 0
    """Rows of the largest of those blocks that no batch and no fold divides, where a column made them larger than the
    client's policy asks for; else 0."""
    dealt_anew: bool = False
    """Whether other rows are held out than in an earlier job on the same columns, though most rows are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDataRequest(Request[DataDescription]):
    """Load the data set, check it against the schema, and describe it."""

    step = "data.describe"
    reply = DataDescription
    kinds = (Kind.SUMMARY,)
    setup = True

    dataset: Name
    """Data set of the client file."""
    schema: DataSchema
    plugins: Annotated[tuple[str, ...], MaxLength(64)] = ()
    """Packages from outside that the job uses at its clients, each as `name version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardised(Reply):
    """The client's data are scaled."""

    num_rows: Rows
    median_distance: Annotated[float, Range(0)]
    """Median Euclidean distance between standardised training rows; 0 where not asked or fewer than 2 rows."""
    ties: bool = False
    """Whether more than half of the distances are 0; `median_distance` is then the median of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardiseRequest(Request[Standardised]):
    """Use the federation's classes and scales: x is replaced by (x - mean) / deviation, per column."""

    step = "data.standardise"
    reply = Standardised
    kinds = (Kind.SUMMARY,)
    setup = True

    classes: Names
    """Classes of the whole federation, in the order of the one-hot columns; empty for regression."""
    mean: Annotated[Array, Shape("P"), Exact()]
    deviation: Annotated[Array, Shape("P"), Exact()]
    median_distance: bool
    """Whether the reply states the median distance, for the kernel's lengthscale."""
    drawn: bool = False
    """Whether the job's seed draws the rows behind the median distance; else they are evenly spaced."""
    bounds: Annotated[tuple[float, ...], MaxLength(65536), Range(0)] = ()
    """Standardised training rows are taken at most this far from 0 per column, 0: as they are; empty: all are."""
    chosen: Annotated[bool, Dispensable()] = False
    """Whether the lengthscale is one that rows kept apart choose: of a client alone too, by its own rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesMapped(Reply):
    """The client drew the same feature map."""

    num_rows: Rows
    fingerprint: Name
    """Of the frequencies that the client drew; see `kernfed.features.spec.fingerprint`."""
    sparse_products: Annotated[int, Range(0, 2**32)] = 0
    """Products of two columns that are not 0 in fewer rows than the client's policy lets a number stand for; they are
    taken to be 0 there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFeaturesRequest(Request[FeaturesMapped]):
    """Draw the feature map, and see whether there is room for what the method keeps of all rows' features."""

    step = "data.map_features"
    reply = FeaturesMapped
    kinds = (Kind.SUMMARY,)
    setup = True

    features: FeatureSpec
    num_outputs: NumOutputs
    copies: Annotated[int, Range(0, 16)] = 0
    """Matrices of all training rows' features that the method keeps at a client. 0: it sums over blocks of rows, and
    keeps what ridge problems need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEmbedding(Reply):
    """Means over a client's training rows."""

    num_rows: Rows
    feature_mean: Annotated[Array, Shape("M"), Exact()]
    target_mean: Annotated[Array, Shape("C"), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEmbeddingRequest(Request[MeanEmbedding]):
    """Mean of the feature map and of the (one-hot) targets."""

    step = "data.mean_embedding"
    reply = MeanEmbedding
    kinds = (Kind.MEAN_EMBEDDING,)

    num_features: NumFeatures
    num_outputs: NumOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred(Reply):
    """The client subtracts the pooled means from its features and targets."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CentreRequest(Request[Centred]):
    """Subtract pooled means; ridge on centred data is ridge with an unpenalised intercept."""

    step = "data.centre"
    reply = Centred
    kinds = (Kind.SUMMARY,)
    setup = True
    leaves_later = True

    feature_mean: Annotated[Array, Shape("M"), Exact()]
    target_mean: Annotated[Array, Shape("C"), Exact()]
