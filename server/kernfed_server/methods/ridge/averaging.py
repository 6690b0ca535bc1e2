"""Rounds in which clients move the global weights by themselves, and what they moved to is averaged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kernfed.arrays import Array
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Request
from kernfed.maths.certificate import quadratic_distance
from kernfed.maths.robust import MeanRule
from kernfed.maths.sampling import sample_clients
from kernfed.methods.ridge.messages import GradientRequest, LocalModel
from kernfed_server.jobs.arrival import Arrival, certified
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.from_all import asked_of_all
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.summing import mean_of_all_masked, mean_of_masked
from kernfed_server.jobs.updating import updated
from kernfed_server.methods.ridge.bounds import largest_gradient, largest_step
from kernfed_server.methods.ridge.dkrr import one_shot

AVERAGED = "the limit is that of averaged local models, and not the pooled solution where clients differ"
"""What the rounds come to where clients take several steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedPlan:
    """How such rounds run, whatever a client does in one."""

    ridge: float
    """Of the problem."""
    rounds: int
    """All of them."""
    client_fraction: float
    """Part of the clients that a round asks."""
    rule: MeanRule
    """How one update is made of all."""
    begin: Literal["zero", "dkrr"] = "zero"
    """From W = 0, or from the mean of the clients' own solutions, where no job before this one left weights."""


async def averaged(
    setup: Setup,
    cohort: Cohort,
    run: Run,
    plan: AveragedPlan,
    request: Callable[[Array, int], Request[LocalModel]],
    *,
    all_rows: bool = True,
    limit: str = AVERAGED,
) -> Array:
    """Average, by training rows or another rule of the job, from where it begins or an earlier life of the run came to.

    Args:
        setup: The prepared job.
        cohort: Whom to ask.
        run: Its record.
        plan: Of the job.
        request: (W, round number) -> what a client is asked.
        limit: What the rounds come to, in words; empty: the pooled solution.
        all_rows: Whether a client's step is on all of its rows.
    """
    weights = run.resumed["weights"] if run.resumed else run.first_weights((setup.num_features, setup.num_outputs))
    drawn = plan.client_fraction < 1
    async for round_num in run.rounds(plan.rounds):
        if plan.begin == "dkrr" and not run.former and round_num == 1:
            weights = await one_shot(setup, cohort, run, plan.ridge, plan.rule)
        before = weights
        weights = await _moved(setup, cohort, run, plan, round_num, request(before, round_num), before)
        run.moved(before, weights)
        if round_num == plan.rounds:
            settled = run.settled(plan.rounds, whole=all_rows and not drawn, limit=limit)
            run.ends(await _judged(setup, cohort, run, weights, plan.ridge, settled))
        metrics = None
        if run.evaluates(round_num, plan.rounds):
            metrics = await evaluate(setup, cohort, run, weights)
        await run.record(round_num, {"weights": weights}, metrics)
    return weights


async def _moved(
    setup: Setup,
    cohort: Cohort,
    run: Run,
    plan: AveragedPlan,
    round_num: int,
    request: Request[LocalModel],
    before: Array,
) -> Array:
    """What one round makes of the weights before it."""
    if setup.secure:
        bound = largest_step(setup, plan.ridge, before)
        return (await mean_of_masked(setup, cohort, run, round_num, request, bound)).arrays["weights"]
    asked = sample_clients(cohort.clients, plan.client_fraction, setup.schema.seed, round_num)
    replies = await cohort.ask(request, clients=asked, drawn=plan.client_fraction < 1)
    return await updated(cohort, run, replies, setup.agreed.num_rows, plan.rule, before)


async def _judged(setup: Setup, cohort: Cohort, run: Run, weights: Array, ridge: float, settled: Arrival) -> Arrival:
    """How the job ended, by the pooled gradient at its last weights, or by movements where a client's is missing."""
    request = GradientRequest(ridge=ridge, weights=weights, energy=True)
    otherwise = "nobody can say how far the pooled solution is"
    if setup.secure:
        bound, round_num = largest_gradient(setup, ridge, weights), run.round_num + 1
        sums = await mean_of_all_masked(setup, cohort, run, round_num, request, bound, otherwise)
        if sums is None:
            return settled
        gradient, energy, known = sums["gradient"], float(sums["energy"]), float(sums["energy"]) > 0
    else:
        replies = await asked_of_all(cohort, run, request, otherwise)
        if not replies:
            return settled
        mean = await asyncio.to_thread(cohort.weighted, replies, setup.agreed.num_rows)
        gradient, energy, known = mean.gradient, mean.energy, all(reply.energy > 0 for reply in replies.values())
    largest = MOST_SQUARE + ridge if setup.agreed.spec.kernel in RANDOM_KERNELS else math.inf
    told = energy if known else None
    return certified(settled, quadratic_distance(weights, gradient, ridge, energy=told, largest=largest))
