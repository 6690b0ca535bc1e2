"""Agreement on columns with types, ahead of all else: levels that any client has, and means that take gaps' places.

What leaves a client: of each category without given levels the levels of enough rows; of each column whose gaps are
filled, or which become ranks, a rounded number of rows, mean and deviation, and for medians and ranks rounded quantiles
(`summary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernfed.columns.agree import open_plans, settle
from kernfed.columns.plan import ColumnFound, ColumnPlan, MissingRule, as_asked
from kernfed.errors import DataError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import FindColumnsRequest
from kernfed.jobs.job_file import JobFile
from kernfed.maths.statistics import Moments
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Earlier
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.scales import APART_WORDS, stands_apart


async def agree_columns(job: JobFile, earlier: Earlier | None, cohort: Cohort, run: Run) -> JobFile:
    """The job with the plans that its clients agreed on, once in its life; the job itself where its columns are plain.

    Raises:
        JobError: A client's cells do not fit, or its policy does not allow the question.
        DataError: The clients' columns do not go together, or an earlier job makes something else of its columns.
    """
    data = job.data
    if data is None or not data.plans:
        return job
    plans, kept = data.plans, run.agreed.agreement or (earlier and earlier.agreement)
    if kept:
        if as_asked(kept.columns, plans) != plans:
            raise DataError(
                "the job goes on from one that makes something else of its columns; give data.columns and data.missing "
                "as they are there"
            )
        return job.model_copy(update={"data": data.agreed(kept.columns)})
    asked = open_plans(plans)
    found: dict[str, Sequence[ColumnFound]] = {}
    if asked:
        gate = Gate(cohort, run, strict=job.cohort.preflight == "all")
        replies = await gate.ask(FindColumnsRequest(dataset=job.cohort.dataset, columns=asked))
        found = {client: reply.columns for client, reply in sorted(replies.items())}
        found = _without_apart(asked, found, run)
    counted = {client: [float(column.num_rows) for column in columns] for client, columns in found.items()}
    agreed = settle(plans, found, _counted(cohort, counted))
    _note(plans, agreed, run)
    return job.model_copy(update={"data": data.agreed(agreed)})


def _counted(cohort: Cohort, rows: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """What each client counts in the mean of each column."""
    weights: dict[str, list[float]] = {client: [] for client in rows}
    for place in range(max((len(of) for of in rows.values()), default=0)):
        counted = cohort.counted({client: of[place] for client, of in rows.items()})
        for client in rows:
            weights[client].append(counted[client])
    return weights


def _without_apart(
    plans: Sequence[ColumnPlan], found: Mapping[str, Sequence[ColumnFound]], run: Run
) -> dict[str, Sequence[ColumnFound]]:
    """Leave means of clients that stand apart from all others out, as in the scales of columns."""
    changed = {client: list(columns) for client, columns in found.items()}
    for place, plan in enumerate(plans):
        stated = {
            client: Moments(
                of[place].num_rows, np.array([of[place].mean]), np.array([of[place].deviation]), np.zeros(1)
            )
            for client, of in found.items()
            if of[place].num_rows
        }
        for client, apart in (stands_apart(stated) if stated else {}).items():
            if apart.columns.any():
                changed[client][place] = replace(changed[client][place], num_rows=0)
                of = "ranks of" if plan.rank else f"{_middle(plan)} that takes the place of gaps in"
                run.note(f"{client} has no say in the {of} {plan.name}{APART_WORDS}")
    return dict(changed)


def _note(plans: Sequence[ColumnPlan], agreed: Sequence[ColumnPlan], run: Run) -> None:
    told = [
        f"{plan.name} ({listed(plan.levels, more=', ...')})"
        for asked, plan in zip(plans, agreed, strict=True)
        if asked.agrees_on_levels
    ]
    if told:
        run.note(f"levels that the clients agreed on: {listed(told, more=' and {left} more columns')}")
    filled = [f"{plan.name} {plan.fill:.6g} ({_middle(plan)})" for plan in agreed if plan.agrees_on_fill]
    if filled:
        run.note(f"numbers that take the place of gaps: {listed(filled, more=' and {left} more')}")


def _middle(plan: ColumnPlan) -> str:
    return "median" if plan.missing is MissingRule.MEDIAN else "mean"
