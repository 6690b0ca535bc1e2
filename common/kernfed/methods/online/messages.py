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
    Dim,
    Kind,
    MaxLength,
    Message,
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

Count = Annotated[int, Range(0, 2**53)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTold(Message):
    """What a client met in its stream so far, by kind. The first six make up `num_skipped` of a step."""

    text: Count = 0
    """Rows with text, or no finite number, where a number is needed."""
    gap: Count = 0
    """Rows without a value."""
    width: Count = 0
    """Lines with another number of cells than their header."""
    no_key: Count = 0
    """Targets for which no row waits."""
    twice: Count = 0
    """Targets of rows that had one."""
    unanswered: Count = 0
    """Rows whose target did not come before too many others waited."""
    rotated: Count = 0
    """Files that were renamed or copied, and read to their end before the one that has their name now."""
    replaced: Count = 0
    """Files that shrank or became others, the former ones being gone: rows at their end may be missing."""
    header: Count = 0
    """Lines that name the columns again, in another order."""
    behind: Count = 0
    """Times that the coordinator had counted rows which this client's state did not know, and it learned them again."""
    ahead: Count = 0
    """Times that the coordinator fell back behind all states that this client keeps: it does not learn again what came
    after."""
    waits_for_disk: bool = False
    """Whether there are rows at hand that the client cannot write down, now."""
    rare: Count = 0
    """Rows that stood out in a column, or by their target, among many of which fewer did than the client's policy lets
    a number stand for."""


Told = Annotated[tuple[StreamTold, ...], MaxLength(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineStep(Reply):
    """A client's step from the rows of a round."""

    diagnostics = ("gradient",)  # have rules of their own, see `kernfed_server.methods.online`

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and all else is empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """The client does not hold the parameters that the request builds on; send all of them."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were drawn, uint8, best first."""
    gradient: Annotated[Array, Shape("B", "F")]
    """Of the loss, meant over the rows, over the probability with which these kernels were drawn."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineStepRequest(Request[OnlineStep]):
    """Take the parameters that moved, predict and learn the next rows, and answer with a step (Algorithm 2)."""

    step = "online.step"
    reply = OnlineStep
    kinds = (Kind.GRADIENT,)
    once = True

    round_num: Count
    """The round."""
    base: Annotated[int, Range(-1, 2**53)]
    """Round whose request brought the parameters that these complete; -1: these are all."""
    num_features: Annotated[int, Dim("F"), Range(1, 2_000_000)]
    """Features F = 2 D of each kernel."""
    kernels: Annotated[Array, Shape("A"), Whole()]
    """Numbers of the kernels that moved, uint8."""
    theta: Annotated[Array, Shape("A", "F")]
    """Their parameters."""
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from; a client whose policy wants more takes that many."""
    wait_s: Annotated[float, Range(0, 60)]
    """Seconds for which to wait for a row where there is none."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStep(Reply):
    """As `OnlineStep`, and the losses from which the coordinator learns the weights."""

    diagnostics = ("gradient", "losses")  # have rules of their own, see `kernfed_server.methods.online`

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and the tensors are empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """The client does not hold the parameters that the request builds on; send all of them."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were asked for, uint8."""
    gradient: Annotated[Array, Shape("B", "F")]
    """Of the loss, meant over the rows."""
    losses: Annotated[Array, Shape("L")]
    """Loss of every kernel's own predictions, meant over the rows; L = N, or 0 without rows."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStepRequest(Request[SharedStep]):
    """A round in which the coordinator says how the kernels are weighed, for all clients alike."""

    step = "online.shared_step"
    reply = SharedStep
    kinds = (Kind.GRADIENT, Kind.METRIC)
    once = True

    round_num: Count
    """The round."""
    base: Annotated[int, Range(-1, 2**53)]
    """Round whose request brought the parameters that these complete; -1: these are all."""
    num_features: Annotated[int, Dim("F"), Range(1, 2_000_000)]
    """Features F = 2 D of each kernel."""
    kernels: Annotated[Array, Shape("A"), Whole()]
    """Numbers of the kernels that moved, uint8."""
    theta: Annotated[Array, Shape("A", "F")]
    """Their parameters."""
    weights: Annotated[Array, Shape("N")]
    """Weights to predict with, on the simplex."""
    asked: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels whose gradients are wanted, uint8."""
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from."""
    wait_s: Annotated[float, Range(0, 60)]
    """How long to wait for a row where there is none. Seconds."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStep(Reply):
    """A client's own parameters of the kernel that was drawn, and the losses behind the draw."""

    diagnostics = ("theta", "losses")  # have rules of their own, see `kernfed_server.methods.online`

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and the tensors are empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """The client does not hold the parameters that the request builds on; send all of them."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    kernels: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels that were asked for, uint8."""
    theta: Annotated[Array, Shape("B", "F")]
    """Their parameters at this client after its rows."""
    losses: Annotated[Array, Shape("L")]
    """Loss of every kernel's own predictions, meant over the rows; L = N, or 0 without rows."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStepRequest(Request[LocalStep]):
    """A round in which a client moves all parameters by itself, and sends those of the kernel that was drawn."""

    step = "online.local_step"
    reply = LocalStep
    kinds = (Kind.MODEL_UPDATE, Kind.METRIC)
    once = True

    round_num: Count
    """The round."""
    base: Annotated[int, Range(-1, 2**53)]
    """Round whose request brought the parameters that these complete; -1: these are all."""
    num_features: Annotated[int, Dim("F"), Range(1, 2_000_000)]
    """Features F = 2 D of each kernel."""
    kernels: Annotated[Array, Shape("A"), Whole()]
    """Numbers of the kernels that were averaged since, uint8."""
    theta: Annotated[Array, Shape("A", "F")]
    """Their parameters."""
    weights: Annotated[Array, Shape("N")]
    """Weights to predict with, on the simplex."""
    asked: Annotated[Array, Shape("B"), Whole()]
    """Numbers of the kernels whose parameters are wanted, uint8."""
    learning_rate: Rate
    """η of the client's own steps."""
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from."""
    wait_s: Annotated[float, Range(0, 60)]
    """How long to wait for a row where there is none. Seconds."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""


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
