"""The steps by which rows are embedded: moments of the columns, by which all clients scale them alike, and embeddings.

What leaves a site: moments of columns (`summary`) and the mean embedding with its error (`mean_embedding`), which goes
on to every client of the job. Z embedded columns, C outputs, M embedding features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Dim, Exact, Kind, MaxLength, Range, Reply, Request, Rows, Shape, Stated
from kernfed.methods.personalise.embeddings import View

_MOST_SQUARE = 8.0
"""Most that the unbiased estimate of Tr Σ² is of (Tr Σ)², of four rows."""
_ROUNDING = 1e-4
"""Relative error of sums that travelled in float32, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMoments(Reply):
    """Moments of the columns, x before y, over a client's training rows, as the client has them scaled."""

    diagnostics = ("mean_rest",)

    num_rows: Rows
    mean: Annotated[Array, Shape("Z"), Exact()]
    sum_squares: Annotated[Array, Shape("Z"), Exact()]
    """Sums of squared deviations from `mean`."""
    deviation: Annotated[tuple[float, ...], MaxLength(100_000), Range(0)] = ()
    """Root of the mean squared deviation per column, Z of them; empty: `sum_squares` tells it."""
    mean_rest: Annotated[tuple[float, ...], MaxLength(100_000)] = ()
    """What `mean` lost to rounding per column, Z of them; empty: nothing is known of it."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.sum_squares < 0).any():
            yield "a sum of squares is negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMomentsRequest(Request[ColumnMoments]):
    """Moments of the columns x and y, from which all clients scale them alike."""

    step = "personalise.moments"
    reply = ColumnMoments
    kinds = (Kind.SUMMARY,)

    num_columns: Annotated[int, Dim("Z"), Range(1, 2_000_000)]
    """Columns Z of x and y together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPoints(Reply):
    """Rows of a client without targets, as the client has them scaled."""

    num_rows: Rows
    points: Annotated[Array, Shape("L", "Z"), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePointsRequest(Request[EmbeddingPoints]):
    """Give rows without targets, by whose kernel to all rows these are embedded; every client gets them."""

    step = "personalise.share_points"
    reply = EmbeddingPoints
    kinds = (Kind.UNLABELLED_SAMPLE,)

    num_columns: Annotated[int, Dim("Z"), Range(1, 1_000_000)]
    """Columns Z."""
    num_points: Annotated[int, Range(1, 100_000)]
    """How many, at most."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the draw."""
    unlabelled: bool = False
    """Whether unlabelled rows are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landmarks:
    """Points by whose kernel to a row the row is embedded."""

    points: Annotated[Array, Shape("L", "P"), Exact()]
    """As the embedding sees columns, (L, P)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEmbedding(Reply):
    """A client's mean embedding.

    It is of the training rows, and where the job asks for them of unlabelled rows beside these.
    """

    diagnostics = ("square",)  # held to the trace, whose square it follows

    num_rows: Rows
    mean: Annotated[Array, Shape("M")]
    trace: Annotated[float, Range(0)]
    """Over the rows that are embedded it is the expected squared error of `mean`, noise counted."""
    num_different: Annotated[int, Range(0, 2**53)] = 0
    """Training rows of different content; 0: all are different, or it is not told."""
    largest: Annotated[float, Range(0)] = 0.0
    """Largest eigenvalue of the covariance of the embedded rows; 0: not told, as with noise."""
    square: Annotated[float, Range(0)] = 0.0
    """Trace of the square of that covariance, unbiased; 0: not told."""
    num_embedded: Annotated[int, Range(0, 2**53)] = 0
    """Rows that the embedding is of; 0: the training rows alone."""

    @property
    def rows_embedded(self) -> int:
        """Rows that the embedding is of."""
        return self.num_embedded or self.num_rows

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_different > self.num_rows:
            yield "more rows are different than there are"
        if 0 < self.num_embedded < self.num_rows:
            yield "an embedding of fewer rows than those that are trained on"
        if self.largest > (1.0 + _ROUNDING) * self.trace:
            yield "an eigenvalue of the covariance that is larger than their sum"
        if self.square > _MOST_SQUARE * self.trace * self.trace:  # a power of floats overflows, a product does not
            yield "squares of the covariance that are larger than its trace allows"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest(Request[ClientEmbedding]):
    """Embed the training rows, and unlabelled ones where asked: the mean of the features of the scaled columns."""

    step = "personalise.embed"
    reply = ClientEmbedding
    kinds = (Kind.MEAN_EMBEDDING,)
    setup = True
    young = ("unlabelled", "landmarks")

    view: View
    features: FeatureSpec
    mean: Annotated[Array, Shape("Z"), Exact()]
    deviation: Annotated[Array, Shape("Z"), Exact()]
    target_mean: Annotated[Array, Shape("C"), Exact()]
    target_deviation: Annotated[Array, Shape("C"), Exact()]
    """Of all clients' targets; networks learn regression targets scaled by them."""
    intercept: bool
    """Whether the ridge model's first input is the constant 1."""
    noise_factor: Annotated[float, Range(0)]
    """Deviation of the Gaussian noise in units of the mean's sensitivity; 0: none."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the noise where a client has no secret of its own, as in a simulation."""
    class_order: Annotated[tuple[int, ...], MaxLength(1_000_000), Range(0, 999_999)] = ()
    """Places of the classes in the order in which their columns are embedded; with one column for two classes, whose
    share it is: 1 of the second where the first comes first. Empty: in the order of the job."""
    unlabelled: bool = False
    """Whether unlabelled rows that the client has are embedded beside the training rows."""
    landmarks: Annotated[tuple[Landmarks, ...], MaxLength(16)] = ()
    """Those of a Nyström map, the last ones count; empty: the map draws what it needs."""
