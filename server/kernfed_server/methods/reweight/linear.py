"""The weighted ridge model by FedNewton: one variant after the other, each to the pooled solution of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import JobError
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.data import CentreRequest, MeanEmbeddingRequest
from kernfed.methods.reweight.choice_messages import CompareLinearRequest
from kernfed.methods.reweight.messages import APART, UNWEIGHTED
from kernfed.methods.shared_settings import ridge_of
from kernfed.models.beside import ModelsBeside
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.journal import PART
from kernfed_server.jobs.run import Model
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State, json_array
from kernfed_server.methods.reweight.choice import WEIGHTED, chosen, compare, tell, unweighted_wins
from kernfed_server.methods.reweight.findings import publish
from kernfed_server.methods.reweight.ratios import use
from kernfed_server.methods.reweight.reweighting import Reweighting
from kernfed_server.methods.ridge import newton
from kernfed_server.methods.ridge.newton import NewtonPlan

_PARTS = ("", ".feature_mean", ".target_mean")
"""Endings of the names of a model's weights and means in checkpoints."""
_NAMES = {UNWEIGHTED: "unweighted", f"{UNWEIGHTED}{APART}": "unweighted-apart"}
"""Models that later phases need, and their names in checkpoints."""

_MODELS = {
    UNWEIGHTED: "without weights, to compare with",
    "own": "with each client's own ratios",
    "mixture": "with ratios of everyone's test points to everyone's training rows",
    "all": "with ratios to everyone's test points",
    "target": "with ratios to the target's test points",
}


async def train_linear(job: Reweighting) -> Model:
    """Minimise Σ_k p_k Σ_i w_ki |z_ki W - y_ki|²/(2 n_k) + (ridge/2) |W|², centred by weighted means.

    A client's weighted rows are rows times the roots of their weights, so its steps are those of `newton`.
    """
    order = (*reversed(job.apart), *job.variants[1:], job.variants[0])
    phase, start = 0, 0
    told: dict[str, RoundMetrics] = {}
    inner: State | None = None
    if job.run.resumed is not None:
        phase, start, told, inner = _resume(job.run.resumed)
    weights: Array | None = None
    arrivals = _arrivals(job)
    kept = _kept(job)
    setup = job.setup
    for i in range(phase, len(order)):
        variant = order[i]
        setup = await _centred(job, variant)
        if inner is None:
            start = job.run.round_num
            if len(order) > 1:
                job.run.note(f"model {i + 1} of {len(order)}: {_told_as(variant)}")
        keep = {
            "phase": np.array([i]),
            "start": np.array([start]),
            "told": json_array({k: asdict(v) for k, v in told.items()}),
            **job.kept(),
            "arrivals": json_array({k: v.to_json() for k, v in arrivals.items()}),
            **{f"{_NAMES[v]}{part}": a for v, m in kept.items() for part, a in zip(_PARTS, m, strict=True)},
        }
        run = job.run.part(keep, inner, partial(_shown, job=job, variant=variant, told=dict(told)))
        inner = None
        rounds = start + job.settings.rounds
        plan = NewtonPlan(
            ridge_of(job.settings), rounds, job.settings.tolerance, client_weights=job.client_weights(variant)
        )
        weights = await newton.run(setup, plan, job.cohort, run)
        if weights is None:
            raise JobError("no round was closed, so there is no model; submit the job again")
        if variant in _NAMES:
            kept[variant] = weights, setup.agreed.feature_mean, setup.agreed.target_mean
        if variant in job.apart:
            if variant == job.apart[0]:
                pair = (weights, setup.agreed.feature_mean, setup.agreed.target_mean), kept.pop(job.apart[1])
                whole, feature_means, target_means = (np.stack(parts) for parts in zip(*pair, strict=True))
                models = {"weights": whole, "feature_means": feature_means, "target_means": target_means}
                await compare(job, CompareLinearRequest(variant=job.variant, **models))
            continue
        measured = await evaluate(setup, job.cohort, job.run, weights)
        told[variant] = _named(measured, variant=variant, told=told, own=job.variant)
        if run.arrival is not None:
            arrivals[variant] = run.arrival
    assert weights is not None  # noqa: S101  # there is at least one variant
    found = told[job.variant]
    tell(job, found)
    publish(job, chosen(job, found))
    delivered_as = UNWEIGHTED if unweighted_wins(job, found) else job.variant
    if delivered_as in arrivals:
        job.run.ends(arrivals[delivered_as])
    model = feature_model(setup, weights, job_facts(setup, job.settings))
    if UNWEIGHTED not in kept or not unweighted_wins(job, found):
        return model
    plain, feature_mean, target_mean = kept[UNWEIGHTED]
    centred = setup.centred_by(feature_mean, target_mean)
    delivered = feature_model(centred, plain, {**job_facts(centred, job.settings), "variant": UNWEIGHTED})
    return ModelsBeside(delivered, {WEIGHTED: model})


