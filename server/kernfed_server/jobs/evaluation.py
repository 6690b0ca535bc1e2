"""Evaluation of a round's model at the clients, each on its own test rows. Only sums come back (`metric`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DivergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.evaluation import metrics, pool
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.ledger import SPREAD
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import EvaluateRequest, Evaluation, MetricSums
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup

FAR_ERROR = 100.0
"""How many times the largest mean squared error of all other clients one client's is before it is told of."""
_SOME_ERROR = 1e-6
"""Of the mean square of its targets: less is no error to speak of."""


async def evaluate(
    setup: Setup, cohort: Cohort, run: Run, weights: Array, training: Scores | None = None
) -> RoundMetrics:
    """Measure a global model at every client; the clients' own models (`local`) are carried on from before round 1.

    Too few clients that can or may answer are no reason to lose a model: the round then has no metrics.

    Args:
        setup: Of the job.
        cohort: Its clients.
        run: Its run.
        weights: On centred features, shape (M, C).
        training: The solver's own numbers of this round, which go along.
    """
    if not setup.baseline.clients:  # nobody could be measured before round 1, which was noted then
        return RoundMetrics(training=training or {})
    request = EvaluateRequest(weights=weights, local_ridge=0.0, include_global=True)
    found = await measured(cohort.ask(request), setup.schema.task, run)
    means = {"feature_mean": setup.agreed.feature_mean, "target_mean": setup.agreed.target_mean}
    run.came_to({"weights": weights, **means}, found)
    return replace(setup.baseline.merged(found), training=training or {})


async def measure_local(setup: Setup, cohort: Cohort, run: Run, ridge: float) -> RoundMetrics:
    """Measure every client's own ridge model (`local`), which does not change from round to round.

    Where the job asks for it, beside it `local-shared`: the client's own rows, prepared as all clients agreed.
    """
    requests = local_requests(setup, ridge, cohort.clients)
    return await measured(cohort.ask_each(requests), setup.schema.task, run)


def local_requests(
    setup: Setup, ridge: float, clients: Iterable[str], weights: Array | None = None
) -> dict[str, EvaluateRequest]:
    """What each client is asked for its own ridge model, with the ridge that it would have alone.

    Args:
        setup: Of the job.
        ridge: Of the job, for clients without one of their own.
        clients: Whom.
        weights: Of a global model that is measured too, shape (M, C).
    """
    nothing = np.zeros((setup.num_features, setup.num_outputs))
    return {
        client: EvaluateRequest(
            weights=nothing if weights is None else weights,
            local_ridge=setup.own_ridge.get(client, ridge),
            include_global=weights is not None,
            alone=True,
            local_shared=setup.local_shared,
            choose_ridge=setup.choose_ridge,
        )
        for client in clients
    }


async def measured_once(run: Run, name: str, measure: Callable[[], Awaitable[RoundMetrics]]) -> RoundMetrics:
    """What clients have alone, measured before round 1 and carried on: the same in each life of the run."""

    async def ask() -> dict[str, Any]:
        return asdict(await measure())

    return RoundMetrics(**await run.agreed.once(name, ask))


async def measured(
    replies: Awaitable[dict[str, Evaluation]], task: LearningTask, run: Run, otherwise: str = "no metrics"
) -> RoundMetrics:
    """Metrics from what clients were asked; where too few can or may answer, a note and none.

    Args:
        replies: Of the cohort to a request to measure.
        task: What is learned.
        run: Of the job.
        otherwise: Beginning of the note.

    Raises:
        DivergedError: At every client a model misses the targets by a million times their size.
    """
    found = await run.optional(replies, otherwise)
    sums = {client: reply.sums for client, reply in found.items()}
    _refuse_diverged(sums)
    for client, problem in implausible(sums).items():
        run.note_once(f"the metrics of {client} are left out: {problem}")
        del sums[client]
    tell_far_errors(sums, run)
    return collect(sums, task)


