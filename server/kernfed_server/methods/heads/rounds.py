"""The rivals of FedNewton on a head: FedAvg, FedProx, FedSophia and FedNew, on the clients drawn for each round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Request
from kernfed.methods.heads.messages import HeadDescentRequest, HeadDirectionRequest, HeadSophiaRequest, HeadWeights
from kernfed.methods.heads.settings import FedAvgSettings, FedNewSettings, FedProxSettings, FedSophiaSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import names_array
from kernfed_server.jobs.updating import updated
from kernfed_server.methods.heads.problem import open_head

LEARNING_RATE = 0.01
Averaged = FedAvgSettings | FedProxSettings | FedSophiaSettings


async def run_fedavg(setup: Setup, settings: FedAvgSettings, cohort: Cohort, run: Run) -> Array | None:
    """Each round averages the clients' weights after local epochs of gradient descent with momentum.

    What leaves a client: its weights in every round it takes part in (`model_update`).

    Source: McMahan et al. (2017), Algorithm 1.
    """
    rate = LEARNING_RATE if settings.learning_rate == "auto" else settings.learning_rate
    request = _descent(settings, 0.0, rate, settings.step_rows)
    return await _averaged(setup, settings, cohort, run, request)


async def run_fedprox(setup: Setup, settings: FedProxSettings, cohort: Cohort, run: Run) -> Array | None:
    """As FedAvg, with (proximal/2) |V - W|² in every client's objective.

    What leaves a client: its weights in every round it takes part in (`model_update`).

    Source: Li et al. (2020), Algorithm 2.
    """
    request = _descent(settings, settings.proximal, settings.learning_rate, settings.batch_size)
    return await _averaged(setup, settings, cohort, run, request)


def _descent(
    settings: FedAvgSettings | FedProxSettings, proximal: float, learning_rate: float, batch_size: int
) -> Callable[[Array, int], HeadDescentRequest]:
    """Local epochs of gradient descent with momentum from the weights (M, C), for a round's seed."""

    def request(weights: Array, seed: int) -> HeadDescentRequest:
        return HeadDescentRequest(
            ridge=ridge_of(settings),
            proximal=proximal,
            learning_rate=learning_rate,
            momentum=settings.momentum,
            num_epochs=settings.local_epochs,
            batch_size=batch_size,
            seed=seed,
            weights=weights,
        )

    return request


async def run_fedsophia(setup: Setup, settings: FedSophiaSettings, cohort: Cohort, run: Run) -> Array | None:
    """Each round averages the clients' weights after local epochs of clipped steps, preconditioned by a diagonal.

    Moving averages live within a round: a client starts each with fresh ones, and has nothing to keep.

    What leaves a client: its weights in every round it takes part in (`model_update`).

    Source: Elbakary et al. (2024), Algorithm 1.
    """

    def request(weights: Array, seed: int) -> HeadSophiaRequest:
        return HeadSophiaRequest(
            ridge=ridge_of(settings),
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            curvature_momentum=settings.curvature_momentum,
            clip=settings.clip,
            curvature_every=settings.curvature_every,
            target_deviation=setup.agreed.target_deviation,
            num_epochs=settings.local_epochs,
            batch_size=settings.batch_size,
            seed=seed,
            weights=weights,
        )

    return await _averaged(setup, settings, cohort, run, request)


async def run_fednew(setup: Setup, settings: FedNewSettings, cohort: Cohort, run: Run) -> Array | None:
    """One step of ADMM on the Newton direction in each round: W ← W - step_size · y, y the mean of the clients' y_j.

    A client's multiplier λ_j ← λ_j + penalty (y_j - y) follows from its replies, so the coordinator keeps it and sends
    it along; a client that is not drawn keeps its own.

    What leaves a client: its y_j in every round it takes part in (`newton_step`), which mixes its gradient, Hessian and
    multiplier.

    Source: Elgabli et al. (2022), Algorithm 1.
    """
    problem = await open_head(setup, settings, cohort, run)
    run.publish(problem.finding)
    names = tuple(sorted(problem.rows))
    weights, mean = run.first_weights(problem.shape), np.zeros(problem.shape)
    duals = np.zeros((len(names), *problem.shape))
    if run.resumed:
        weights, mean, duals = (run.resumed[name].copy() for name in ("weights", "direction", "duals"))
        names = run.resumed.names("names")
    place = {client: i for i, client in enumerate(names)}
    async for round_num in run.rounds(settings.rounds):
        asked = problem.sampled(settings.client_fraction, round_num)
        replies = await problem.ask_each(
            {
                client: HeadDirectionRequest(
                    ridge=ridge_of(settings),
                    damping=settings.damping,
                    penalty=settings.penalty,
                    tolerance=settings.solver_tolerance,
                    max_iterations=settings.solver_iterations,
                    weights=weights,
                    dual=duals[place[client]],
                    previous=mean,
                )
                for client in asked
            }
        )
        mean = problem.weighted(replies).direction
        for client, reply in replies.items():
            duals[place[client]] += settings.penalty * (reply.direction - mean)
        before, weights = weights, weights - settings.step_size * mean
        whole = settings.client_fraction == 1
        await problem.moved(round_num, settings.rounds, before, weights, whole=whole)
        state = {"weights": weights, "direction": mean, "duals": duals.copy(), "names": names_array(names)}
        await problem.close(round_num, settings.rounds, state, weights, {})
    return problem.whole(weights)


async def _averaged(
    setup: Setup, settings: Averaged, cohort: Cohort, run: Run, request: Callable[[Array, int], Request[HeadWeights]]
) -> Array | None:
    problem = await open_head(setup, settings, cohort, run)
    run.publish(problem.finding)
    weights = run.resumed["weights"] if run.resumed else run.first_weights(problem.shape)
    async for round_num in run.rounds(settings.rounds):
        asked = problem.sampled(settings.client_fraction, round_num)
        seed = problem.round_seed(settings.name, round_num)
        replies = await problem.ask(request(weights, seed), asked)
        before = weights
        weights = await updated(cohort, run, replies, problem.rows, settings.rule, before)
        await problem.moved(round_num, settings.rounds, before, weights, whole=False)
        await problem.close(round_num, settings.rounds, {"weights": weights}, weights, {})
    return problem.whole(weights)
