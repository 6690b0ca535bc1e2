"""The choice between the weighted and the unweighted model, by what the clients measured on rows kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernfed.federation.events import RoundMetrics
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.messages import UNWEIGHTED
from kernfed.metric_names import METRICS
from kernfed_server.methods.reweight.ratios import Reweighting

GLOBAL = "global"
WEIGHTED = "weighted"
"""Name of the weighted model where it is not the job's model."""


def chosen(job: Reweighting, metrics: RoundMetrics) -> RoundMetrics:
    """Name the models of a round: `global` is the one that would be delivered, `weighted` the other, if it lost.

    Args:
        job: Its settings say whether there is a choice.
        metrics: With the weighted model as `global`, and the unweighted one as `fedavg`.
    """
    if not unweighted_wins(job, metrics):
        return metrics

    def renamed(models: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(models)
        if UNWEIGHTED in found and GLOBAL in found:
            found[WEIGHTED], found[GLOBAL] = found[GLOBAL], found[UNWEIGHTED]
        return found

    clients = {client: renamed(models) for client, models in metrics.clients.items()}
    return RoundMetrics(renamed(metrics.pooled), clients, metrics.training)


def unweighted_wins(job: Reweighting, metrics: RoundMetrics) -> bool:
    """Whether the unweighted model is delivered."""
    if not job.chooses:
        return False
    values = _values(job, metrics)
    return bool(values) and float(np.mean([with_ - without for with_, without in values.values()])) > 0


def tell(job: Reweighting, metrics: RoundMetrics) -> None:
    """Say which model is delivered, and how both did; of a model that loses no word is kept back."""
    if UNWEIGHTED not in job.variants:
        return
    values = _values(job, metrics)
    if not values:
        job.say(
            "no client measured both models on test rows, so nothing tells whether weights help; the weighted model is "
            "the job's"
        )
        return
    metric, sign = _metric(job)
    with_, without = (float(np.mean([pair[i] for pair in values.values()])) for i in (0, 1))
    worse = [client for client, (a, b) in sorted(values.items()) if a > b]
    if with_ <= without:
        return
    job.say(
        f"on the test rows the weighted model is worse than the unweighted one: {METRICS[metric]} {sign * with_:.4g} "
        f"against {sign * without:.4g}, clients counted alike, and worse at {', '.join(worse)}. "
        + (
            "The unweighted one is therefore the job's model; the other lies beside it as weighted-model.safetensors"
            if unweighted_wins(job, metrics)
            else "The weighted one is the job's model all the same"
        )
    )


def _metric(job: Reweighting) -> tuple[str, float]:
    """The metric that decides, and the sign that makes it a loss."""
    return ("accuracy", -1.0) if TASKS[job.setup.schema.task].has_classes else ("mse", 1.0)


def _values(job: Reweighting, metrics: RoundMetrics) -> dict[str, tuple[float, float]]:
    """Loss of the weighted and of the unweighted model, by client whose test points count."""
    metric, sign = _metric(job)
    found = {}
    for client, models in metrics.clients.items():
        if job.scope == "target" and client != job.settings.target:
            continue
        pair = [models.get(name, {}).get(metric) for name in (GLOBAL, UNWEIGHTED)]
        if pair[0] is not None and pair[1] is not None:
            found[client] = (sign * pair[0], sign * pair[1])
    return found
