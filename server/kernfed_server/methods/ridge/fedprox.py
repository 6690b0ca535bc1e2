"""FedProx on the ridge objective: each client solves its own problem, held near the global weights."""

from __future__ import annotations

from dataclasses import dataclass

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.ridge.messages import ProximalSolveRequest
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.ridge.averaging import AveragedPlan, averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProxPlan(AveragedPlan):
    """How FedProx runs on ridge problems."""

    proximal: float


async def run(setup: Setup, plan: FedProxPlan, cohort: Cohort, run: Run) -> Array | None:
    """Each round averages argmin_V F_j(V) + (proximal/2) |V - W|² over clients, weighted by training rows.

    W is 0 at first, or the mean of the clients' own solutions.

    A round asks `client_fraction` of the clients. A client that misses a round, or fails in it, is left out of its
    average. The limit is not the pooled solution.

    What leaves a client: its updated weights in every round. The coordinator learns each client's update.

    Source: Li et al. (2020), Algorithm 2, with the local problem solved in closed form.
    """

    def request(weights: Array, round_num: int) -> ProximalSolveRequest:
        del round_num
        return ProximalSolveRequest(ridge=plan.ridge, weights=weights, proximal=plan.proximal)

    return await averaged(setup, cohort, run, plan, request)
