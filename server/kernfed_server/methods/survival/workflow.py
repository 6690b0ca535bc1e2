"""Times to an event: curves of survival of all rows, of which clients count theirs by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kernfed.errors import DataError
from kernfed.federation.cohort import Cohort
from kernfed.methods.survival.curves import Counts, log_rank, median_time, product_limit
from kernfed.methods.survival.finding import ALL, Curve, KaplanMeierFinding, LogRank
from kernfed.methods.survival.messages import MOST_GROUPS, SurvivalTimes, SurvivalTimesRequest
from kernfed.methods.survival.settings import KaplanMeierSettings
from kernfed.methods.survival.table import CurveTable
from kernfed.wording import listed
from kernfed_server.jobs.one_round import found_once, note_lacking
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.survival.stated_times import note_early, strange_times


async def run(setup: Setup, settings: KaplanMeierSettings, cohort: Cohort, run: Run) -> CurveTable:
    """Curves of survival of all rows and by group, and log-rank tests of the groups.

    What leaves a client: by group and outcome, rows counted at means of the times of neighbours (`summary`). The
    coordinator learns these per client.
    """

    async def find() -> KaplanMeierFinding:
        request = SurvivalTimesRequest(event=settings.event, by=settings.by, grid=tuple(settings.grid))

        def refusing(client: str, reply: SurvivalTimes) -> Iterator[str]:
            if not settings.grid:
                counts = reply.deaths + reply.censored
                yield from strange_times(setup, client, reply.times, counts, reply.num_rows)

        told = await cohort.ask(request, refusing=refusing)
        found = finding_of(setup.schema.target, settings, told)
        note_lacking("curves", told, cohort, run)
        _note(told, run)
        _note_horizon(found, run)
        return found

    return CurveTable(await found_once(KaplanMeierFinding, "curves", run, find))


def finding_of(target: str, settings: KaplanMeierSettings, told: Mapping[str, SurvivalTimes]) -> KaplanMeierFinding:
    """The finding.

    Args:
        target: Column of the times.
        settings: Of the method.
        told: By client; one at least.

    Raises:
        DataError: The clients have too many groups together.
    """
    sites = [counts_of(told[client]) for client in sorted(told)]
    names = sorted({name for site in sites for name in site})
    if len(names) > MOST_GROUPS:
        raise DataError(
            f"column {settings.by!r}, which method.by names, holds more than {MOST_GROUPS} values over all clients; "
            "name a column of groups, or bring it to a few levels"
        )
    groups = {name: Counts.joined([site[name] for site in sites if name in site]) for name in names}
    everyone = Counts.joined(list(groups.values()))
    last = min(float(counts.times[-1]) for counts in groups.values())
    horizon = max(last, 0.0) if settings.horizon is None else settings.horizon
    shown = [(ALL, everyone), *(groups.items() if settings.by else ())]
    compared = names if len(names) > 1 else []
    return KaplanMeierFinding(
        target=target,
        confidence=settings.confidence,
        horizon=horizon,
        curves=tuple(_curve(name, counts, settings.confidence, horizon) for name, counts in shown),
        by=settings.by,
        groups=tuple(names) if settings.by else (),
        log_rank=_tested([groups], compared),
        log_rank_by_site=_tested(sites, compared),
    )


def counts_of(reply: SurvivalTimes) -> dict[str, Counts]:
    """What a client tells, by group."""
    found = {}
    for place, name in enumerate(reply.groups):
        of = reply.group == place
        if of.any():
            found[name] = Counts(reply.times[of], reply.deaths[of], reply.censored[of])
    return found


def _curve(name: str, counts: Counts, confidence: float, horizon: float) -> Curve:
    steps = product_limit(counts)
    low, high = steps.band(confidence)
    mean, error = steps.restricted_mean(horizon)
    return Curve(
        group=name,
        rows=counts.rows,
        deaths=int(counts.deaths.sum()),
        restricted_mean=mean,
        restricted_error=error,
        times=tuple(counts.times.tolist()),
        at_risk=tuple(counts.at_risk.tolist()),
        died=tuple(counts.deaths.tolist()),
        censored=tuple(counts.censored.tolist()),
        survival=tuple(steps.survival.tolist()),
        error=tuple(steps.error().tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        median=median_time(counts.times, steps.survival),
        median_low=median_time(counts.times, low),
        median_high=median_time(counts.times, high),
    )


def _tested(strata: list[dict[str, Counts]], names: list[str]) -> LogRank | None:
    found = log_rank(strata, names) if names else None
    if found is None:
        return None
    observed, expected = tuple(found.observed.tolist()), tuple(found.expected.tolist())
    return LogRank(found.statistic, found.freedom, found.p_value, observed, expected)


def _note_horizon(found: KaplanMeierFinding, run: Run) -> None:
    """Say which curves have no value at the horizon."""
    short = [curve.group for curve in found.curves if curve.times[-1] < found.horizon and curve.survival[-1] > 0]
    if short:
        run.note(
            f"means up to {found.horizon:g} take curves as level behind their last time "
            f"({listed(short, more=', ...')}); set method.horizon to a time that all reach"
        )


def _note(told: Mapping[str, SurvivalTimes], run: Run) -> None:
    """Say whose rows are not in the curves as they are."""

    def those(found: Callable[[SurvivalTimes], bool]) -> str:
        return listed(sorted(client for client, reply in told.items() if found(reply)), more=", ...")

    if few := those(lambda reply: reply.few_joined):
        run.note(
            f"{few}: some groups, or outcomes of a group, have fewer rows there than policy.min_rows; such rows count "
            "with the largest group, or as of the other outcome"
        )
    note_early((client for client, reply in told.items() if (reply.times < 0).any()), run)


WORKFLOWS = {"kaplan-meier": Workflow(run, adapt=as_they_are)}
