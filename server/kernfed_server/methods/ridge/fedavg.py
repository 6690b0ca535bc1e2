"""Federated averaging of gradient steps on the ridge objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernfed import rng
from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.ridge.messages import CurvatureRequest, GradientDescentRequest
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.ridge.averaging import AVERAGED, AveragedPlan, averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvgPlan(AveragedPlan):
    """How federated averaging runs on ridge problems."""

    learning_rate: float | Literal["auto"]
    local_steps: int
    batch_size: int | None


async def run(setup: Setup, plan: FedAvgPlan, cohort: Cohort, run: Run) -> Array | None:
    """Each round averages the clients' weights after `local_steps` steps from W, weighted by training rows.

    W is 0 at first, or the mean of the clients' own solutions.

    A round asks `client_fraction` of the clients. A client that misses a round, or fails in it, is left out of its
    average. With several local steps and clients that differ, the limit is not the pooled solution.

    What leaves a client: its updated weights in every round, and the largest curvature of its objective where the
    learning rate is "auto". The coordinator learns each client's update, from which gradients follow.

    Source: McMahan et al. (2017), Algorithm 1.
    """
    learning_rate = plan.learning_rate
    if learning_rate == "auto":

        async def agree() -> float:  # stable at every client: gradient descent diverges from twice this on
            curvatures = await cohort.ask(CurvatureRequest(ridge=plan.ridge))
            rate = 1.0 / max(c.largest_eigenvalue for c in curvatures.values())
            run.note(f"learning rate {rate:.6g}: 1 / the largest curvature of any client's objective")
            return rate

        learning_rate = float(await run.agreed.once("learning rate", agree))

    def request(weights: Array, round_num: int) -> GradientDescentRequest:
        return GradientDescentRequest(
            ridge=plan.ridge,
            weights=weights,
            learning_rate=learning_rate,
            num_steps=plan.local_steps,
            batch_size=plan.batch_size or 0,
            seed=rng.seed(setup.schema.seed, "fedavg", str(round_num)),
        )

    one_step = plan.local_steps == 1 and plan.rule.plain
    return await averaged(
        setup,
        cohort,
        run,
        plan,
        request,
        all_rows=not plan.batch_size,
        limit="" if one_step else AVERAGED,
    )
