"""The loop of both methods, as a paper would print it."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed_median.coordinator.rules import median, trimmed_mean
from kernfed_median.shared.method import RobustSettings, TrimmedMeanSettings
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow, alike, local_ridge


async def run(setup: Setup, settings: RobustSettings, cohort: Cohort, run: Run) -> Array | None:
    """From W = 0, each round combines the clients' weights after local steps by the method's rule, entry by entry.

    What leaves a client: its updated weights in every round. The coordinator learns each client's update.

    Source: Yin, Chen, Ramchandran & Bartlett (2018), Algorithm 1, with local steps.
    """
    weights = run.resumed["weights"] if run.resumed else np.zeros((setup.num_features, setup.num_outputs))
    async for round_num in run.rounds(settings.rounds):
        request = GradientDescentRequest(
            ridge=settings.ridge,
            weights=weights,
            learning_rate=settings.learning_rate,
            num_steps=settings.local_steps,
            batch_size=0,
            seed=0,
        )
        replies = await cohort.ask(request)
        stacked = np.stack([reply.weights for reply in replies.values()])
        trims = isinstance(settings, TrimmedMeanSettings)
        weights = trimmed_mean(stacked, settings.trim) if trims else median(stacked)
        metrics = None
        if run.evaluates(round_num, settings.rounds):
            metrics = await evaluate(setup, cohort, run, weights)
        await run.record(round_num, {"weights": weights}, metrics)
    return weights


_ROBUST = Workflow(run, local_ridge, weights=alike)
WORKFLOWS = {"median": _ROBUST, "trimmed-mean": _ROBUST}
