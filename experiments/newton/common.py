"""KRR, DKRR, the FedNewton paper's step and the default on the same clients, features and ridge.

Every number comes from the same workflows and client steps that a real federation runs, in one process. Where the
workflow stops the paper's step since it diverges, its further steps are computed without the watch, to show what the
algorithm as printed would have given.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernfed.errors import DivergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.heads.settings import FedAvgSettings, FedProxSettings, NewtonSettings
from kernfed.methods.ridge.messages import GradientRequest, NewtonStepRequest
from kernfed.methods.ridge.settings import DkrrSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_client.data.local_job import LocalJob
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.evaluation import evaluate, measure_local
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup, prepare, setup_of
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_simulation.central import measure_central
from kernfed_simulation.federation import open_cohort

Floats = npt.NDArray[np.float64]
Scores = Mapping[str, float]


@dataclass(frozen=True)
class Compared:
    """Pooled test scores of one draw of features and partition."""

    scores: dict[str, Scores]
    """By method: KRR, DKRR, `#t` after t steps of the paper, and the default."""
    stopped_after: int | None
    """Steps of the paper's iteration that the watch let pass; None: it did not stop it."""
    rounds: list[Scores]
    """Of the default, by round."""


@dataclass(frozen=True)
class FirstOrder:
    """What FedAvg and FedProx need beside the ridge."""

    learning_rate: float
    proximal: float


async def compare(
    job: JobFile, jobs: Mapping[str, LocalJob], steps: Sequence[int], first_order: FirstOrder | None = None
) -> Compared:
    """All methods on the same clients.

    Args:
        job: A `newton` job with a fixed ridge.
        jobs: Client to its rows.
        steps: Steps t of "FedNewton #t" that are told, ascending.
        first_order: Of FedAvg and FedProx, which begin at DKRR and take as many rounds as the last of `steps`, with
            two local steps each (Appendix B); None: without these.
    """
    assert isinstance(job.method, NewtonSettings)
    ridge = ridge_of(job.method)
    cohort = open_cohort(job, jobs)
    run = Run(cohort, MemoryJournal())
    setup = setup_of(job, await prepare(job, cohort, run), run)
    setup = replace(setup, baseline=await measure_local(setup, cohort, Run(cohort, MemoryJournal()), ridge))
    scores: dict[str, Scores] = {"KRR": measure_central(jobs, ridge).pooled["central"]}
    dkrr = DkrrSettings(name="dkrr", ridge=ridge)
    others = open_cohort(job.model_copy(update={"method": dkrr}), jobs)
    scores["DKRR"] = (await _by_round("dkrr", dkrr, setup, others))[0][-1]
    if first_order is not None:
        begin: dict[str, Any] = {"ridge": ridge, "begin": "dkrr", "rounds": max(steps)}
        rate = first_order.learning_rate
        fedavg = FedAvgSettings(name="fedavg", learning_rate=rate, local_steps=2, **begin)
        fedprox = FedProxSettings(name="fedprox", proximal=first_order.proximal, **begin)
        for label, settings in (("FedAvg", fedavg), ("FedProx", fedprox)):
            cohort_of = open_cohort(job.model_copy(update={"method": settings}), jobs)
            scores[label] = (await _by_round(settings.name, settings, setup, cohort_of))[0][-1]
    paper = NewtonSettings(name="newton", ridge=ridge, step="paper", rounds=max(steps))
    found, weights = await _by_round("newton", paper, setup, cohort)
    stopped_after = len(found) if len(found) < max(steps) else None
    async for value in _unwatched(setup, cohort, ridge, weights, max(steps) - len(found)):
        found.append(value)
    scores |= {f"#{t}": found[t - 1] for t in steps}
    rounds, _ = await _by_round("newton", NewtonSettings(name="newton", ridge=ridge, rounds=30), setup, cohort)
    scores |= {"default, 2 rounds": rounds[min(1, len(rounds) - 1)], "default": rounds[-1]}
    return Compared(scores, stopped_after, rounds)


async def _by_round(method: str, settings: Any, setup: Setup, cohort: Cohort) -> tuple[list[Scores], Floats]:
    """Pooled scores after each round of a workflow, and its last weights."""
    journal = MemoryJournal()
    with contextlib.suppress(DivergedRunError):  # what it had reached is in the journal
        await WORKFLOWS[method].run(setup, settings, cohort, Run(cohort, journal))
    closed = [e.metrics for e in journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics is not None]
    assert journal.last is not None
    return [m.pooled["global"] for m in closed], journal.last.state["weights"]


async def _unwatched(setup: Setup, cohort: Cohort, ridge: float, w: Floats, steps: int) -> AsyncIterator[Scores]:
    """Algorithm 1, lines 5-8, whatever becomes of it; NaN from where its numbers can no longer be measured."""
    scores: Scores = (await evaluate(setup, cohort, Run(cohort, MemoryJournal()), w)).pooled["global"]
    for _ in range(steps):
        with contextlib.suppress(DivergedError):
            gradient = (await cohort.mean(GradientRequest(ridge=ridge, weights=w))).gradient
            w = w - (await cohort.mean(NewtonStepRequest(ridge=ridge, gradient=gradient))).newton_step
            scores = (await evaluate(setup, cohort, Run(cohort, MemoryJournal()), w)).pooled["global"]
            yield scores
            continue
        yield dict.fromkeys(scores, math.nan)


def told_stops(compared: Sequence[Compared]) -> str:
    """A line on where the watch stopped the paper's step; empty: nowhere."""
    stopped = [c.stopped_after for c in compared if c.stopped_after is not None]
    if not stopped:
        return ""
    return (
        f"  the watch stopped the paper's step in {len(stopped)} of {len(compared)} repetitions, after step "
        f"{', '.join(map(str, stopped))}; later steps are those of the algorithm as printed"
    )
