"""The finding on what a job's scores are worth: rows behind them, intervals, and whom the job's model serves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.maths.scores.interval import Z
from kernfed.methods.finding import UNLESS_NONE, Finding
from kernfed.metric_names import METRICS
from kernfed.wording import listed, with_error

_NAMED = 6
"""Clients that a sentence names."""


@dataclass(frozen=True, slots=True)
class ScoreOf:
    """A metric of a model at a client, on its own test rows."""

    model: str
    metric: str
    value: float
    error: float
    """Standard error."""
    low: float
    """The 95 % interval."""
    high: float
    behind: int
    """Test rows that it is of."""


@dataclass(frozen=True, slots=True)
class GainOf:
    """By how much a model is better than another one at a client, on the same rows; below 0 it is worse."""

    model: str
    against: str
    metric: str
    gain: float
    error: float
    """Standard error."""

    @property
    def sure(self) -> int:
        """1: better by more than `Z` standard errors; -1: worse by more; 0: nobody can tell."""
        return (self.gain > Z * self.error) - (self.gain < -Z * self.error)


@dataclass(frozen=True, slots=True)
class ClientScores:
    """What a client's test rows say."""

    client: str
    rows: int
    groups: int
    """Of rows that belong together; as many as rows where the site has none."""
    positives: int | None = field(default=None, metadata=UNLESS_NONE)
    """Rows of the positive class; None: there are not two classes, or the rows of one are too few to be told."""
    threshold: float | None = field(default=None, metadata=UNLESS_NONE)
    """Score from which on a row was called positive: the share of positive training rows."""
    scores: tuple[ScoreOf, ...] = ()
    gains: tuple[GainOf, ...] = ()
    left_out: tuple[str, ...] = ()
    """Metrics behind which there are fewer rows than the client's `policy.min_rows`."""

    def score(self, model: str, metric: str) -> ScoreOf | None:
        """One of the scores."""
        return next((s for s in self.scores if (s.model, s.metric) == (model, metric)), None)


@dataclass(frozen=True, slots=True)
class ScoreOverClients:
    """A metric of a model over clients, the same ones for every model."""

    model: str
    metric: str
    mean: float
    """Over clients, each counting the same."""
    mean_error: float
    """Standard error, by the clients' test rows; these clients are no sample of others."""
    clients: int
    """That it is of."""
    pooled: float | None = field(default=None, metadata=UNLESS_NONE)
    """Over their test rows; of an AUC weighted by pairs. None: it does not follow from the clients' numbers."""
    pooled_error: float | None = field(default=None, metadata=UNLESS_NONE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A model against another one, in numbers and in words."""

    model: str
    against: str
    called: str
    """The other one, in words."""
    metric: str
    gain: float
    """Mean over clients; above 0 the model is better."""
    error: float
    """Standard error of that, by the clients' test rows."""
    clients: int
    better: tuple[str, ...] = ()
    """Clients at which it is better by more than `Z` standard errors."""
    worse: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """As a sentence goes on."""
        way = "better" if self.gain >= 0 else "worse"
        told = f"{way} than {self.called} by {with_error(abs(self.gain), self.error)}"
        if abs(self.gain) <= Z * self.error:
            told += ", which is within its errors"
        at = [
            f"{word} at {len(names)}: {listed(names, _NAMED, more=' and {left} more')}"
            for word, names in (("surely better", self.better), ("surely worse", self.worse))
            if names
        ]
        rest = self.clients - len(self.better) - len(self.worse)
        if rest:
            at.append(f"not to be told at {rest}")
        of = f"{METRICS[self.metric]}, mean over {self.clients} client{'s' if self.clients > 1 else ''}"
        return f"{of}: the {self.model} model is {told} ({'; '.join(at)})"


@dataclass(frozen=True, slots=True)
class Served:
    """A client, and the model that the job gives it, against its own."""

    client: str
    model: str
    metric: str
    gain: float
    error: float
    state: str
    """`gains`, `loses`, or `level`: within the errors."""


@dataclass(frozen=True, slots=True)
class ScoresFinding(Finding):
    """At the end of a job that measured models on test rows."""

    name: ClassVar[str] = "scores"

    clients: tuple[ClientScores, ...]
    """By name."""
    pooled: tuple[ScoreOverClients, ...]
    num_clients: int
    """That `pooled` is of: those that measured each of the models."""
    of_clients: int
    """Of the job."""
    num_rows: int
    """Measured rows, which are test rows but in a job with validation rows, that `pooled` is of."""
    of_rows: int
    """Test rows of all clients of the job."""
    verdicts: tuple[Verdict, ...] = ()
    equity: tuple[Served, ...] = ()

    @property
    def behind(self) -> str:
        """Clients and rows behind `pooled`, in words."""
        return f"{self.num_clients} of {self.of_clients} clients, {self.num_rows:,} of {self.of_rows:,} measured rows"

    def equity_words(self) -> str:
        """At which clients the model that the job gives them is worse than their own; empty: at none."""
        surely = [_lost(s) for s in self.equity if s.state == "loses"]
        perhaps = [_lost(s) for s in self.equity if s.state == "level" and s.gain < 0]
        parts = [f"at {_named(surely)} the model that the job gives is worse than the client's own"] if surely else []
        if surely:
            parts[0] += "; let it predict with its own, as a job of method local gives it"
        if perhaps:
            word = "also " if surely else ""
            parts.append(f"it is {word}less good within the errors at {_named(perhaps)}")
        return "; ".join(parts)


def _named(parts: Iterable[str]) -> str:
    return listed(list(parts), _NAMED, more=" and {left} more")


def _lost(served: Served) -> str:
    metric = METRICS[served.metric]
    return f"{served.client} ({served.model} model, {metric} by {with_error(-served.gain, served.error)})"
