"""Federated averaging of gradient steps on the ridge objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.sampling import sample_clients
from kernfed.methods.ridge.messages import CurvatureRequest, GradientDescentRequest
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run


@dataclass(frozen=True, slots=True)
class FedAvgPlan:
    """How federated averaging runs on ridge problems."""

    ridge: float
    rounds: int
    learning_rate: float | Literal["auto"]
    local_steps: int
    batch_size: int | None
    client_fraction: float


async def run(setup: Setup, plan: FedAvgPlan, cohort: Cohort, run: Run) -> Array | None:
    """From W = 0, each round averages the clients' weights after `local_steps` steps from W, weighted by training rows.

    A round asks `client_fraction` of the clients. A client that misses a round, or fails in it, is left out of its
    average. With several local steps and clients that differ, the limit is not the pooled solution.

    What leaves a client: its updated weights in every round, and the largest curvature of its objective where the
    learning rate is "auto". The coordinator learns each client's update, from which gradients follow.

    Source: McMahan et al. (2017), Algorithm 1.
    """
    learning_rate = plan.learning_rate
    if learning_rate == "auto":  # stable at every client: gradient descent diverges from twice this on
        curvatures = await cohort.ask(CurvatureRequest(ridge=plan.ridge))
        learning_rate = 1.0 / max(c.largest_eigenvalue for c in curvatures.values())
        run.note(f"learning rate {learning_rate:.6g}: 1 / the largest curvature of any client's objective")

    weights = run.resumed["weights"] if run.resumed else np.zeros((setup.num_features, setup.num_outputs))
    async for round_num in run.rounds(plan.rounds):
        request = GradientDescentRequest(
            ridge=plan.ridge,
            weights=weights,
            learning_rate=learning_rate,
            num_steps=plan.local_steps,
            batch_size=plan.batch_size or 0,
            seed=rng.seed(setup.schema.seed, "fedavg", str(round_num)),
        )
        asked = sample_clients(cohort.clients, plan.client_fraction, setup.schema.seed, round_num)
        before, weights = weights, (await cohort.mean(request, clients=asked, drawn=plan.client_fraction < 1)).weights
        run.moved(before, weights)
        if round_num == plan.rounds:
            run.ends(run.settled(plan.rounds, whole=plan.client_fraction == 1 and not plan.batch_size))
        metrics = None
        if run.evaluates(round_num, plan.rounds):
            metrics = await evaluate(setup, cohort, run, weights)
        await run.record(round_num, {"weights": weights}, metrics)
    return weights
