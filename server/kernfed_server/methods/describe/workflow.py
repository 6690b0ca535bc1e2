"""Statistics of columns: what each client tells of its rows, and what follows for the rows of all."""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.federation.cohort import Cohort
from kernfed.methods.describe.finding import DescribeFinding
from kernfed.methods.describe.messages import (
    NUM_GROUPS,
    ColumnsDescribed,
    DescribeColumnsRequest,
    DescribePairsRequest,
    PairsDescribed,
)
from kernfed.methods.describe.settings import DescribeSettings
from kernfed.methods.describe.table import DescribedTable
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import json_array
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.describe.pooled import Columns, described


async def run(setup: Setup, settings: DescribeSettings, cohort: Cohort, run: Run) -> DescribedTable:
    """Counts, moments, quantiles, histograms and correlations of each client's columns, and of all rows.

    What leaves a client: per column its mean and deviation, means of neighbours among its sorted values, and rows by
    value (`summary`); correlations of its columns (`sufficient_statistic`), which a client may keep back. The
    coordinator learns these per client.
    """
    resumed = run.resumed
    found = DescribeFinding.from_json(resumed.json("finding")) if resumed else None
    async for round_num in run.rounds(1):
        columns = Columns.of(setup.schema, setup.agreed.classes)
        asked = DescribeColumnsRequest(
            num_columns=len(columns.numbers), num_groups=NUM_GROUPS, num_levels=settings.num_levels
        )
        told = await cohort.ask(asked, refusing=columns.refusing)
        pairs = await _pairs(columns, told, cohort, run) if settings.correlations else {}
        found = described(columns, told, pairs, settings.quantiles, settings.num_bins)
        _note_lacking(told, cohort, run)
        run.publish(found)
        run.ends(Arrival("one round, as the method has: statistics of the rows of all clients that answered"))
        await run.record(round_num, {"finding": json_array(found.to_json())})
    assert found is not None  # noqa: S101  # one round is done, now or before
    return DescribedTable(found)


async def _pairs(
    columns: Columns, told: Mapping[str, ColumnsDescribed], cohort: Cohort, run: Run
) -> dict[str, PairsDescribed]:
    """Correlations of those clients whose policy lets them leave."""
    asked = DescribePairsRequest(num_columns=len(columns.numbers))
    pairs = await run.optional(cohort.ask(asked, clients=told, optional=True), "no correlations")
    if pairs and (lacking := sorted(told.keys() - pairs.keys())):
        run.note(f"correlations are of the other clients' rows: {listed(lacking, more=', ...')} told none")
    if few := sorted(client for client, reply in pairs.items() if reply.few_pairs):
        run.note(
            f"{listed(few, more=', ...')}: some combinations of two columns of few values have fewer rows there than "
            "policy.min_rows; correlations are as if none had"
        )
    return pairs


def _note_lacking(told: Mapping[str, ColumnsDescribed], cohort: Cohort, run: Run) -> None:
    if lacking := [f"{client} ({cohort.why_missing(client)})" for client in cohort.clients if client not in told]:
        run.note(f"statistics are of the other clients' rows, without {listed(lacking, more=', ...')}")


WORKFLOWS = {"describe": Workflow(run, adapt=as_they_are)}
