"""Evaluation of a model at the clients, each on its own held-out rows. Only sums leave (`metric`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import GREATEST, Array
from kernfed.federation.messages.base import Kind, MaxLength, Name, Range, Reply, Request, Rows, Shape, Stated

MAX_LOG_LOSS = 21.0
"""Greatest log-loss of a row: scores are clipped to at least 1e-3, and there are at most 10^6 classes."""

GREATEST_SQUARE = 1e200
"""Greatest square of a row: of the largest numbers that data, and models that have not diverged, may hold."""


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