def _told_as(variant: str) -> str:
    """A model in words."""
    words = _MODELS[variant.removesuffix(APART)]
    return f"{words}, on all rows but those kept apart" if variant.endswith(APART) else words


def _kept(job: Reweighting) -> dict[str, tuple[Array, Array, Array]]:
    """Models of an earlier life of the run by variant: weights, and the means that belong to them."""
    state = job.run.resumed
    if state is None:
        return {}
    found = {}
    for variant, name in _NAMES.items():
        if name in state:
            weights, feature_mean, target_mean = (state[f"{name}{part}"] for part in _PARTS)
            found[variant] = weights, feature_mean, target_mean
    return found


def _arrivals(job: Reweighting) -> dict[str, Arrival]:
    """How the models ended that an earlier life of the run trained."""
    state = job.run.resumed
    told = state.json("arrivals") if state is not None and "arrivals" in state else {}
    return {variant: Arrival(**arrival) for variant, arrival in told.items()}


def _shown(metrics: RoundMetrics, *, job: Reweighting, variant: str, told: Mapping[str, RoundMetrics]) -> RoundMetrics:
    """Metrics of a round as people see them; of models that only serve a choice there are none."""
    if variant in job.apart:
        return RoundMetrics(training=metrics.training)
    found = _named(metrics, variant=variant, told=told, own=job.variant)
    return chosen(job, found) if variant == job.variant else found


async def _centred(job: Reweighting, variant: str) -> Setup:
    """Have clients use a variant's weights, and subtract the means that belong to them."""
    await use(job, (variant,), "trained")
    setup, gate = job.setup, job.gate
    if not setup.intercept:
        return setup
    # Means are taken where others were subtracted: from the same ones each time, or a resumed run has other last bits.
    plain = CentreRequest(feature_mean=setup.agreed.feature_mean, target_mean=setup.agreed.target_mean)
    await gate.once(f"uncentred for {variant}", plain, fresh=True)

    async def agree() -> dict[str, list[float]]:
        asked = MeanEmbeddingRequest(num_features=setup.num_features, num_outputs=setup.num_outputs)
        found = await gate.ask(asked, fresh=True)
        mean = job.cohort.weighted({c: found[c] for c in sorted(found)}, job.client_weights(variant))
        return {"feature_mean": mean.feature_mean.tolist(), "target_mean": mean.target_mean.tolist()}

    means = await job.run.agreed.once(f"means for {variant}", agree)
    feature_mean, target_mean = np.array(means["feature_mean"]), np.array(means["target_mean"])
    centre = CentreRequest(feature_mean=feature_mean, target_mean=target_mean)
    await gate.once(f"centred for {variant}", centre, fresh=True)
    return setup.centred_by(feature_mean, target_mean)


def _named(metrics: RoundMetrics, *, variant: str, told: Mapping[str, RoundMetrics], own: str) -> RoundMetrics:
    """Metrics under the names that people see: the job's own model is `global`, others are called by their variant."""
    name = "global" if variant == own else variant

    def renamed(models: Mapping[str, Any]) -> dict[str, Any]:
        return {name if model == "global" else model: scores for model, scores in models.items()}

    pooled, clients = renamed(metrics.pooled), {c: renamed(m) for c, m in metrics.clients.items()}
    if metrics.pooled:
        for other, found in told.items():
            if other in found.pooled:
                pooled[other] = found.pooled[other]
            for client in clients:
                if other in found.clients.get(client, {}):
                    clients[client][other] = found.clients[client][other]
    return RoundMetrics(pooled, clients, metrics.training)


def _resume(state: State) -> tuple[int, int, dict[str, RoundMetrics], State]:
    told = {k: RoundMetrics(**v) for k, v in state.json("told").items()}
    return int(state.number("phase")), int(state.number("start")), told, state.part(PART)
