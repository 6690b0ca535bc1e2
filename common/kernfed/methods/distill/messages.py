"""Steps of ensemble distillation: institutions teach each other through predictions on public points.

Only predictions on points that the coordinator itself has sent leave a site (`prediction`). What a client computes them
with (kernel, ridge, or another model altogether) is its own affair and crosses no line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.features.kernels import KernelSpec
from kernfed.federation.messages.base import (
    Exact,
    Kind,
    MaxLength,
    Name,
    NumOutputs,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.federation.messages.evaluation import Evaluation

Targets = Annotated[Array, Shape("N", "C"), Exact()]
"""Of N public points and C outputs, in the units of the data set's targets, which may lie far from 0."""

MOST_LEFT_OUT = 1000
"""Most rows of a client by which ridge and lengthscale are chosen."""

RoundNum = Annotated[int, Range(0, 1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSetKnown(Reply):
    """Whether the client has the public set already."""

    known: bool
    """Whether the client has the public set already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpPublicSetRequest(Request[PublicSetKnown]):
    """Look for a public set in the client's own store, where an earlier job may have left it."""

    step = "distill.look_up"
    reply = PublicSetKnown

    sha256: Name
    """Of the set's file, 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSetKept(Reply):
    """The client has the public set in its store."""

    num_points: Annotated[int, Range(1, 100_000_000)]
    """Public points N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPublicSetRequest(Request[PublicSetKept]):
    """Check a public set against its digest, and keep it for this job and later ones."""

    step = "distill.keep_public"
    reply = PublicSetKept

    sha256: Name
    """SHA-256 of `content`, 64 hexadecimal digits."""
    content: Annotated[Array, Shape("B"), Whole()]
    """Bytes of the file, uint8; see `kernfed.methods.distill.public_set`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMoments(Reply):
    """Mean and deviation of the targets of a client's training rows."""

    num_rows: Rows
    """Training rows of the client."""
    mean: Annotated[Array, Shape("C"), Exact()]
    """Per output, in the units of the data set's targets, or the share of a class."""
    deviation: Annotated[Array, Shape("C"), Exact()]
    """Standard deviation per output, at least 0."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.deviation < 0).any():
            yield "a deviation is negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMomentsRequest(Request[TargetMoments]):
    """Tell mean and deviation of the training targets, by which targets are centred and scales are compared."""

    step = "distill.describe_targets"
    reply = TargetMoments
    kinds = (Kind.SUMMARY, Kind.MEAN_EMBEDDING)

    num_outputs: NumOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutErrors(Reply):
    """Errors of a client's own kernel ridge regressions on rows that were left out, copies of a row together."""

    diagnostics = ("squared_errors",)

    num_rows: Rows
    num_used: Annotated[int, Range(0, MOST_LEFT_OUT)]
    """Rows that were used; 0 where the client has fewer than 3 different ones, and the errors say nothing."""
    squared_errors: Annotated[Array, Shape("S", "R"), Exact()]
    """Sums over rows and outputs, for S lengthscales and R penalties; at least 0, and at most twice the sum of
    predicting the mean."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_used > self.num_rows:
            yield f"{self.num_used} rows were used, of {self.num_rows}"
        if (self.squared_errors < 0).any():
            yield "a sum of squared errors is negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutErrorsRequest(Request[LeftOutErrors]):
    """Predict each own row from the others, for a grid of lengthscales and penalties, in closed form."""

    step = "distill.leave_out"
    reply = LeftOutErrors
    kinds = (Kind.SUMMARY, Kind.METRIC)

    num_outputs: NumOutputs
    kernel: KernelSpec
    free_intercept: bool
    """Whether an intercept costs nothing."""
    factors: Annotated[Array, Shape("S"), Exact()]
    """What the kernel's lengthscales are multiplied by: at most 100 numbers above 0."""
    penalties: Annotated[Array, Shape("R"), Exact()]
    """What is added to the diagonal of the kernel matrix: at most 100 numbers above 0."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the draw of rows where there are more than 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationStarted(Reply):
    """The client is ready to predict on the public set."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDistillationRequest(Request[DistillationStarted]):
    """Scale the public points like the client's own rows, and prepare the client's model."""

    step = "distill.start"
    reply = DistillationStarted
    kinds = (Kind.SUMMARY,)
    setup = True

    sha256: Name
    """SHA-256 of the public set's file, 64 hexadecimal digits."""
    kernel: KernelSpec
    """Kernel of the job; a client whose own file names another model keeps to that."""
    ridge: Annotated[float, Range(1e-300)]
    """Ridge λ of the objective."""
    alpha: Annotated[float, Range(0, 1)]
    """Weight of own rows; 0: the client's share of `total_rows`."""
    total_rows: Annotated[int, Range(1, 2**53)]
    """Training rows of all clients of the job."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of models that draw random numbers; each client makes its own stream of it."""
    free_intercept: bool = False
    """Whether kernel ridge regression has an intercept that costs nothing."""
    pooled_penalty: bool = False
    """Whether a row of own rows alone is penalised like one of all rows, by λ `total_rows`, instead of λ N."""
    target_mean: Annotated[tuple[float, ...], MaxLength(1_000_000)] = ()
    """Mean of all clients' targets, one per output, around which models without an intercept fit; empty: 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPredictions(Reply):
    """A client's predictions on the public points."""

    num_rows: Rows
    predictions: Targets
    far_rows: Annotated[float, Range(0, 1)] = 0.0
    """Share of the client's rows that have no public point within a lengthscale of the job's kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillRequest(Request[PublicPredictions]):
    """Fit own rows together with targets of the public points, and predict on these: a whole round in one trip."""

    step = "distill.distil"
    reply = PublicPredictions
    kinds = (Kind.PREDICTION,)

    trained_round: RoundNum
    """Round whose consensus `targets` come from; 0: fit own rows alone, whatever `targets` hold."""
    targets: Targets
    deregularise: bool = False
    """Whether a client with kernel ridge regression first undoes what its own kernel and ridge shrink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDistilledRequest(Request[Evaluation]):
    """Measure the model that the client would get from these targets, `personal`, on its own test rows."""

    step = "distill.measure"
    reply = Evaluation
    kinds = (Kind.METRIC,)

    trained_round: RoundNum
    """Round whose consensus `targets` are; 0: own rows alone."""
    targets: Targets
    include_personal: bool
    """Whether the model fitted to `targets`, `personal`, is measured."""
    include_local: bool
    """Whether the model of own rows alone, `local`, is measured too."""
    choose: bool = False
    """Whether `personal` is the model that predicts own rows that are kept apart better: this one, or `local`."""
    blend: bool = False
    """Whether `personal` is a mean of this model and `local`, weighed by own rows that are kept apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModelKept(Reply):
    """The client's model is in its state folder; nothing of it is told but where it comes from."""

    diagnostics = ("own_share", "gain", "gain_error")  # nothing is made of them

    num_rows: Rows
    alone: bool = False
    """Whether the client kept the model of its own rows alone, since that predicts rows kept apart better."""
    compared: bool = False
    """Whether the client could compare the two: it has rows enough."""
    own_share: Annotated[float, Range(0, 1)] = 0.0
    """Weight of the model of own rows alone in the one that is kept; the rest is the distilled one."""
    gain: Annotated[float, Range(0, 1)] = 0.0
    """By which part of the squared error of own rows alone what is kept has less, on rows kept apart."""
    gain_error: Annotated[float, Range(0)] = 0.0
    """Standard error of `gain`; 0: it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepDistilledRequest(Request[OwnModelKept]):
    """Fit a last time, and keep the model at the client, for `kernfed-client predict`."""

    step = "distill.keep_model"
    reply = OwnModelKept
    kinds = (Kind.SUMMARY,)

    trained_round: RoundNum
    """Round whose consensus `targets` are; 0: own rows alone."""
    targets: Targets
    choose: bool = False
    """Whether to keep the model of own rows alone where it predicts own rows that are kept apart better."""
    blend: bool = False
    """Whether to keep a mean of both models, weighed by own rows that are kept apart."""