def tell_far_errors(sums: Mapping[str, tuple[MetricSums, ...]], run: Run) -> None:
    """Note, of each client once, that its errors are far beyond those of all others."""
    for client, words in far_errors(sums).items():
        run.note_first(f"far errors {client}", words)


def far_errors(sums: Mapping[str, tuple[MetricSums, ...]]) -> dict[str, str]:
    """Words on clients whose errors count, and are `FAR_ERROR` times those of all others, of which there are two."""
    found: dict[str, str] = {}
    for model in sorted({s.model for parts in sums.values() for s in parts}):
        of_model = {c: s for c, parts in sums.items() for s in parts if s.model == model and s.num_rows}
        errors = {client: s.squared_error / s.num_rows for client, s in of_model.items()}
        if len(errors) <= 2:
            continue
        top = max(errors, key=lambda client: errors[client])
        known = max(error for client, error in errors.items() if client != top)
        told = of_model[top]
        size = told.target_sum_squares / told.num_rows + told.target_mean**2
        if errors[top] > max(FAR_ERROR * known, _SOME_ERROR * size):
            found.setdefault(
                top,
                f"{top} states a mean squared error of {errors[top]:.3g} ({model} model), and of no other client it is "
                f"more than {known:.3g}: metrics over all test rows are mostly its own; check its data and their units",
            )
    return found


def implausible(sums: Mapping[str, tuple[MetricSums, ...]]) -> dict[str, str]:
    """Clients whose sums tell of errors or targets `SPREAD` times the largest of all others, and in which words.

    Where one other client alone is at hand to compare with, it is the square of that, as for all replies.
    """
    found: dict[str, str] = {}
    names = ("squared error", "squared deviation of the targets")
    for model in sorted({s.model for parts in sums.values() for s in parts}):
        means = {
            client: (s.squared_error / s.num_rows, s.target_sum_squares / s.num_rows + s.target_mean**2)
            for client, parts in sums.items()
            for s in parts
            if s.model == model and s.num_rows
        }
        falling = sorted(means, key=lambda other: max(means[other]), reverse=True)
        for client, own in means.items():
            left_out = len(found.keys() & means.keys() - {client})
            known = next((max(means[other]) for other in falling if other != client and other not in found), 0.0)
            allowed = known * (SPREAD**2 if len(means) - 1 - left_out > 1 else SPREAD**4)
            for name, mean in zip(names, own, strict=True):
                if known > 0 and mean > allowed:
                    found.setdefault(
                        client,
                        f"its mean {name} is {mean:.3g} ({model} model), and of no other client more than "
                        f"{known:.3g}; check its data and their units",
                    )
    return found


def _refuse_diverged(sums: Mapping[str, tuple[MetricSums, ...]]) -> None:
    """Stop a run whose model is of no use to anyone; models of one client alone do not come from the run."""
    measured = [s for parts in sums.values() for s in parts if s.num_rows and s.model != "local"]
    size = max((s.target_sum_squares / s.num_rows + s.target_mean**2 for s in measured), default=0.0)
    for model in sorted({s.model for s in measured}):
        least = min(s.squared_error / s.num_rows for s in measured if s.model == model)
        if size > 0 and least > SPREAD**2 * size:
            raise DivergedError(
                f"the {model} model's mean squared error is {least:.3g} or more at every client, where the mean square "
                f"of the targets is {size:.3g} at most: the iteration diverges"
            )


def collect(sums: Mapping[str, tuple[MetricSums, ...]], task: LearningTask) -> RoundMetrics:
    """Metrics from the clients' sums: per client, and pooled over all their test rows.

    Args:
        sums: By client name, one entry per model measured.
        task: What is learned.
    """
    clients = {client: {s.model: metrics(s, task) for s in sums[client]} for client in sorted(sums)}
    models = sorted({s.model for parts in sums.values() for s in parts})
    pooled = {
        model: pool([s for client in sorted(sums) for s in sums[client] if s.model == model], task) for model in models
    }
    return RoundMetrics(pooled, clients)
