"""`kernfed_server.web.live`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from kernfed.errors import BusyError
from kernfed.pki.identity import Role
from kernfed_server.web import live
from kernfed_server.web.sign_in import CERTIFICATE, visitor
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.page_world import PageWorld, page_world


async def stream(page: PageWorld, job_id: str) -> AsyncIterator[str]:
    """Events of a job's page, for ann."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    scope |= {"path_params": {"job_id": job_id}, CERTIFICATE: page.certificate(Role.OPERATOR, "ann")}
    request = Request(scope)
    answer: Any = await live.job(request, page.site, visitor(request, page.site))
    async for event in answer.body_iterator:
        yield event


async def test_a_page_follows_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part comes at first, again when a round closed, and no more once its operator was revoked."""
    monkeypatch.setattr(live, "PACE_S", 0.01)
    async with page_world(tmp_path, "a") as page, asyncio.timeout(LIMIT_S):
        job = await page.jobs.submit("mine", ["a"], rounds=2)
        events = stream(page, job.job_id)
        assert (await anext(events)).startswith("event: part\ndata: ")
        page.jobs.script.go("mine")
        while "AUC by round" not in (event := await anext(events)):
            assert event.startswith("event: part\n")
        page.revoked.update(c.serial for c in page.identities.pki.registry.certificates() if c.role is Role.OPERATOR)
        told = [event async for event in events]
        assert told[-1].startswith("event: over\n")
        assert "was revoked" in told[-1]
        assert page.site.num_live == 0


async def test_live_pages_end_with_the_coordinator_and_are_not_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that stops ends them; more than it serves are told so."""
    monkeypatch.setattr(live, "MAX_LIVE", 1)
    async with page_world(tmp_path, "a") as page, asyncio.timeout(LIMIT_S):
        job = await page.jobs.submit("mine", ["a"], rounds=2)
        events = stream(page, job.job_id)
        await anext(events)
        with pytest.raises(BusyError, match="1 live pages"):
            await anext(stream(page, job.job_id))
        page.site.close()
        assert [event async for event in events] == []
