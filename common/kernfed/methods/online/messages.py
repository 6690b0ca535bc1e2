"""Steps of online learning on streams: agree on ranges, open the stream, a round of each family of methods, metrics.

N kernels with F = 2 D features each. A round's request brings a client the parameters that moved since it was last
here; its answer is one step on a part of the kernels, over the probability with which it chose that part. The weights
that a client gives to the kernels stay where they are.

Source: Ghari & Shen (2022), *Personalized online federated learning with multiple kernels*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Kind,
    MaxLength,
    Name,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.stream_step import Count, KernelStepRequest, StreamStep

Rate = Annotated[float, Range(0, 1e9)]
Fingerprint = Annotated[str, MaxLength(64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges(Reply):
    """Sizes of a client's rows and targets, after columns were scaled."""

    diagnostics = ("norm", "target_low", "target_high")  # judged when the ranges are agreed on

    num_rows: Rows
    norm: Annotated[float, Range(0)]
    """Largest Euclidean norm of a row."""
    target_low: float
    """Least target."""
    target_high: float
    """Largest target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangesRequest(Request[Ranges]):
    """State the largest row norm and the range of the targets, of the training rows."""

    step = "online.ranges"
    reply = Ranges
    kinds = (Kind.SUMMARY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened(Reply):
    """The client's stream can be read."""

    num_rows: Rows
    num_stream_rows: Count
    """Rows of a stream that ends; 0 where it goes on."""
    live: bool
    """Whether rows keep coming, so that the stream has no end."""
    least_rows: Annotated[int, Range(1, 2**53)]
    """Fewest rows that an answer of this client stands for, as its policy says; it takes at least so many per round."""
    statistics: bool = False
    """Whether the client's policy lets sufficient statistics of these rows leave."""
    continues: bool = False
    """Whether the client has its state of this job, or of the one that this one goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStreamRequest(Request[StreamOpened]):
    """Open the stream of a data set, or its training rows in their order where it offers none."""

    step = "online.open"
    reply = StreamOpened
    kinds = (Kind.SUMMARY,)
    setup = True

    norm: Annotated[float, Range(1e-300)]
    """By which rows are divided, after columns were scaled."""
    target_low: float
    """Subtracted from targets."""
    target_span: Annotated[float, Range(1e-300)]
    """By which targets are then divided."""
    loss: Loss
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of all draws of this job; a client adds its name."""
    outlier_spans: Annotated[float, Range(0, 1e9)] = 0.0
    """A row that lies so many spans beyond the ranges is left out; 0: none is."""
    former: Name = ""
    """Id of the job that this one goes on from: the client goes on from its own state of that; empty: none."""

    @property
    def goes_on_from(self) -> str:
        """See `Request.goes_on_from`."""
        return self.former


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryDrawn(Reply):
    """The client drew the same frequencies."""

    num_rows: Rows
    fingerprint: Fingerprint
    """See `kernfed.methods.online.dictionary.fingerprint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawDictionaryRequest(Request[DictionaryDrawn]):
    """Draw the frequencies of all kernels, and learn by these rules."""

    step = "online.draw_dictionary"
    reply = DictionaryDrawn
    kinds = (Kind.SUMMARY,)
    setup = True
    young = ("gradual", "bounded")

    dictionary: Dictionary
    mixing: Mixing
    weight_learning_rate: Rate
    """Of the multiplicative weights; used by `hedge` alone."""
    bin_size: Annotated[int, Range(1, 256)]
    """Most kernels M that an answer moves."""
    exploration: Annotated[float, Range(1e-6, 1)]
    """ξ: share of the draw of a bin that is uniform."""
    regularisation: Rate
    """λ of loss + λ |theta_i|²."""
    own_frequencies: Annotated[int, Range(0, 100_000)] = 0
    """Frequencies of each kernel of the client's own model, which stays there; 0: it has none."""
    pooled: bool = False
    """Whether the kernels are ridges on the rows of all clients, and the client's own model has the same features."""
    gradual: bool = False
    """Whether a client moves from its own model towards the others by a share that its rows have shown to be better;
    else it goes over at once, see `kernfed.methods.online.own_model`."""
    bounded: bool = False
    """Whether this share is held so far down that the client's loss stays within a stated part of what it reaches
    alone, see `kernfed.methods.online.mixing.gate.Leeway`; else what chance explains is taken off it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineStep(StreamStep):
    """A client's step from the rows of a round."""

    diagnostics = ("gradient",)  # have rules of their own, see `kernfed_server.methods.online`

    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were drawn, uint8, best first."""
    gradient: Annotated[Array, Shape("B", "F")]
    """Of the loss, meant over the rows, over the probability with which these kernels were drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineStepRequest(KernelStepRequest[OnlineStep]):
    """Take the parameters that moved, predict and learn the next rows, and answer with a step (Algorithm 2)."""

    step = "online.step"
    reply = OnlineStep
    kinds = (Kind.GRADIENT,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStep(StreamStep):
    """As `OnlineStep`, and the losses from which the coordinator learns the weights."""

    diagnostics = ("gradient", "losses")  # have rules of their own, see `kernfed_server.methods.online`

    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were asked for, uint8."""
    gradient: Annotated[Array, Shape("B", "F")]
    """Of the loss, meant over the rows."""
    losses: Annotated[Array, Shape("L")]
    """Loss of every kernel's own predictions, meant over the rows; L = N, or 0 without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStepRequest(KernelStepRequest[SharedStep]):
    """A round in which the coordinator says how the kernels are weighed, for all clients alike."""

    step = "online.shared_step"
    reply = SharedStep
    kinds = (Kind.GRADIENT, Kind.METRIC)

    weights: Annotated[Array, Shape("N")]
    """Weights to predict with, on the simplex."""
    asked: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels whose gradients are wanted, uint8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStep(StreamStep):
    """A client's own parameters of the kernel that was drawn, and the losses behind the draw."""

    diagnostics = ("theta", "losses")  # have rules of their own, see `kernfed_server.methods.online`

    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were asked for, uint8."""
    theta: Annotated[Array, Shape("B", "F")]
    """Their parameters at this client after its rows."""
    losses: Annotated[Array, Shape("L")]
    """Loss of every kernel's own predictions, meant over the rows; L = N, or 0 without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStepRequest(KernelStepRequest[LocalStep]):
    """A round in which a client moves all parameters by itself, and sends those of the kernel that was drawn."""

    step = "online.local_step"
    reply = LocalStep
    kinds = (Kind.MODEL_UPDATE, Kind.METRIC)

    weights: Annotated[Array, Shape("N")]
    """Weights to predict with, on the simplex."""
    asked: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels whose parameters are wanted, uint8."""
    learning_rate: Rate
    """η of the client's own steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMetrics(Reply):
    """A client's predictions so far, measured; every one was made before its target was used."""

    diagnostics = ("total_loss", "best_kernel_loss", "regret_bound", "effective_kernels")  # nothing is made of them

    sums: MetricSums
    """Of all predictions, in the units of the targets; the AUC is not measured."""
    total_loss: float
    """In the learner's scale, where targets lie in [0, 1]."""
    best_kernel_loss: float
    """Of the best single kernel's own predictions in hindsight; that much less is the regret."""
    regret_bound: Annotated[float, Range(-1)]
    """Upper bound of the regret; -1: there is none."""
    effective_kernels: Annotated[float, Range(0)]
    """Exponential of the entropy of the client's weights: how many kernels it uses; not which."""
    alone: Annotated[tuple[MetricSums, ...], MaxLength(1)] = ()
    """Of the predictions that the client would have made alone, where it has a model of its own."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`: sums fit their number of rows."""
        del stated
        for sums in (self.sums, *self.alone):
            yield from sums.contradictions()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMetricsRequest(Request[StreamMetrics]):
    """Measure the predictions so far, and keep the personal model as it is now."""

    step = "online.metrics"
    reply = StreamMetrics
    kinds = (Kind.METRIC,)
    once = True
