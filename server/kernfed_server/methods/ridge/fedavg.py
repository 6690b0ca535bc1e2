"""Federated averaging of gradient steps on the ridge objective."""

from __future__ import annotations

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.sampling import sample_clients
from kernfed.methods.heads.settings import FedAvgSettings, has_head
from kernfed.methods.ridge.messages import CurvatureRequest, GradientDescentRequest
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run
from kernfed_server.methods.heads import rounds as head_rounds


async def run(setup: Setup, settings: FedAvgSettings, cohort: Cohort, run: Run) -> Array | None:
    """From W = 0, each round averages the clients' weights after `local_steps` steps from W, weighted by training rows.

    A round asks `client_fraction` of the clients. A client that misses a round, or fails in it, is left out of its
    average. With several local steps and clients that differ, the limit is not the pooled solution.

    What leaves a client: its updated weights in every round, and the largest curvature of its objective where the
    learning rate is "auto". The coordinator learns each client's update, from which gradients follow.

    Source: McMahan et al. (2017), Algorithm 1.
    """
    if has_head(settings):
        return await head_rounds.run_fedavg(setup, settings, cohort, run)
    learning_rate = settings.learning_rate
    if learning_rate == "auto":  # stable at every client: gradient descent diverges from twice this on
        curvatures = await cohort.ask(CurvatureRequest(ridge=settings.ridge))
        learning_rate = 1.0 / max(c.largest_eigenvalue for c in curvatures.values())
        run.note(f"learning rate {learning_rate:.6g}: 1 / the largest curvature of any client's objective")

    weights = run.resumed["weights"] if run.resumed else np.zeros((setup.num_features, setup.num_outputs))
    async for round_num in run.rounds(settings.rounds):
        request = GradientDescentRequest(
            ridge=settings.ridge,
            weights=weights,
            learning_rate=learning_rate,
            num_steps=settings.local_steps,
            batch_size=settings.batch_size or 0,
            seed=rng.seed(setup.schema.seed, "fedavg", str(round_num)),
        )
        asked = sample_clients(cohort.clients, settings.client_fraction, setup.schema.seed, round_num)
        weights = (await cohort.mean(request, clients=asked, drawn=settings.client_fraction < 1)).weights
        metrics = None
        if run.evaluates(round_num, settings.rounds):
            metrics = await evaluate(setup, cohort, run, weights)
        await run.record(round_num, {"weights": weights}, metrics)
    return weights
