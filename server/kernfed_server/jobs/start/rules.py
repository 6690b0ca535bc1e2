"""Rules of a job file that stand for numbers which depend on the clients' rows: they are resolved after preparation.

A number is resolved once. It is in the run's checkpoints, so a job that goes on after a restart keeps it, also where a
client has fallen out since; and it is in the job's record and among its notes.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from kernfed.features.ridge_rule import FORMER_RIDGE, ridge_by_rows
from kernfed.features.spec import FeatureSpec
from kernfed.federation.cohort import Cohort
from kernfed.jobs.job_file import JobFile
from kernfed.methods.finding import BegunFinding
from kernfed.methods.shared_settings import AUTO, BY_ROWS
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup

_RIDGE = "ridge"
_DEALT = ("row-by-row", "copies-together")
_SPLITS = (_DEALT[:1], _DEALT, _DEALT, (*_DEALT, "by-content"))
"""Ways to hold rows out by the rules of a run, see `kernfed_server.jobs.run.RULES`; the last one was the default."""

RidgeChoice = Callable[[Setup, float, Cohort, Run], Awaitable[tuple[float, str]]]
"""(setup, ridge to begin with, cohort, run) -> the ridge, and in words how it was found."""


def as_begun(job: JobFile, run: Run) -> JobFile:
    """The job by the rules with which its run began: a key that it leaves out had another default then.

    Args:
        job: As this release reads it.
        run: Its run, which may go on from an earlier life or another job.
    """
    if job.data is None or run.rules >= len(_SPLITS):
        return job
    known = _SPLITS[run.rules]
    split = job.data.split if job.data.split in known else known[-1]
    begun = job.model_copy(update={"data": job.data.model_copy(update={"split": split})})
    run.publish(BegunFinding.of("data", job.plan()["data"], begun.plan()["data"]))
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
        search: How the method chooses a ridge by rows kept apart, where it can.

    Returns:
        The job with the numbers, and the agreement with each client's own: `local` is what a client reaches without
        the others, so its ridge follows from its own rows.
    """
    method = job.method
    rule = getattr(method, _RIDGE, None)
    searched = rule == AUTO and search is not None
    if (rule != BY_ROWS and not searched) or _RIDGE in method.idle_keys():
        return job, setup
    total = round(sum(run.counted(setup.agreed.num_rows).values()))
    ridge = _by_rows(method, setup.agreed.spec, total) if setup.agreed.ridge is None else setup.agreed.ridge
    own = {client: _by_rows(method, setup.agreed.spec, rows) for client, rows in setup.agreed.num_rows.items()}
    why = f"by the rule for {total} training rows and {setup.num_features} features"
    if setup.agreed.ridge is not None:
        why = "by the rule for the rows of the earlier job"
    if rule == AUTO and search is not None:
        ridge, why = await run.agreed.once("chosen ridge", functools.partial(search, setup, ridge, cohort, run))
    if run.resumed is not None:
        kept = run.resolved_before()
        if _RIDGE not in kept:
            ridge, own, why = FORMER_RIDGE, {}, "the job began before there was a rule"
        elif kept[_RIDGE] != ridge:
            ridge, why = kept[_RIDGE], "by the rule for the rows with which the job began"
    run.resolve({_RIDGE: ridge})
    run.note(f"ridge {ridge:.6g}: {why}")
    found = job.model_copy(update={"method": method.model_copy(update=dict(run.resolved))})
    return found, replace(setup, own_ridge=own, choose_ridge=rule == AUTO)


def _by_rows(method: Any, spec: FeatureSpec, num_rows: int) -> float:
    return ridge_by_rows(spec, num_rows, head=getattr(method, "loss", "ridge") != "ridge")


def resolved_settings(settings: Any, resolved: Mapping[str, float]) -> Any:
    """Settings of a method with the numbers that a run resolved."""
    return settings.model_copy(update=dict(resolved)) if resolved else settings
