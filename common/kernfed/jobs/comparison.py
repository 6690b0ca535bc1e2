"""Jobs side by side: their scores at each client, differences, and the errors of these.

Jobs are compared with the first one. A difference at a client has at most about the root of the sum of both squared
errors: on the same test rows models err alike, so it is smaller. The mean difference over clients has the error of a
mean of paired differences, one pair a client.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernfed.errors import ConfigError, DataError
from kernfed.methods.scores import ClientScores, ScoreOf, ScoresFinding
from kernfed.metric_names import DELIVERED, LOWER_IS_BETTER, METRICS, telling_first
from kernfed.wording import listed, number, with_error

_SERVED = (*DELIVERED, "local")
"""The model of a job that is compared, the first that it has."""
_FIRST = ("auc", "r2", "brier", "mse")
"""Metrics that are compared unless others are asked for, the first two that all jobs have."""


@dataclass(frozen=True, slots=True)
class Side:
    """A job, and which of its models is compared."""

    job: str
    model: str


@dataclass(frozen=True, slots=True)
class Step:
    """How much better a job is than the first one; below 0 it is worse."""

    gain: float
    error: float | None
    """Standard error; None: of one client nobody knows that of a mean."""


@dataclass(frozen=True, slots=True)
class AtClient:
    """A metric at a client."""

    client: str
    scores: tuple[ScoreOf | None, ...]
    """By job."""
    gains: tuple[Step | None, ...]
    """Of each job but the first."""


@dataclass(frozen=True, slots=True)
class MetricCompared:
    """A metric of every job."""

    metric: str
    clients: tuple[AtClient, ...]
    means: tuple[float | None, ...]
    """Of each job over the clients that all jobs have."""
    gains: tuple[Step | None, ...]
    """Of each job but the first: mean over these clients, with its error by their differences."""
    num_clients: int
    """That all jobs have."""


@dataclass(frozen=True, slots=True)
class JobsCompared:
    """Jobs side by side."""

    jobs: tuple[Side, ...]
    metrics: tuple[MetricCompared, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def table(self, found: MetricCompared) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of text of one of `metrics`."""
        rest = self.jobs[1:]
        columns = ["client", *(f"{s.job} ({s.model})" for s in self.jobs), *(f"gain of {s.job}" for s in rest)]
        rows = [
            [at.client, *map(_score_text, at.scores), *(_step_text(step) for step in at.gains)] for at in found.clients
        ]
        means = ["" if mean is None else number(mean) for mean in found.means]
        rows.append([f"(mean of {found.num_clients})", *means, *(_step_text(step) for step in found.gains)])
        return columns, rows

    def __str__(self) -> str:
        """The mean differences, a line each, and notes."""
        lines = []
        for found in self.metrics:
            for side, step in zip(self.jobs[1:], found.gains, strict=True):
                if step is not None:
                    way = "better" if step.gain >= 0 else "worse"
                    by = _told_step(Step(abs(step.gain), step.error))
                    lines.append(
                        f"{METRICS[found.metric]}: {side.job} is {way} than {self.jobs[0].job} by {by}, mean over "
                        f"{found.num_clients} client{'s' if found.num_clients > 1 else ''}"
                    )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__


def compare_jobs(
    jobs: Sequence[tuple[str, Mapping[str, Any]]], metrics: Collection[str] = (), model: str = ""
) -> JobsCompared:
    """Compare jobs by what their `findings.json` hold.

    Args:
        jobs: Name and findings of each, two at least; the others are compared with the first.
        metrics: By their names in metrics files; unset: the two that tell most of those that all jobs have.
        model: Of each job, as metrics name it; unset: the personal one, else the global one, else the client's own.

    Raises:
        ConfigError: Fewer than two jobs, or a metric that there is not.
        DataError: A job has no scores with errors, or the jobs have no client and no metric in common.
    """
    if len(jobs) < 2:
        raise ConfigError("one job alone cannot be compared; name two or more")
    if unknown := sorted(set(metrics) - METRICS.keys()):
        raise ConfigError(f"there is no metric {unknown[0]!r}; choose among {', '.join(METRICS)}")
    findings = [_scores(name, findings) for name, findings in jobs]
    sides = [_side(name, finding, model) for (name, _), finding in zip(jobs, findings, strict=True)]
    told = [_told(finding, side.model) for finding, side in zip(findings, sides, strict=True)]
    common = set.intersection(*({metric for scores in of.values() for metric in scores} for of in told))
    wanted = telling_first(set(metrics) & common) if metrics else [metric for metric in _FIRST if metric in common][:2]
    if not wanted:
        asked = f" of {', '.join(sorted(metrics))}" if metrics else ""
        raise DataError(f"the jobs {listed([side.job for side in sides])} have no metric{asked} in common")
    if not set.intersection(*(set(of) for of in told)):
        raise DataError(f"the jobs {listed([side.job for side in sides])} have no client in common")
    found = tuple(_metric(metric, told) for metric in wanted)
    return JobsCompared(tuple(sides), found, tuple(_notes(findings, sides)))


