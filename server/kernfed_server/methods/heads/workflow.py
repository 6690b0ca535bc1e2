"""The methods that train one global linear model: on ridge problems, or a head where the job names a loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.jobs.job_file import JobFile
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.settings import FedAvgSettings, FedProxSettings, NewtonSettings, has_head
from kernfed.methods.shared_settings import ridge_of
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.start.rules import RidgeChoice, by_sums
from kernfed_server.methods.base import Workflow, linear_model, local_ridge
from kernfed_server.methods.heads import newton, rounds
from kernfed_server.methods.heads.problem import head_loss
from kernfed_server.methods.ridge import fedavg as ridge_fedavg
from kernfed_server.methods.ridge import fedprox as ridge_fedprox
from kernfed_server.methods.ridge import newton as ridge_newton
from kernfed_server.methods.ridge.fedavg import FedAvgPlan
from kernfed_server.methods.ridge.fedprox import FedProxPlan
from kernfed_server.methods.ridge.newton import NewtonPlan
from kernfed_server.methods.ridge.search import chosen_ridge


async def run_newton(setup: Setup, settings: NewtonSettings, cohort: Cohort, run: Run) -> Array | None:
    """FedNewton, by the loss of the job."""
    if has_head(settings):
        return await newton.run(setup, settings, cohort, run)
    plan = NewtonPlan(
        ridge_of(settings),
        settings.rounds,
        settings.stop_at,
        settings.step == "paper",
        differences=settings.differences,
    )
    return await ridge_newton.run(setup, plan, cohort, run)


async def run_fedavg(setup: Setup, settings: FedAvgSettings, cohort: Cohort, run: Run) -> Array | None:
    """Federated averaging, by the loss of the job."""
    if has_head(settings):
        return await rounds.run_fedavg(setup, settings, cohort, run)
    plan = FedAvgPlan(
        **_averaged(settings),
        learning_rate=settings.learning_rate,
        local_steps=settings.local_steps,
        batch_size=settings.batch_size,
    )
    return await ridge_fedavg.run(setup, plan, cohort, run)


async def run_fedprox(setup: Setup, settings: FedProxSettings, cohort: Cohort, run: Run) -> Array | None:
    """FedProx, by the loss of the job."""
    if has_head(settings):
        return await rounds.run_fedprox(setup, settings, cohort, run)
    plan = FedProxPlan(**_averaged(settings), proximal=settings.proximal)
    return await ridge_fedprox.run(setup, plan, cohort, run)


def _averaged(settings: FedAvgSettings | FedProxSettings) -> dict[str, Any]:
    """What both plans have of rounds that are averaged."""
    return {
        "ridge": ridge_of(settings),
        "rounds": settings.rounds,
        "client_fraction": settings.client_fraction,
        "rule": settings.rule,
        "begin": settings.begin,
    }


async def _baseline(setup: Setup, settings: Any, cohort: Cohort, run: Run) -> RoundMetrics:
    """Metrics of the clients' own ridge models; a head's workflow measures own heads itself."""
    return RoundMetrics() if has_head(settings) else await local_ridge(setup, settings, cohort, run)


def head_model(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """The model of weights, shape (M, C); of a head, with a last row for the bias where the job has an intercept."""
    if not has_head(job.method):
        return linear_model(job, setup, weights)
    loss = head_loss(getattr(job.method, "loss"), setup.schema.task)  # noqa: B009  # of heads, all have one
    bias = weights[-1] if setup.intercept else np.zeros(setup.num_outputs)
    facts = {"name": job.name} | job_facts(setup, job.method)
    return feature_model(setup, weights[: setup.num_features], facts, target_mean=bias, link=FACTS[loss].link)


def _search(settings: Any) -> RidgeChoice | None:
    if isinstance(settings, NewtonSettings) and not isinstance(settings.ridge, list):
        return chosen_ridge if settings.may_search else None
    return None if has_head(settings) else by_sums


def _workflow(run: Callable[[Setup, Any, Cohort, Run], Awaitable[Array | None]]) -> Workflow:
    def copies(settings: Any) -> int:
        return 2 if has_head(settings) else 0

    return Workflow(run, _baseline, head_model, feature_copies=copies, search=_search)


WORKFLOWS = {
    "newton": _workflow(run_newton),
    "fedavg": _workflow(run_fedavg),
    "fedprox": _workflow(run_fedprox),
    "fedsophia": _workflow(rounds.run_fedsophia),
    "fednew": _workflow(rounds.run_fednew),
}
