"""One-shot average of the clients' ridge solutions (divide-and-conquer kernel ridge regression)."""

from __future__ import annotations

import functools
import math

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.robust import MeanRule
from kernfed.methods.ridge.messages import LocalSolveRequest, MaskedSolveRequest
from kernfed.methods.ridge.settings import DkrrSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.federation.secure_sum import secure_mean
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.updating import updated

SLACK = 1024.0
"""How many times as large as expected a number of a secure sum may be: it costs ten of its bits, of 61."""


async def one_shot(setup: Setup, cohort: Cohort, run: Run, ridge: float, rule: MeanRule) -> Array:
    """The mean of the clients' own solutions, shape (M, C), in round 1."""
    request = LocalSolveRequest(ridge=ridge, num_features=setup.num_features, num_outputs=setup.num_outputs)
    if setup.secure:
        weights = cohort.counted({client: float(setup.agreed.num_rows[client]) for client in cohort.clients})
        ask = functools.partial(MaskedSolveRequest, inner=request)
        found = await secure_mean(
            cohort, run, 1, lambda terms: ask(terms=terms), weights, largest_solution(setup, ridge)
        )
        return found.arrays["weights"]
    nothing = np.zeros((setup.num_features, setup.num_outputs))
    return await updated(cohort, run, await cohort.ask(request), setup.agreed.num_rows, rule, nothing)


def largest_solution(setup: Setup, ridge: float) -> float:
    """What no number of a client's own solution exceeds, with room to spare.

    F_j(W) <= F_j(0) bounds |W|² by the mean of |y|² over the ridge. Centred one-hot targets have |y|² <= 2; those of
    regressions deviate as clients stated, of which `SLACK` times is allowed.
    """
    return SLACK * max(setup.agreed.target_deviation, math.sqrt(2.0)) / math.sqrt(ridge)


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
