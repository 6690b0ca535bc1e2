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
from kernfed_server.jobs.one_round import found_once, note_lacking
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.describe.pooled import Columns, described


async def run(setup: Setup, settings: DescribeSettings, cohort: Cohort, run: Run) -> DescribedTable:
    """Counts, moments, quantiles, histograms and correlations of each client's columns, and of all rows.

    What leaves a client: per column its mean and deviation, means of neighbours among its sorted values, and rows by
    value (`summary`); correlations of its columns (`sufficient_statistic`), which a client may keep back. The
    coordinator learns these per client.
    """
    columns = Columns.of(setup.schema, setup.agreed.classes)

    async def find() -> DescribeFinding:
        asked = DescribeColumnsRequest(
            num_columns=len(columns.numbers), num_groups=NUM_GROUPS, num_levels=settings.num_levels
        )
        told = await cohort.ask(asked, refusing=columns.refusing)
        pairs = await _pairs(columns, told, cohort, run) if settings.correlations else {}
        note_lacking("statistics", told, cohort, run)
        return described(columns, told, pairs, settings.quantiles, settings.num_bins)

    return DescribedTable(await found_once(DescribeFinding, "statistics", run, find))


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


WORKFLOWS = {"describe": Workflow(run, adapt=as_they_are)}