def _scores(name: str, findings: Mapping[str, Any]) -> ScoresFinding:
    if ScoresFinding.name not in findings:
        raise DataError(
            f"job {name} has no scores with errors: it is not over, it measured no model on test rows (streams have "
            "none), or an earlier release ran it; run it again"
        )
    try:
        return ScoresFinding.from_json(findings[ScoresFinding.name])
    except (TypeError, ValueError, KeyError, AttributeError) as err:
        raise DataError(f"job {name}: findings.json holds no scores that can be read ({err}); fetch it again") from err


def _side(name: str, finding: ScoresFinding, model: str) -> Side:
    models = {score.model for client in finding.clients for score in client.scores}
    chosen = model or next((m for m in _SERVED if m in models), "")
    if chosen not in models:
        raise DataError(f"job {name} measured no model {chosen!r}; it has {listed(sorted(models)) or 'none'}")
    return Side(name, chosen)


def _told(finding: ScoresFinding, model: str) -> dict[str, dict[str, ScoreOf]]:
    """Metrics of a model by client."""
    found = {c.client: {s.metric: s for s in c.scores if s.model == model} for c in finding.clients}
    return {client: scores for client, scores in found.items() if scores}


def _metric(metric: str, told: Sequence[Mapping[str, Mapping[str, ScoreOf]]]) -> MetricCompared:
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    clients, shared = [], []
    for client in sorted({client for of in told for client in of}):
        scores = tuple(of.get(client, {}).get(metric) for of in told)
        clients.append(AtClient(client, scores, tuple(_step(scores[0], score, sign) for score in scores[1:])))
        if all(score is not None for score in scores):
            shared.append([score.value for score in scores if score is not None])
    means = tuple(sum(values) / len(values) for values in zip(*shared, strict=True)) if shared else (None,) * len(told)
    gains = tuple(
        _mean_step([sign * (values[k] - values[0]) for values in shared]) if shared else None
        for k in range(1, len(told))
    )
    return MetricCompared(metric, tuple(clients), means, gains, len(shared))


def _step(first: ScoreOf | None, other: ScoreOf | None, sign: float) -> Step | None:
    if first is None or other is None:
        return None
    return Step(sign * (other.value - first.value), math.hypot(first.error, other.error))


def _mean_step(gains: list[float]) -> Step:
    mean, num = sum(gains) / len(gains), len(gains)
    if num < 2:
        return Step(mean, None)
    return Step(mean, math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (num - 1) / num))


def _notes(findings: Sequence[ScoresFinding], sides: Sequence[Side]) -> Iterator[str]:
    """What keeps jobs from being compared like with like."""
    by_client: list[dict[str, ClientScores]] = [{c.client: c for c in finding.clients} for finding in findings]
    first = by_client[0]
    for side, of in zip(sides[1:], by_client[1:], strict=True):
        other = sorted(
            c for c in first.keys() & of.keys() if (first[c].rows, first[c].positives) != (of[c].rows, of[c].positives)
        )
        if other:
            yield (
                f"{side.job} has other test rows than {sides[0].job} at {listed(other, 6, more=' and {left} more')}: "
                "the difference is also one of rows"
            )
        if first.keys() != of.keys():
            apart = sorted(first.keys() ^ of.keys())
            yield f"{listed(apart, 6, more=' and {left} more')}: in one of {sides[0].job} and {side.job} alone"


def _score_text(score: ScoreOf | None) -> str:
    return "" if score is None else with_error(score.value, score.error)


def _step_text(step: Step | None) -> str:
    return "" if step is None else _told_step(step, "+")


def _told_step(step: Step, sign: str = "") -> str:
    return f"{step.gain:{sign}.4g}" if step.error is None else with_error(step.gain, step.error, sign)
