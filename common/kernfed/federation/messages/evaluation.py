"""Evaluation of a model at the clients, each on its own held-out rows. Only sums leave (`metric`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from kernfed.arrays import GREATEST, Array
from kernfed.federation.messages.base import Kind, MaxLength, Name, Names, Range, Reply, Request, Rows, Shape, Stated
from kernfed.metric_names import LOWER_IS_BETTER, RANGES

MAX_LOG_LOSS = 21.0
"""Greatest log-loss of a row: scores are clipped to at least 1e-3, and there are at most 10^6 classes."""

GREATEST_SQUARE = 1e200
"""Greatest square of a row: of the largest numbers that data, and models that have not diverged, may hold."""

_MOST = {"log_loss": MAX_LOG_LOSS, "brier": 2.0}
"""Greatest of a row, of metrics whose range has no end."""
_MOST_ERRORS = 3.0
"""Times a mean of numbers that are not below 0, above which its standard error cannot be: influences of rows, each less
the mean and times √(G/(G - 1)) for G groups, 2 or more, add up to 2 √2 means at most, whatever their groups are."""
_ROUNDING = 1e-9
"""Relative difference up to which two ways to compute a number agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSums:
    """Sums over a client's test rows from which metrics are computed, alone or pooled.

    For regression `num_correct`, `log_loss` and the AUC are 0; for classes `squared_error` is over one-hot columns.
    """

    model: Name
    """Which model was measured, e.g. `global`, `local` (trained by this client alone) or `personal`."""
    num_rows: Rows
    squared_error: Annotated[float, Range(0)]
    """Sum of squared differences between prediction and target, over rows and outputs."""
    target_mean: float
    """Mean of the targets (first output), for R²."""
    target_sum_squares: Annotated[float, Range(0)]
    """Squared deviations of the targets from `target_mean`, summed."""
    num_correct: Rows
    log_loss: Annotated[float, Range(0)]
    """Summed negative log-probability of the true class; scores clipped as `kernfed.federation.evaluation` states."""
    auc: Annotated[float, Range(0, 1)]
    """Area under the ROC curve; over several classes the mean of each against the rest."""
    auc_pairs: Annotated[float, Range(0)]
    """Pairs (positive, negative) behind `auc`; 0 where it is not defined (one class only)."""

    def contradictions(self) -> Iterator[str]:
        """Say which counts and sums cannot be of `num_rows` rows."""
        n = self.num_rows
        for name, value, most in (
            ("num_correct", self.num_correct, n),
            ("log_loss", self.log_loss, n * MAX_LOG_LOSS),
            ("auc_pairs", self.auc_pairs, float(n) * n),
            ("squared_error", self.squared_error, n * GREATEST_SQUARE),
            ("target_sum_squares", self.target_sum_squares, n * GREATEST_SQUARE),
        ):
            if value > most:
                yield f"{name} of the {self.model} model is {value:.6g}, more than {n} rows can have"
        if abs(self.target_mean) > GREATEST:
            yield f"target_mean of the {self.model} model is {self.target_mean:.6g}, beyond {GREATEST:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Reply):
    """A client's metrics, one entry per model measured."""

    num_test_rows: Rows
    sums: Annotated[tuple[MetricSums, ...], MaxLength(16)]

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`: every model is measured on all test rows, and sums fit their number."""
        del stated
        if twice := sorted(name for name, n in Counter(s.model for s in self.sums).items() if n > 1):
            yield f"measures the model {twice[0]!r} twice"
        for sums in self.sums:
            if sums.num_rows != self.num_test_rows:
                yield f"the {sums.model} model is measured on {sums.num_rows} of {self.num_test_rows} test rows"
            yield from sums.contradictions()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest(Request[Evaluation]):
    """Measure a linear model on (centred) features, and, where asked, the client's own local model."""

    step = "evaluation.evaluate"
    reply = Evaluation
    kinds = (Kind.METRIC,)

    weights: Annotated[Array, Shape("M", "C")]
    local_ridge: Annotated[float, Range(0)]
    """Ridge of the local model to measure beside it; 0: do not measure a local model."""
    include_global: bool
    """False where there is no global model (`local`): `weights` then only states the shape."""
    alone: bool = False
    """Whether the local model is prepared from the client's own rows: scales, lengthscale and means of its own.
    Unset, as earlier coordinators have it: those that all clients agreed on."""
    local_shared: bool = False
    """Whether a model of the client's rows, prepared as agreed and with an intercept of its own, is measured too."""
    choose_ridge: bool = False
    """Whether the client chooses the ridge of its own models by rows that it keeps apart, from `local_ridge` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A metric of a model over a client's test rows, and how sure it is."""

    model: Name
    """Which model it is of."""
    metric: Name
    """One of `kernfed.metric_names.RANGES`."""
    value: float
    """The metric; of a Brier score of several classes the sum over classes."""
    error: Annotated[float, Range(0)]
    """Standard error; rows of a group of the site count together."""
    behind: Rows
    """Test rows that it is of: of an AUC, an average precision and a calibration those of the class that has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDifference:
    """A metric of a model less that of another one, on the same test rows."""

    model: Name
    """The model..."""
    against: Name
    """...and the one whose metric is subtracted."""
    metric: Name
    """One of `kernfed.metric_names.RANGES`."""
    value: float
    """The difference."""
    error: Annotated[float, Range(0)]
    """Standard error of the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal(Reply):
    """What the scores of the models that a client measured last are worth."""

    diagnostics = ("threshold",)

    num_test_rows: Rows
    num_groups: Rows
    """Groups of the test rows; without groups as many as rows."""
    num_positive: Rows
    """Test rows of the positive class; 0 where they are not told."""
    told_positive: bool
    """Whether `num_positive` is told: there are two classes, and each has at least `policy.min_rows` test rows."""
    threshold: Annotated[float, Range(0, 1)]
    """Score from which on a row is called positive: the share of positive training rows; 0 where there is none."""
    scores: Annotated[tuple[Score, ...], MaxLength(256)]
    """Each metric of each model at most once."""
    differences: Annotated[tuple[ScoreDifference, ...], MaxLength(1024)]
    """Of each pair of models once, of metrics in `scores`."""
    left_out: Annotated[tuple[Name, ...], MaxLength(64)] = ()
    """Metrics that fewer rows than `policy.min_rows` are behind."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`: metrics are known ones, in their ranges, of the client's test rows, each once."""
        del stated
        if max(self.num_groups, self.num_positive) > self.num_test_rows:
            yield f"has {self.num_groups} groups and {self.num_positive} positive rows of {self.num_test_rows}"
        places = Counter((s.model, s.metric) for s in self.scores)
        pairs = Counter((d.model, d.against, d.metric) for d in self.differences)
        if twice := sorted(place for place, n in (places | pairs).items() if n > 1):
            yield f"tells {' '.join(twice[0])!r} twice"
        for metric in sorted({s.metric for s in self.scores} | {d.metric for d in self.differences} | {*self.left_out}):
            if metric not in RANGES:
                yield f"tells a metric {metric!r} that nobody knows"
                return
        for score in self.scores:
            least, most = RANGES[score.metric]
            most = min(most, _MOST.get(score.metric, GREATEST_SQUARE))
            if not least <= score.value <= most or abs(score.value) > GREATEST_SQUARE:
                yield f"{score.metric} of the {score.model} model is {score.value:.6g}, which cannot be"
            if score.error > _most_error(score) * (1.0 + _ROUNDING):
                yield f"the error of {score.metric} of the {score.model} model is {score.error:.6g}, which cannot be"
            if not 0 < score.behind <= self.num_test_rows:
                yield f"{score.metric} of the {score.model} model is of {score.behind} of {self.num_test_rows} rows"
        known = {(s.model, s.metric): s for s in self.scores}
        for found in self.differences:
            one, other = known.get((found.model, found.metric)), known.get((found.against, found.metric))
            if one is None or other is None:
                yield f"tells a difference of {found.metric} without both of its parts"
                continue
            near = _ROUNDING * (1.0 + abs(one.value) + abs(other.value))
            if abs(one.value - other.value - found.value) > near:
                yield f"the difference of {found.metric} is {found.value:.6g}, of {one.value:.6g} and {other.value:.6g}"
            if found.error > one.error + other.error + near:  # on the same rows
                yield (
                    f"the error of a difference of {found.metric} is {found.error:.6g}, of parts with {one.error:.6g} "
                    f"and {other.error:.6g}"
                )


def _most_error(score: Score) -> float:
    """The most that a score's standard error can be, by its value."""
    if score.metric in LOWER_IS_BETTER:
        return _MOST_ERRORS * score.value
    if score.metric == "r2":
        return _MOST_ERRORS * (1.0 - score.value) + _ROUNDING
    least, most = RANGES[score.metric]
    return min(most - least, GREATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppraiseRequest(Request[Appraisal]):
    """Tell standard errors of the scores of the models that the client measured last, and of their differences."""

    step = "evaluation.appraise"
    reply = Appraisal
    kinds = (Kind.METRIC,)

    models: Names
    """Which models; one that the client did not measure since it began is not among its answer."""

    def refusals(self, reply: Any) -> Iterator[str]:
        """See `Request.refusals`: no models but those that were asked for."""
        told = {s.model for s in reply.scores} | {m for d in reply.differences for m in (d.model, d.against)}
        if strange := sorted(told - set(self.models)):
            yield f"tells of the model {strange[0]!r}, which nobody asked for"
