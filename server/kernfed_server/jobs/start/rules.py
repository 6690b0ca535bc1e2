"""Rules of a job file that stand for numbers which depend on the clients' rows: they are resolved after preparation.

A number is resolved once. It is in the run's checkpoints, so a job that goes on after a restart keeps it, also where a
client has fallen out since; and it is in the job's record and among its notes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from kernfed.features.ridge_rule import FORMER_RIDGE, ridge_by_rows
from kernfed.features.spec import FeatureSpec
from kernfed.federation.cohort import Cohort
from kernfed.jobs.job_file import JobFile
from kernfed.methods.finding import BegunFinding
from kernfed.methods.shared_settings import AUTO, AUTO_IF_MANY, BY_ROWS, MANY_ROWS
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.choosing import CHOSEN_RIDGE, Chooser, ridge_plan
from kernfed_server.jobs.start.preparation import Setup

_RIDGE = "ridge"
_DEALT = ("row-by-row", "copies-together")
_SPLITS = (_DEALT[:1], _DEALT, _DEALT, (*_DEALT, "by-content"))
"""Ways to hold rows out by the rules of a run, see `kernfed_server.jobs.run.RULES`; the last one was the default."""

_SEARCHES = 5
"""The first rules of a run by which rows kept apart may choose the ridge where the job does not say so."""

RidgeChoice = Callable[[Setup, float, Cohort, Run], Awaitable[tuple[float, str]]]
"""(setup, ridge to begin with, cohort, run) -> the ridge, and in words how it was found."""


def as_begun(job: JobFile, run: Run) -> JobFile:
    """The job by the rules with which its run began: a key that it leaves out had another default then.

    Args:
        job: As this release reads it.
        run: Its run, which may go on from an earlier life or another job.
    """
    changed: dict[str, Any] = {}
    if run.rules < len(_SPLITS) and job.data is not None:
        known = _SPLITS[run.rules]
        split = job.data.split if job.data.split in known else known[-1]
        changed["data"] = job.data.model_copy(update={"split": split})
    if run.rules < _SEARCHES and getattr(job.method, _RIDGE, None) == AUTO_IF_MANY:
        changed["method"] = job.method.model_copy(update={_RIDGE: BY_ROWS})
    begun = job.model_copy(update=changed)
    now, then = job.plan(), begun.plan()
    found = [BegunFinding.of(table, now[table], then[table]).values for table in changed]
    if any(found):
        run.publish(BegunFinding({key: value for values in found for key, value in values.items()}))
    return begun


async def resolve(
    job: JobFile, setup: Setup, cohort: Cohort, run: Run, search: RidgeChoice | None = None
) -> tuple[JobFile, Setup]:
    """Put numbers in the place of rules.

    Args:
        job: As submitted.
        setup: What its clients agreed on.
        cohort: Its clients.
        run: Its run.
        search: How a ridge of these settings is chosen by rows kept apart; None: it cannot be.

    Returns:
        The job with the numbers, and the agreement with each client's own: `local` is what a client reaches without
        the others, so its ridge follows from its own rows.
    """
    method = job.method
    rule = getattr(method, _RIDGE, None)
    open_to_search = (rule == AUTO or isinstance(rule, list)) and search is not None
    if not (rule in (BY_ROWS, AUTO_IF_MANY) or open_to_search) or _RIDGE in method.idle_keys():
        return job, setup
    total = round(sum(run.counted(setup.agreed.num_rows).values()))
    ridge = _by_rows(method, setup.agreed.spec, total) if setup.agreed.ridge is None else setup.agreed.ridge
    own = {client: _by_rows(method, setup.agreed.spec, rows) for client, rows in setup.agreed.num_rows.items()}
    why = f"by the rule for {total} training rows and {setup.num_features} features"
    if setup.agreed.ridge is not None:
        why = "by the rule for the rows of the earlier job"
    plan = ridge_plan(method, setup.agreed.spec, total, searched=search is not None)
    if rule == AUTO_IF_MANY and search is not None and not plan.chosen:
        why += f"; from {MANY_ROWS} rows on, rows kept apart choose it"
    if search is not None and plan.chosen:
        ridge, why = await run.agreed.once(CHOSEN_RIDGE, functools.partial(search, setup, ridge, cohort, run))
    if run.resumed is not None:
        kept = run.resolved_before()
        if _RIDGE not in kept:
            ridge, own, why = FORMER_RIDGE, {}, "the job began before there was a rule"
        elif kept[_RIDGE] != ridge:
            ridge, why = kept[_RIDGE], "by the rule for the rows with which the job began"
    run.resolve({_RIDGE: ridge})
    run.note(f"ridge {ridge:.6g}: {why}")
    found = job.model_copy(update={"method": method.model_copy(update=dict(run.resolved))})
    return found, replace(setup, own_ridge=own, choose_ridge=plan.chosen)


async def by_sums(setup: Setup, ridge: float, cohort: Cohort, run: Run) -> tuple[float, str]:
    """The ridge with which folds of the training rows are predicted best, by sums over them: a `RidgeChoice`."""
    assert setup.job is not None  # noqa: S101  # features were mapped by it
    total = sum(run.counted(setup.agreed.num_rows).values())
    plan = ridge_plan(setup.job.method, setup.agreed.spec, total, searched=True)
    chooser = Chooser(
        ridges=plan,
        intercept=setup.intercept,
        num_outputs=setup.num_outputs,
        num_rows=setup.agreed.num_rows,
        cohort=cohort,
        run=run,
    )
    found = await chooser.ridge(setup.agreed.spec)
    if isinstance(found, str) or found.ridge is None:
        nearest = ridge if plan.usual is not None else min(plan.tried, key=lambda r: abs(math.log(r / ridge)))
        how = "by the rule" if plan.usual is not None else "the one of the list that is nearest to the rule"
        return nearest, f"{how}, {found}"
    return found.ridge, found.words


def _by_rows(method: Any, spec: FeatureSpec, num_rows: int) -> float:
    return ridge_by_rows(spec, num_rows, head=getattr(method, "loss", "ridge") != "ridge")


def resolved_settings(settings: Any, resolved: Mapping[str, float]) -> Any:
    """Settings of a method with the numbers that a run resolved."""
    return settings.model_copy(update=dict(resolved)) if resolved else settings
