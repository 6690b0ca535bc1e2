"""FedNewton on a head over frozen features: local Newton steps on the global gradient, by any solver."""

from __future__ import annotations

from dataclasses import replace

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.heads.settings import NewtonSettings
from kernfed.methods.heads.solver_choice import choose_solver
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.heads import newton_auto as newton_head_auto
from kernfed_server.methods.heads import newton_paper as newton_head_paper
from kernfed_server.methods.heads.newton_steps import LBFGS, SOLVERS, HeadTrainer
from kernfed_server.methods.heads.problem import HeadProblem, open_head

_ENOUGH_DAMPING = 1e-2
"""Damping and ridge below which a Hessian of few rows is as good as singular, for features of size 1."""
_SHARE_APART, _MOST_APART, _ENOUGH_APART = 0.05, 0.2, 100
"""Shares of the training rows that local training keeps apart; rows below which the share grows."""


async def run(setup: Setup, settings: NewtonSettings, cohort: Cohort, run: Run) -> Array | None:
    """Train a head W, shape (D, C), on the pooled loss, without pooling a row.

    What leaves a client: in each round a gradient and its loss (`gradient`, `metric`), and a local Newton step on the
    global gradient (`newton_step`); with a line search, losses at other weights (`metric`); with a warm start, weights
    after local epochs and losses (`model_update`, `metric`). The coordinator learns these per client, and W.

    Source: FedNewton paper, Algorithm 2; with `step = "auto"` see `kernfed.methods.heads.safe_newton`.
    """
    auto = settings.step == "auto"
    fraction = _share_apart(settings, sum(setup.agreed.num_rows.values())) if auto and settings.warm_start else 0.0
    problem = await open_head(
        setup,
        settings,
        cohort,
        run,
        validation_fraction=fraction,
        choose_ridge=settings.chooses_ridge,
    )
    solver = _choose(problem, settings)
    _warn_few_rows(problem, settings, solver)
    trainer = HeadTrainer(problem, settings, solver)
    return problem.whole(await (newton_head_auto.train(trainer) if auto else newton_head_paper.train(trainer)))


def _share_apart(settings: NewtonSettings, num_rows: int) -> float:
    """The share of the training rows that local training keeps apart."""
    if settings.validation_fraction != "auto":
        return settings.validation_fraction
    return min(max(_SHARE_APART, _ENOUGH_APART / max(num_rows, 1)), _MOST_APART)


def _choose(problem: HeadProblem, settings: NewtonSettings) -> str:
    """The solver, and why, for the record; a resumed run keeps its own."""
    d, c = problem.shape
    rows = max(problem.rows.values())
    if problem.run.resumed is not None:
        solver, reason = SOLVERS[int(problem.run.resumed["solver"][0])], "as before the restart"
    elif settings.solver == "auto":
        choice = choose_solver(problem.loss, rows, d, c, problem.memory_bytes, settings.max_solver_bytes)
        solver, reason = choice.solver.value, choice.reason
    else:
        solver, reason = settings.solver, "named in the job"
    problem.run.note(f"solver {solver}: {reason}")
    problem.finding = replace(problem.finding, step=settings.step, solver=solver, reason=reason)
    return solver


def _warn_few_rows(problem: HeadProblem, settings: NewtonSettings, solver: str) -> None:
    """Say before round 1 where local Hessians will not stand for the pooled one, from row counts and damping."""
    if solver == LBFGS:
        return
    d, _ = problem.shape
    few = [client for client, rows in problem.rows.items() if rows < d]
    undamped = settings.damping != "auto" and float(settings.damping) + problem.ridge < _ENOUGH_DAMPING
    if not few or not (undamped or settings.step == "paper"):
        return
    least = min(problem.rows[client] for client in few)
    remedies = ['step = "auto"']
    remedies += [] if settings.line_search else ["line_search = true"]
    remedies += [] if settings.damping == "auto" else ['damping = "auto"']
    remedy = (
        "only more rounds are at stake: the loss decides over each step"
        if settings.step == "auto"
        else f"the averaged step may overshoot; then use {listed(remedies)}"
    )
    problem.run.note(
        f"{listed(few, more=', …')}: fewer rows (from {least}) than the {d} features, so most directions have no local "
        f"curvature but damping and ridge ({settings.damping} and {problem.ridge:g}): {remedy}"
    )
