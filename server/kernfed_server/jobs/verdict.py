"""The end of a job in one line: whether it arrived, how far it is, and where its model is better or worse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.ending import Comparison, EndFinding, Loser
from kernfed.metric_names import METRICS
from kernfed.wording import listed, number
from kernfed_server.jobs.arrival import Arrival

LEVEL = 0.01
"""Models whose metrics differ by less than this part are level: test rows are too few to tell more."""
FAR_OFF = 100.0
"""Errors beyond so many times those of the targets' mean come from damaged numbers rather than from learning."""
NO_USE = 0.1
"""An r² so far below 0 is told of; test rows are few, and a model that learned nothing is about level with the mean."""
_OWN = ("global", "personal")
"""The job's own models, as metrics name them."""
_METRICS = {
    LearningTask.REGRESSION: ("mse",),
    LearningTask.BINARY: ("log_loss", "mse"),
    LearningTask.CLASSIFICATION: ("log_loss", "mse"),
}
"""By which models are compared: the first that both have; less is better."""
_NAMED = 6
"""Clients of which a line tells figures."""


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison that people ask for at the end of a job, between models as metrics name them."""

    model: str
    against: str
    called: str
    """The other model, in words."""


ALONE = (
    Against("global", "local", "the client's model alone"),
    Against("personal", "local", "the client's model alone"),
)
"""The first question of every client."""


def end_of(
    metrics: RoundMetrics, arrival: Arrival | None, task: LearningTask | None, pairs: Iterable[Against] = ALONE
) -> EndFinding | None:
    """The end of a job; None where there is nothing to say.

    Args:
        metrics: Of the last round that was measured.
        arrival: What the method said.
        task: What is learned; None: nothing, and there are no models to compare.
        pairs: Models to compare; those that were not measured are passed over.
    """
    compared = [] if task is None else [comparison(metrics, task, pair) for pair in pairs]
    found = tuple(c for c in compared if c is not None)
    words = [*([arrival.text] if arrival else []), *map(comparison_words, found)]
    if not words:
        return None
    line = "; ".join(words)
    if arrival is None:
        return EndFinding(line, comparisons=found)
    return EndFinding(line, arrival.arrived, arrival.known_distance, arrival.measure, found)


def comparison(metrics: RoundMetrics, task: LearningTask, pair: Against) -> Comparison | None:
    """Two models on the clients' own test rows; None where no client has both, or they are one model."""
    for metric in _METRICS[task]:
        both = {
            client: (found[pair.model][metric], found[pair.against][metric])
            for client, found in sorted(metrics.clients.items())
            if metric in found.get(pair.model, {}) and metric in found.get(pair.against, {})
        }
        if both:
            break
    else:
        return None
    if all(ours == own for ours, own in both.values()):  # one model under two names
        return None
    worse = tuple(Loser(c, ours, own) for c, (ours, own) in both.items() if ours > own + LEVEL * abs(own))
    better = sum(ours < own - LEVEL * abs(own) for ours, own in both.values())
    pooled = _of(metrics.pooled.get(pair.model, {}), metric), _of(metrics.pooled.get(pair.against, {}), metric)
    return Comparison(pair.model, pair.against, pair.called, metric, len(both), better, worse, *pooled)


def far_off(metrics: RoundMetrics) -> bool:
    """Whether errors of the job's own model over all test rows are `FAR_OFF` times what the mean of targets has."""
    return any(_far_off(metrics.pooled.get(model, {})) for model in _OWN)


def diverged(metrics: RoundMetrics) -> bool:
    """Whether the job's own model is far off over all test rows and at each client that can tell.

    A client alone may have test rows of another kind, and nobody's model does well on those.
    """
    for model in _OWN:
        scores = [found[model] for found in metrics.clients.values() if model in found]
        told = [one for one in scores if "r2" in one or "accuracy" in one]
        if _far_off(metrics.pooled.get(model, {})) and told and all(map(_far_off, told)):
            return True
    return False


def worse_than_mean(metrics: RoundMetrics) -> str:
    """That the job's own model explains nothing of the targets, in words; empty where it does.

    Of classes, scores of 0 have a mean squared error of 1 at most.
    """
    for model in _OWN:
        scores = metrics.pooled.get(model, {})
        r2, mse = scores.get("r2", 0.0), scores.get("mse", 0.0) if "accuracy" in scores else 0.0
        if r2 < -NO_USE:
            return f"the {model} model predicts worse than the mean of the targets (r² {r2:.2g} over all measured rows)"
        if mse > 1.0:
            return f"the {model} model predicts worse than scores of 0 (mse {mse:.2g} over all measured rows)"
    return ""


def comparison_words(found: Comparison) -> str:
    """A comparison as a part of a line."""
    level = found.num_clients - found.num_better - len(found.worse)
    where = [f"better at {found.num_better} of {found.num_clients} clients"] if found.num_better else []
    where += [f"level at {level} of {found.num_clients} clients"] if level else []
    if found.worse:
        named = [f"{w.client} ({number(w.value)} against {number(w.against)})" for w in found.worse]
        names = listed(named, _NAMED, more=" and {left} more")
        where.append(f"worse at {len(found.worse)} of {found.num_clients} clients: {names}")
    pooled = ""
    if found.pooled is not None and found.pooled_against is not None:
        pooled = f" over all measured rows {number(found.pooled)} against {number(found.pooled_against)}"
    measured = f"{METRICS.get(found.metric, found.metric)}{pooled}"
    return f"the {found.model} model against {found.called}, by {measured}: {', '.join(where)}"


def _far_off(scores: Scores) -> bool:
    return scores.get("r2", 0.0) < -FAR_OFF or ("accuracy" in scores and scores.get("mse", 0.0) > FAR_OFF)


def _of(scores: Scores, metric: str) -> float | None:
    return float(scores[metric]) if metric in scores else None
