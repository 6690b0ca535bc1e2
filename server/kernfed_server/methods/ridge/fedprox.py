"""FedProx on the ridge objective: each client solves its own problem, held near the global weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.sampling import sample_clients
from kernfed.methods.ridge.messages import ProximalSolveRequest
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Run


@dataclass(frozen=True, slots=True)
class FedProxPlan:
    """How FedProx runs on ridge problems."""

    ridge: float
    rounds: int
    proximal: float
    client_fraction: float


async def run(setup: Setup, plan: FedProxPlan, cohort: Cohort, run: Run) -> Array | None:
    """From W = 0, each round averages argmin_V F_j(V) + (proximal/2) |V - W|² over clients, weighted by training rows.

    A round asks `client_fraction` of the clients. A client that misses a round, or fails in it, is left out of its
    average. The limit is not the pooled solution.

    What leaves a client: its updated weights in every round. The coordinator learns each client's update.

    Source: Li et al. (2020), Algorithm 2, with the local problem solved in closed form.
    """
    weights = run.resumed["weights"] if run.resumed else np.zeros((setup.num_features, setup.num_outputs))
    async for round_num in run.rounds(plan.rounds):
        request = ProximalSolveRequest(ridge=plan.ridge, weights=weights, proximal=plan.proximal)
        asked = sample_clients(cohort.clients, plan.client_fraction, setup.schema.seed, round_num)
        before, weights = weights, (await cohort.mean(request, clients=asked, drawn=plan.client_fraction < 1)).weights
        run.moved(before, weights)
        if round_num == plan.rounds:
            run.ends(run.settled(plan.rounds, whole=plan.client_fraction == 1))
        metrics = None
        if run.evaluates(round_num, plan.rounds):
            metrics = await evaluate(setup, cohort, run, weights)
        await run.record(round_num, {"weights": weights}, metrics)
    return weights
