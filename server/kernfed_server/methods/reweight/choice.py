"""The choice between the weighted and the unweighted model, by what the clients measured on rows kept apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.base import Request
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.choice_messages import Compared
from kernfed.methods.reweight.messages import MIXTURE, UNWEIGHTED
from kernfed.metric_names import METRICS
from kernfed_server.jobs.verdict import LEVEL
from kernfed_server.methods.reweight.reweighting import Reweighting
from kernfed_server.methods.reweight.rules import Choice

GLOBAL = "global"
_BEYOND = 3.0
"""So many times as far apart as on the rows kept apart, models on test points are not judged by these rows."""
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
    if job.settings.deliver == "better":
        return job.choice is not None and job.choice.plain
    values = _values(job, metrics)
    return bool(values) and float(np.mean([with_ - without for with_, without in values.values()])) > 0


async def compare(job: Reweighting, request: Request[Compared]) -> None:
    """Choose between the two models by the rows that clients kept apart, and say what was found.

    The weighted risk of the rows kept apart is that of the test points, Σ_k p_k mean_i w_ki ℓ(x_ki, y_ki). Where no
    training row is, it says nothing, and there weighted models gain most. So with ratios to the mixture, which reach
    all test points that any row reaches, the unweighted model is delivered where its risk is lower by more than a
    standard error; with ratios to a client's own rows where it is lower. Without rows kept apart it is not.

    For the right weights, Σ_k p_k mean_i w_ki h(x_ki) is the mean of h over the test points, for any h. So the squared
    difference of the two models has to be as large on test points as on weighted rows. Where it is much larger, the
    models differ where these rows are not, and a note says so. It does not choose: there the weighted model is worse in
    most cases, and better by more in the others.

    Args:
        job: Takes the choice.
        request: Carries both models, the weighted one first.
    """
    replies = await job.run.optional(job.cohort.ask(request), "no choice between the weighted and the unweighted model")
    known = job.client_weights(job.variant)
    found = {c: reply for c, reply in replies.items() if reply.num_apart > 0 and c in known}
    shares = job.counted(job.variant, found)
    whole = sum(shares[c] for c in found)
    if not whole > 0:
        job.choice = Choice(math.nan, math.nan, math.nan)
        job.say("no client has rows to keep apart to tell whether weights help; the weighted model is the job's")
        return
    losses, variance, apart = np.zeros(2), 0.0, 0.0
    for client in sorted(found):
        reply, share = found[client], shares[client] / whole
        own = np.asarray(reply.losses, np.float64)
        losses += share * own
        apart += share * reply.apart_distance
        variance += share**2 * max(0.0, reply.square - float(own[0] - own[1]) ** 2) / reply.num_apart
    margin = 1.0 if job.variant == MIXTURE else 0.0
    beyond = _at_points(job, replies, shares) / apart if apart > 0 else 1.0
    choice = job.choice = Choice(float(losses[0]), float(losses[1]), variance**0.5, margin)
    better = "unweighted" if choice.plain else "weighted"
    job.say(
        f"on training rows kept apart, weighed for the test points, the mean squared error of the weighted model is "
        f"{choice.weighted:.4g} and that of the unweighted one {choice.unweighted:.4g} (difference "
        f"{choice.weighted - choice.unweighted:+.2g}, standard error {choice.error:.2g}): the {better} one, fitted "
        "again to all rows, is the job's model"
        + ("; the other lies beside it as weighted-model.safetensors" if choice.plain else "")
    )
    if beyond > _BEYOND and not choice.plain:
        job.say(
            "the rows kept apart say little of the test points: there the squared difference of the weighted and the "
            f"unweighted model is {beyond:.3g} times as large as on these rows with their weights, and for the right "
            "weights it is as large. The weighted model may be the worse one; compare both on test rows with targets, "
            'or set deliver = "better-on-test"'
        )


def _at_points(job: Reweighting, replies: Mapping[str, Compared], shares: Mapping[str, float]) -> float:
    """Mean squared difference of the models on the test points that the job's model is for; 0 where none are."""
    found = {c: reply.test_distance for c, reply in replies.items() if reply.num_points}
    if job.scope == "target":
        return found.get(job.settings.target or "", 0.0)
    weights = {c: shares.get(c, 0.0) if job.scope == "own" else 1.0 for c in sorted(found)}
    whole = sum(weights.values())
    return sum(weights[c] * found[c] for c in weights) / whole if whole > 0 else 0.0


def tell(job: Reweighting, metrics: RoundMetrics) -> None:
    """Say how both models did on the test rows; of a model that loses no word is kept back."""
    if UNWEIGHTED not in job.variants:
        return
    values = _values(job, metrics)
    if not values:
        if job.settings.deliver == "better-on-test":
            job.say(
                "no client measured both models on test rows, so nothing tells whether weights help; the weighted "
                "model is the job's"
            )
        return
    metric, sign = _metric(job)
    with_, without = (float(np.mean([pair[i] for pair in values.values()])) for i in (0, 1))
    plain = unweighted_wins(job, metrics)
    names = ["the weighted model", "the unweighted one"]
    if job.settings.deliver == "better" and plain:
        with_, without, names = without, with_, ["the unweighted model", "the weighted one"]
    worse = [
        client for client, (a, b) in sorted(values.items()) if (b > a if names[0] != "the weighted model" else a > b)
    ]
    told_anyway = job.settings.deliver == "better-on-test"  # it says which model is the job's
    if with_ <= without + (0.0 if told_anyway else LEVEL * abs(without)):
        return
    if job.settings.deliver == "better":
        end = "It is the job's model all the same, for the test rows that are shown do not choose"
    elif plain:
        end = "The unweighted one is therefore the job's model; the other lies beside it as weighted-model.safetensors"
    else:
        end = "The weighted one is the job's model all the same"
    job.say(
        f"on the test rows {names[0]} is worse than {names[1]}: {METRICS[metric]} {sign * with_:.4g} against "
        f"{sign * without:.4g}, clients counted alike, and worse at {', '.join(worse)}. {end}"
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
