"""Scores of clients with their errors, put together: means, verdicts, and whom the job's model serves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from kernfed.federation.messages.evaluation import Appraisal, Score
from kernfed.maths.scores.estimate import interval
from kernfed.methods.scores import ClientScores, GainOf, ScoreOf, ScoreOverClients, ScoresFinding, Served, Verdict
from kernfed.metric_names import DELIVERED, LOWER_IS_BETTER, RANGES, telling_first
from kernfed_server.jobs.verdict import Against

JUDGED = ("brier", "auc", "mse")
"""Metrics by which models are judged, those that were measured; by the first one it is said whom the job serves.
Log-loss is none of them: of least-squares scores it is of numbers that are cut off."""
_OWN = "local"
"""A client's own model, and those that a job gives it, the first that it has."""


def client_scores(client: str, reply: Appraisal) -> ClientScores:
    """A client's answer as the finding has it, with intervals."""
    return ClientScores(
        client=client,
        rows=reply.num_test_rows,
        groups=reply.num_groups,
        positives=reply.num_positive if reply.told_positive else None,
        threshold=reply.threshold or None,
        scores=tuple(_score(score) for score in reply.scores),
        gains=tuple(
            GainOf(model, against, found.metric, sign * _better(found.metric) * found.value, found.error)
            for found in reply.differences
            for model, against, sign in ((found.model, found.against, 1.0), (found.against, found.model, -1.0))
        ),
        left_out=reply.left_out,
    )


def finding_of(
    clients: list[ClientScores], of_clients: int, test_rows: Mapping[str, int], pairs: Iterable[Against]
) -> ScoresFinding | None:
    """All that clients said, with means over those that measured each model; None: nobody said anything.

    Args:
        clients: By name.
        of_clients: Clients of the job.
        test_rows: Of each client of the job.
        pairs: Models that are judged, one against the other.
    """
    models = {score.model for client in clients for score in client.scores}
    if not models:
        return None
    whole = [client for client in clients if models <= {score.model for score in client.scores}]
    verdicts = tuple(verdict for pair in pairs for metric in JUDGED for verdict in _verdicts(clients, pair, metric))
    return ScoresFinding(
        clients=tuple(clients),
        pooled=tuple(_over_clients(whole, models)),
        num_clients=len(whole),
        of_clients=of_clients,
        num_rows=sum(client.rows for client in whole),
        of_rows=sum(test_rows.values()),
        verdicts=verdicts,
        equity=tuple(_served(clients)),
    )


def _score(score: Score) -> ScoreOf:
    low, high = interval(score.value, score.error, score.behind, *RANGES[score.metric])
    return ScoreOf(score.model, score.metric, score.value, score.error, low, high, score.behind)


def _better(metric: str) -> float:
    return -1.0 if metric in LOWER_IS_BETTER else 1.0


def _over_clients(clients: list[ClientScores], models: set[str]) -> Iterator[ScoreOverClients]:
    """Means over the clients that have a metric of every model, so that models are compared on the same rows."""
    for metric in telling_first({score.metric for client in clients for score in client.scores}):
        found = [(c, {m: s for m in models if (s := c.score(m, metric)) is not None}) for c in clients]
        found = [(client, scores) for client, scores in found if len(scores) == len(models)]
        if not found:
            continue
        for model in sorted(models):
            scores = [(client, of[model]) for client, of in found]
            k = len(scores)
            mean = sum(s.value for _, s in scores) / k
            mean_error = math.hypot(*(s.error for _, s in scores)) / k
            weigh = _WEIGHTS.get(metric)
            pooled = pooled_error = None
            weights = [] if weigh is None else [weigh(client, score) for client, score in scores]
            if (whole := sum(weights)) > 0:
                pooled = sum(w * s.value for w, (_, s) in zip(weights, scores, strict=True)) / whole
                errors = (w * s.error for w, (_, s) in zip(weights, scores, strict=True))
                pooled_error = math.hypot(*errors) / whole
            yield ScoreOverClients(model, metric, mean, mean_error, k, pooled, pooled_error)


def _rows(_client: ClientScores, score: ScoreOf) -> float:
    return float(score.behind)


def _pairs(client: ClientScores, _score: ScoreOf) -> float:
    positives = client.positives or 0
    return float(positives * (client.rows - positives))


_WEIGHTS: Mapping[str, Callable[[ClientScores, ScoreOf], float]] = {
    **dict.fromkeys(("accuracy", "brier", "log_loss", "mse", "mae"), _rows),
    **dict.fromkeys(("sensitivity", "specificity", "ppv", "npv"), _rows),
    "auc": _pairs,
}
"""Metrics that are means over rows, or pairs, and so follow from those of the clients."""


def _verdicts(clients: list[ClientScores], pair: Against, metric: str) -> Iterator[Verdict]:
    gains = {
        client.client: gain
        for client in clients
        for gain in client.gains
        if (gain.model, gain.against, gain.metric) == (pair.model, pair.against, metric)
    }
    if not gains:
        return
    yield Verdict(
        model=pair.model,
        against=pair.against,
        called=pair.called,
        metric=metric,
        gain=sum(gain.gain for gain in gains.values()) / len(gains),
        error=math.hypot(*(gain.error for gain in gains.values())) / len(gains),
        clients=len(gains),
        better=tuple(name for name, gain in gains.items() if gain.sure > 0),
        worse=tuple(name for name, gain in gains.items() if gain.sure < 0),
    )


def _served(clients: list[ClientScores]) -> Iterator[Served]:
    """Each client that has a model of its own to compare with, and the one that the job gives it."""
    for client in clients:
        known = {(g.model, g.metric): g for g in client.gains if g.against == _OWN}
        place = next(((m, metric) for m in DELIVERED for metric in JUDGED if (m, metric) in known), None)
        if place is not None:
            gain = known[place]
            state = {1: "gains", 0: "level", -1: "loses"}[gain.sure]
            yield Served(client.client, gain.model, gain.metric, gain.gain, gain.error, state)
