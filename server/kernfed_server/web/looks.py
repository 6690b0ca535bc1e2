"""Pages that show, and change nothing: jobs, clients, one job, its timeline and its files."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kernfed.artifact_names import REPORT
from kernfed.cli.client_text import days_left_text, state_text
from kernfed.cli.job_text import duration_text, rounds_text
from kernfed.errors import ConfigError
from kernfed.federation.events import JobState
from kernfed.jobs.info import ClientInfo, JobInfo, JobPage, split_platform
from kernfed.wording import clean, listed
from kernfed_server.federation.standing import Standing
from kernfed_server.keeping.artifacts import read_pieces
from kernfed_server.web.door import Visitor
from kernfed_server.web.job_view import Line, line_of, view_job
from kernfed_server.web.rendering import page
from kernfed_server.web.site import Site

JOBS: Final = 50
"""On a page."""
CLIENTS: Final = 100
"""On a page."""
LINES: Final = 300
"""Events read for a page of a timeline."""
_NAMES: Final = 4
_FIND: Final = 64


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    job: JobInfo
    rounds: str
    took: str
    stands: str
    """Where its open step stands, or what it waits for, or why it failed."""


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A job in the list that a client sees."""

    job: JobInfo
    rounds: str
    needed: str
    """Whether it waits for this client."""


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client in the list."""

    client: ClientInfo
    state: str
    datasets: str
    device: str
    seen: str
    valid: str


async def jobs(request: Request, site: Site, who: Visitor) -> Response:
    """Jobs, newest first; a client sees those that it takes part in, or may."""
    facts = await jobs_facts(site, who, request.query_params.get("before", ""))
    return page("jobs.html.j2" if who.is_operator else "own_jobs.html.j2", site, who, **facts)


async def jobs_facts(site: Site, who: Visitor, before: str = "") -> dict[str, Any]:
    """What the list of jobs shows, from the page that begins behind `before`; empty: the newest."""
    found = await site.runs.list_jobs(JOBS, before)
    standings = site.sessions.standings(frozenset(j.job_id for j in found.jobs if j.state is JobState.RUNNING))
    facts = {"next_page": found.next_page_token, "before": before}
    if not who.is_operator:
        return facts | {"jobs": _own_rows(who.caller.name, found, standings)}
    now = datetime.now(UTC)
    rows = [
        JobRow(job, rounds_text(job), duration_text(job, now), _stands(job, standings.get(job.job_id)))
        for job in found.jobs
    ]
    return facts | {"jobs": rows}


def _stands(job: JobInfo, standing: Standing | None) -> str:
    if job.state.finished:
        return clean(job.error_reason and f"{job.error_reason}: {job.error_message}"[:300])
    if job.waiting_for or standing is None:
        return clean(job.waiting_for[:300])
    answered = len(standing.asked) - len(standing.pending)
    waits = listed([clean(c) for c in standing.pending], _NAMES, " and {left} more")
    until = f" until {standing.until}" if standing.until else ""
    return f"{clean(standing.step)}: {answered} of {len(standing.asked)} answered; waits for {waits}{until}"


def _own_rows(name: str, found: JobPage, standings: dict[str, Standing]) -> list[OwnRow]:
    rows = []
    for job in found.jobs:
        undecided = job.state is JobState.QUEUED and not job.clients
        if name in job.clients or undecided:
            rows.append(OwnRow(job, rounds_text(job), _needed(name, job, standings.get(job.job_id), undecided)))
    return rows


def _needed(name: str, job: JobInfo, standing: Standing | None, undecided: bool) -> str:
    if job.state.finished:
        return "over; nothing is asked of you"
    if undecided:
        return "may ask you when it starts"
    if standing is None or name not in standing.asked:
        return "asks nothing of you just now"
    if name not in standing.pending:
        return "has your answer to the open step"
    until = f" until {standing.until}" if standing.until else ""
    held = ", and you are away, or hold back" if name in standing.away else ""
    return f"waits for your answer{until}{held}"


async def clients(request: Request, site: Site, who: Visitor) -> Response:
    """The clients of the federation, by name."""
    return page("clients.html.j2", site, who, **await clients_facts(request, site))


async def clients_facts(request: Request, site: Site) -> dict[str, Any]:
    """What the list of clients shows, behind the name `after`, of those whose names hold `find`."""
    after, find = request.query_params.get("after", ""), request.query_params.get("find", "").strip()
    if len(after) > _FIND or len(find) > _FIND:
        raise ConfigError(f"a client's name has at most {_FIND} characters; look for a part of it")
    everybody = await site.runs.clients()
    rest = [c for c in everybody if c.name > after and find in c.name]
    now = datetime.now(UTC)
    shown = rest[:CLIENTS]
    behind = {"after": shown[-1].name, "find": find} if len(rest) > CLIENTS else {}
    return {
        "clients": [_client_row(c, now) for c in shown],
        "connected": sum(c.connected for c in everybody),
        "everybody": len(everybody),
        "find": find,
        "next_page": urllib.parse.urlencode(behind),
        "query": request.url.query,
    }


def _client_row(client: ClientInfo, now: datetime) -> ClientRow:
    seen = "now" if client.connected else _date(client.last_seen_at)
    device = clean(split_platform(client.device)[0])
    return ClientRow(
        client, state_text(client), clean(", ".join(client.datasets)), device, seen, days_left_text(client, now)
    )


def _date(when: datetime | None) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if when else ""


async def job(request: Request, site: Site, who: Visitor) -> Response:
    """One job."""
    view = await view_job(site, request.path_params["job_id"])
    return page("job.html.j2", site, who, view=view)


async def timeline(request: Request, site: Site, who: Visitor) -> Response:
    """A job's events in words, from one on; they stay after its end."""
    info = await site.runs.get(request.path_params["job_id"])
    text = request.query_params.get("from", "1")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError("from: not the number of an event; begin with 1")
    events = await site.store.events(info.job_id, int(text), LINES)
    lines: Sequence[Line] = [line for e in events if (line := line_of(e, info.num_rounds, len(info.clients)))]
    more = events[-1].sequence + 1 if len(events) == LINES else 0
    return page("timeline.html.j2", site, who, job=info, lines=lines, more=more)


async def file(request: Request, site: Site, who: Visitor) -> Response:
    """A file that a job left, to keep; its report opens, and may neither run scripts nor reach anything."""
    del who
    artifact, path = await site.runs.find_artifact(request.path_params["job_id"], request.path_params["name"])
    headers = {"content-length": str(artifact.size)}
    if artifact.name == REPORT:
        headers["content-security-policy"] = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
        return StreamingResponse(read_pieces(path), media_type="text/html; charset=utf-8", headers=headers)
    quoted = urllib.parse.quote(artifact.name, safe="")
    headers["content-disposition"] = f"attachment; filename*=UTF-8''{quoted}"
    return StreamingResponse(read_pieces(path), media_type="application/octet-stream", headers=headers)
