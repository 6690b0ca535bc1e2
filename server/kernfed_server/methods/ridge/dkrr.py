"""One-shot average of the clients' ridge solutions (divide-and-conquer kernel ridge regression)."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.robust import MeanRule
from kernfed.methods.ridge.messages import LocalSolveRequest
from kernfed.methods.ridge.settings import DkrrSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.summing import mean_of_masked
from kernfed_server.jobs.updating import updated
from kernfed_server.methods.ridge.bounds import largest_solution


async def one_shot(setup: Setup, cohort: Cohort, run: Run, ridge: float, rule: MeanRule) -> Array:
    """The mean of the clients' own solutions, shape (M, C), in round 1."""
    request = LocalSolveRequest(ridge=ridge, num_features=setup.num_features, num_outputs=setup.num_outputs)
    if setup.secure:
        found = await mean_of_masked(setup, cohort, run, 1, request, largest_solution(setup, ridge))
        return found.arrays["weights"]
    nothing = np.zeros((setup.num_features, setup.num_outputs))
    return await updated(cohort, run, await cohort.ask(request), setup.agreed.num_rows, rule, nothing)


async def run(setup: Setup, settings: DkrrSettings, cohort: Cohort, run: Run) -> Array | None:
    """W = Σ p_j H_j⁻¹ c_j, weighted by training rows, or another mean of these.

    What leaves a client: its own model, once. The coordinator learns each client's model; in a job with secure sums
    it learns the mean alone.

    Source: Zhang, Duchi & Wainwright (2015), Algorithm 1; FedNewton paper, Algorithm 1 with no iteration.
    """
    weights = run.resumed["weights"] if run.resumed else None
    async for round_num in run.rounds(1):
        weights = await one_shot(setup, cohort, run, ridge_of(settings), settings.rule)
        run.ends(Arrival("one round, as the method has: the mean of the clients' own solutions, not the pooled one"))
        await run.record(round_num, {"weights": weights}, await evaluate(setup, cohort, run, weights))
    return weights
