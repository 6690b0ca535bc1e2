"""What the page of one job shows, from the job's record: read as far as is shown, never whole."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from kernfed.artifact_names import FINDINGS
from kernfed.cli.job_text import client_table, event_text, job_facts, last_metrics, rows_behind
from kernfed.errors import UnknownArtifactError
from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.jobs.info import ArtifactInfo, JobInfo, NumberedEvent
from kernfed.metric_names import METRICS, ROW_SHARE, telling_first
from kernfed.report.charts import Series, suits_log
from kernfed.report.parts import Overview
from kernfed.report.sections import at_a_glance
from kernfed.wording import clean, listed
from kernfed_server.federation.standing import Standing
from kernfed_server.web.curves import SMALL, curves, legend
from kernfed_server.web.site import Site

POINTS: Final = 160
"""Rounds in a curve, at most."""
_SCORES: Final = 20_000
"""Rounds times clients that are read for a page, about."""
_SMALL: Final = 24
"""Clients with a curve of their own; the table has more."""
ROWS: Final = 200
"""Clients in the table."""
_TOLD: Final = 50
_FAULTS: Final = (EventKind.NOTE, EventKind.CLIENT_FAILED, EventKind.CLIENT_MISSING)
LISTED: Final = 30
"""Names in a line."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with a title."""

    title: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Line:
    """An event in words."""

    time: datetime
    text: str
    fault: bool


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, as its page shows it."""

    job: JobInfo
    facts: Sequence[tuple[str, str]]
    standing: Sequence[tuple[str, str]]
    pictures: Sequence[Picture]
    per_client: Sequence[Picture]
    legend: Markup
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    rows_left_out: int
    overviews: Sequence[Overview]
    told: Sequence[Line]
    files: Sequence[ArtifactInfo]


async def view_job(site: Site, job_id: str) -> JobView:
    """Read a job's record and arrange it.

    Raises:
        UnknownJobError: There is no such job.
    """
    job = await site.runs.get(job_id)
    store, num = site.store, job.job_id
    every = _stride(job)
    rounds = await store.last_events(num, POINTS, [EventKind.ROUND_CLOSED], every)
    newest = await store.last_events(num, 1, [EventKind.ROUND_CLOSED])
    rounds += [e for e in newest if not rounds or e.sequence > rounds[-1].sequence]
    told = await store.last_events(num, _TOLD, _FAULTS)
    states = await store.last_events(num, 1, [EventKind.STATE])
    finished = job.state.finished
    files = await site.runs.artifacts(num) if finished else []
    findings = await _findings(site, num) if finished else {}
    standing = site.sessions.standings(frozenset({num})).get(num)
    return await asyncio.to_thread(_arrange, job, rounds, every, [*told, *states], standing, files, findings)


def _arrange(
    job: JobInfo,
    rounds: Sequence[NumberedEvent],
    every: int,
    told: Sequence[NumberedEvent],
    standing: Standing | None,
    files: Sequence[ArtifactInfo],
    findings: Mapping[str, Any],
) -> JobView:
    behind = rows_behind(rounds) if every == 1 else {}
    columns, rows = client_table(last_metrics(rounds))
    return JobView(
        job,
        job_facts(job, told, behind, datetime.now(UTC)),
        standing_facts(standing),
        *_pictures(rounds),
        columns,
        rows if len(rows) <= ROWS else [*rows[: ROWS - 1], rows[-1]],
        max(len(rows) - ROWS, 0),
        at_a_glance(findings),
        [line for e in reversed(told) if e.event.kind in _FAULTS if (line := line_of(e))],
        files,
    )


def standing_facts(standing: Standing | None) -> list[tuple[str, str]]:
    """Who answered the open step, whom it waits for, and until when; empty where none is open."""
    if standing is None:
        return []
    answered = [c for c in standing.asked if c not in set(standing.pending)]
    away = [c for c in standing.pending if c in standing.away]
    at_work = [c for c in standing.pending if c not in standing.away]
    end = "it closes on the answers that are there" if standing.closes else "it fails if too few have answered"
    facts = [
        (
            "step",
            clean(standing.step) + (f", round {standing.round_num}" if standing.round_num else ", before round 1"),
        ),
        ("answered", f"{len(answered)} of {len(standing.asked)}" + _names(answered)),
        ("at work", f"{len(at_work)}" + _names(at_work) if at_work else ""),
        ("missing", f"{len(away)}" + _names(away) if away else ""),
        ("until", f"{standing.until}: {end}" if standing.until else "no time limit"),
    ]
    return [(name, value) for name, value in facts if value]


def _names(names: Sequence[str]) -> str:
    return f": {listed([clean(n) for n in names], LISTED, ' and {left} more')}" if names else ""


def line_of(numbered: NumberedEvent, num_rounds: int = 0, num_clients: int = 0) -> Line | None:
    """An event as a line of the page; None where it is not worth one."""
    text = event_text(numbered.event, num_rounds, num_clients)
    fault = numbered.event.kind in (EventKind.CLIENT_FAILED, EventKind.CLIENT_MISSING)
    return None if text is None else Line(numbered.time, text, fault)


def _stride(job: JobInfo) -> int:
    """Of the rounds, each how many-th is read: all of a short job, and of a long one those that were measured."""
    settings = job.settings
    measured = settings.get("method", {}).get("metrics_every") or settings.get("evaluate_every") or 1
    points = max(min(POINTS, _SCORES // max(len(job.clients), 1)), 10)
    return 1 if job.round_num <= points else measured * math.ceil(job.round_num / measured / points)


def _pictures(rounds: Sequence[NumberedEvent]) -> tuple[list[Picture], list[Picture], Markup]:
    """Pictures of all clients together, those of each, and the legend of both."""
    measured = [(e.event.round_num, e.event.metrics) for e in rounds if e.event.metrics is not None]
    names = {name for _, m in measured for scores in m.pooled.values() for name in scores}
    pictures: list[Picture] = []
    per_client: list[Picture] = []
    models: dict[str, None] = {}
    if names:
        metric = telling_first(names)[0]
        label = METRICS.get(metric, metric)
        if lines := _series([(r, m.pooled) for r, m in measured], metric):
            models = dict.fromkeys(line.name for line in lines)
            title = f"{label} by round, over all clients"
            pictures.append(Picture(title, curves(title, lines)))
        for client in sorted({c for _, m in measured for c in m.clients})[:_SMALL]:
            if lines := _series([(r, m.clients.get(client, {})) for r, m in measured], metric):
                models |= dict.fromkeys(line.name for line in lines)
                title = f"{label} at {clean(client)}"
                per_client.append(Picture(title, curves(title, lines, SMALL)))
    pictures += _training([(r, m) for r, m in measured])
    return pictures, per_client, legend(models) if models else Markup("")


def _training(measured: Sequence[tuple[int, RoundMetrics]]) -> list[Picture]:
    """The first numbers of the solver, each in a picture."""
    found = []
    for name in sorted({n for _, m in measured for n in m.training} - {ROW_SHARE})[:2]:
        points = [(float(r), m.training[name]) for r, m in measured if math.isfinite(m.training.get(name, math.nan))]
        if len(points) > 1:
            line = Series("training", *map(tuple, zip(*points, strict=True)))
            log = suits_log(line.values)
            title = f"training: {clean(name.replace('_', ' '))}{', logarithmic' if log else ''}"
            found.append(Picture(title, curves(title, [line], log=log)))
    return found


def _series(scores: Sequence[tuple[int, Mapping[str, Mapping[str, float]]]], metric: str) -> list[Series]:
    """A line for each model that was measured by the metric."""
    points: dict[str, list[tuple[float, float]]] = {}
    for round_num, models in scores:
        for model, values in models.items():
            if math.isfinite(value := values.get(metric, math.nan)):
                points.setdefault(clean(model), []).append((float(round_num), value))
    return [Series(m, tuple(r for r, _ in found), tuple(v for _, v in found)) for m, found in sorted(points.items())]


async def _findings(site: Site, job_id: str) -> Mapping[str, Any]:
    try:
        _, path = await site.runs.find_artifact(job_id, FINDINGS)
        found = json.loads(await asyncio.to_thread(path.read_text, encoding="utf-8"))
    except (UnknownArtifactError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
