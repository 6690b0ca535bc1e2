"""Pages that change while somebody looks: the part that changes comes again as a server-sent event, where it is new."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kernfed.errors import AuthError, BusyError, KernfedError
from kernfed_server.web import looks
from kernfed_server.web.door import Visitor
from kernfed_server.web.job_view import view_job
from kernfed_server.web.rendering import render
from kernfed_server.web.sign_in import visitor
from kernfed_server.web.site import Site

log = structlog.get_logger(__name__)

MAX_LIVE: Final = 100
"""Live pages at a time; others stay as they are until they are loaded again."""
LIFE_S: Final = 1800.0
"""A stream ends, and the browser asks again."""
PACE_S: Final = 1.0
_SHARE: Final = 20
"""A page that takes long to make comes at most every so many times as long."""
_SILENCE_S: Final = 15.0

Part = Callable[[], Awaitable[tuple[Any, Callable[[], Awaitable[str]]]]]
"""Looks at what is now: something that differs when the page does, and what makes the page's part."""


async def jobs(request: Request, site: Site, who: Visitor) -> Response:
    """The list of jobs, as it changes."""
    template = "jobs_part.html.j2" if who.is_operator else "own_jobs_part.html.j2"

    async def part() -> tuple[Any, Callable[[], Awaitable[str]]]:
        text = render(template, site, who, **await looks.jobs_facts(site, who))
        return text, lambda: _ready(text)

    return _stream(request, site, part)


async def clients(request: Request, site: Site, who: Visitor) -> Response:
    """A page of the list of clients, as it changes."""

    async def part() -> tuple[Any, Callable[[], Awaitable[str]]]:
        text = render("clients_part.html.j2", site, who, **await looks.clients_facts(request, site))
        return text, lambda: _ready(text)

    return _stream(request, site, part)


async def job(request: Request, site: Site, who: Visitor) -> Response:
    """One job, as it goes on."""
    job_id = (await site.runs.get(request.path_params["job_id"])).job_id

    async def make() -> str:
        return render("job_part.html.j2", site, who, view=await view_job(site, job_id))

    async def part() -> tuple[Any, Callable[[], Awaitable[str]]]:
        active = site.runs.queue.active.get(job_id)
        told = 0 if active is None else active.history.last_sequence
        standing = site.sessions.standings(frozenset({job_id})).get(job_id)
        return (await site.runs.get(job_id), told, standing), make

    return _stream(request, site, part)


async def _ready(text: str) -> str:
    return text


def _stream(request: Request, site: Site, part: Part) -> Response:
    if site.num_live >= MAX_LIVE:
        raise BusyError(f"{MAX_LIVE} live pages are open; load this page again to see what is new")
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_events(request, site, part), media_type="text/event-stream", headers=headers)


async def _events(request: Request, site: Site, part: Part) -> AsyncIterator[str]:
    """A part of a page whenever it changed; ends when its visitor may not see it any more, or the coordinator stops."""
    site.num_live += 1
    try:
        end = time.monotonic() + LIFE_S
        before: Any = None
        told_at = time.monotonic()
        while time.monotonic() < end and not site.closing.is_set():
            visitor(request, site)
            began = time.monotonic()
            now, make = await part()
            if now != before:
                before = now
                yield _event("part", await make())
                told_at = time.monotonic()
            elif began - told_at > _SILENCE_S:
                yield ": nothing new\n\n"
                told_at = began
            pause_s = max(PACE_S, _SHARE * (time.monotonic() - began))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await site.closing.wait()
    except AuthError as err:
        yield _event("over", str(err))
    except KernfedError as err:
        log.warning("live page ends", path=request.url.path, error=str(err))
    finally:
        site.num_live -= 1


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n"
