"""Every client finds its weights: by Q-aggregation, or by stages of cross-fitting that all clients score together."""

from __future__ import annotations

from collections.abc import Sequence

from kernfed.errors import JobError
from kernfed.maths.aggregate import total
from kernfed.methods.personalise.choice import Scores, Turns, fedavg_candidates
from kernfed.methods.personalise.crossfit import MIN_ROWS
from kernfed.methods.personalise.crossfit_messages import AdoptRequest, CrossfitRequest
from kernfed.methods.personalise.gains import theorem_constant
from kernfed.methods.personalise.messages import SolveWeightsRequest
from kernfed.methods.personalise.q_aggregation.paper import FEATURE_BOUND, PAPER_FACTOR, PAPER_STEPS
from kernfed.methods.personalise.q_aggregation.weights import (
    default_constants,
)
from kernfed_server.methods.personalise.components import find_centres, find_components, find_density
from kernfed_server.methods.personalise.statistics import STATISTICS
from kernfed_server.methods.personalise.weights import Personalisation


async def find_weights(job: Personalisation) -> None:
    """Hand on what was shared, and let every client find its weights, and what else the job asks for."""
    await job.hand_on()
    job.run.agreed.drop(STATISTICS)  # the round that is open ends with the weights
    if job.settings.weights == "crossfit":
        await _crossfit(job)
    else:
        await aggregate(job, exact=job.settings.weights == "exact")
    await find_components(job)
    await find_density(job)
    await find_centres(job)


async def aggregate(job: Personalisation, *, exact: bool) -> None:
    """Let every client find its weights by Q-aggregation, after what was shared was handed on."""
    settings, auto = job.settings, default_constants(len(job.clients))
    request = SolveWeightsRequest(
        exact=exact,
        c_q=auto.c_q if isinstance(settings.c_q, str) else settings.c_q,
        c_p=auto.c_p if isinstance(settings.c_p, str) else settings.c_p,
        bound=FEATURE_BOUND if job.points is None else 1.0,
        steps=0 if exact or settings.steps == PAPER_STEPS else settings.steps,
        step_factor=0.0 if exact or settings.step_factor == PAPER_FACTOR else settings.step_factor,
        theorem_q=settings.c_q == "theorem",
        theorem_p=settings.c_p == "theorem",
    )
    solved = await job.ask_learners(request)
    gap = max(reply.gap for reply in solved.values())
    rows = [job.embeddings[client].num_rows for client in job.learners]
    theorem = [theorem_constant(len(job.clients), n) for n in rows]
    q = _span(theorem if request.theorem_q else [request.c_q])
    p = _span(theorem if request.theorem_p else [request.c_p])
    job.say(f"Q-aggregation with C_Q {q}, C_P {p}: every client's objective is within {gap:.2g} of its optimum")


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.4g}", f"{max(values):.4g}"
    return least if least == most else f"{least} to {most}"


async def _crossfit(job: Personalisation) -> None:
    """Stages of proposing, scoring and choosing; then each client adopts what the best one chose."""
    grid = job.grid
    deviate = job.settings.trainer != "fedavg" if job.settings.deviate == "auto" else job.settings.deviate
    turns = Turns(grid, bool(deviate))
    embedded = job.embeddings
    small = [c for c in job.clients if (embedded[c].num_different or embedded[c].num_rows) < MIN_ROWS]
    scoring = sorted(set(job.clients) - set(small)) if small else None
    if scoring == []:
        raise JobError(
            f"cross-fitting needs a client of at least {MIN_ROWS} different training rows, and no client has as "
            'many; add rows, or use weights = "paper"'
        )
    if small:
        job.say(
            f"{', '.join(small)}: fewer than {MIN_ROWS} different training rows; the choice of the other clients is "
            "taken"
        )
    while not turns.done:
        listed = turns.listed
        request = CrossfitRequest(
            grid=grid,
            decisions=tuple(turns.decisions),
            num_candidates=len(listed),
            num_fedavg=len(fedavg_candidates(listed)),
        )
        told = await job.cohort.ask(request, clients=scoring, everyone=True, drawn=scoring is not None)
        summed = total(list(told.values()))
        turns.add(Scores(summed.losses, summed.squared_differences, summed.variances), summed.num_clients)
    chosen = turns.chosen
    job.say(
        f"cross-fitting chose among {len(turns.listed)} candidates in {len(turns.decisions)} stages, for all "
        f"clients together: learn from {chosen.words}"
    )
    job.chosen = grid, tuple(turns.decisions)
    await job.ask_learners(AdoptRequest(grid=grid, decisions=tuple(turns.decisions)))
