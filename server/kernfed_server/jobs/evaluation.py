"""Evaluation of a round's model at the clients, each on its own test rows. Only sums come back (`metric`)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.evaluation import metrics, pool
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.evaluation import EvaluateRequest, Evaluation, MetricSums
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run


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
    return replace(setup.baseline.merged(found), training=training or {})


async def measure_local(setup: Setup, cohort: Cohort, run: Run, ridge: float) -> RoundMetrics:
    """Measure every client's own ridge model (`local`), which does not change from round to round."""
    shape = np.zeros((setup.num_features, setup.num_outputs))
    request = EvaluateRequest(weights=shape, local_ridge=ridge, include_global=False)
    return await measured(cohort.ask(request), setup.schema.task, run)


async def measured(
    replies: Awaitable[dict[str, Evaluation]], task: LearningTask, run: Run, otherwise: str = "no metrics"
) -> RoundMetrics:
    """Metrics from what clients were asked; where too few can or may answer, a note and none.

    Args:
        replies: Of the cohort to a request to measure.
        task: What is learned.
        run: Of the job.
        otherwise: Beginning of the note.
    """
    found = await run.optional(replies, otherwise)
    return collect({client: reply.sums for client, reply in found.items()}, task)


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
