"""`kernfed_server.web.job_view`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobInfo
from kernfed.pki.identity import Role
from kernfed_server.federation.standing import Standing
from kernfed_server.web import job_view
from kernfed_server.web.job_view import POINTS, standing_facts, view_job
from kernfed_testing.worlds.job_world import SEEN
from kernfed_testing.worlds.page_world import page_world

HOSTILE = "<script>alert('x')</script>"


async def test_a_job_under_way_and_over(tmp_path: Path) -> None:
    """Its page has curves of all and of each client, faults of hostile clients as text, and at the end its files."""
    async with page_world(tmp_path, "a", "b") as page:
        job = await page.jobs.submit("mine", ["a", "b"], rounds=3)
        browser = page.browser(Role.OPERATOR)
        page.jobs.script.go("mine", 2)
        await page.jobs.until(job.job_id, lambda u: bool(u.event and u.event.event.round_num == 2))
        active = page.jobs.runs.queue.active[job.job_id]
        active.history.note(JobEvent(EventKind.CLIENT_FAILED, 2, HOSTILE, "b", HOSTILE, "STEP_FAILED"))
        page.steps.of[job.job_id] = Standing(
            "probe.echo", 3, ("a", "b"), ("b",), frozenset({"b"}), "12:00:00 UTC", True
        )
        text = (await browser.get(f"/jobs/{job.job_id}")).text
        assert text.count('<svg class="curves"') == 4  # all clients, two clients, the seconds of training
        assert "AUC at b" in text
        assert "1 of 2: a" in text
        assert "12:00:00 UTC: it closes" in text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert "waits for b until 12:00:00 UTC" in (await browser.get("/")).text
        page.steps.of.clear()
        page.jobs.script.go("mine")
        assert (await page.jobs.finished(job.job_id)).state is JobState.SUCCEEDED
        text = (await browser.get(f"/jobs/{job.job_id}")).text
        assert f"/jobs/{job.job_id}/files/metrics.csv" in text
        assert "data-live" not in text
        file = await browser.get(f"/jobs/{job.job_id}/files/job.json")
        assert file.headers["content-disposition"].startswith("attachment")
        assert file.json()["job_id"] == job.job_id
        line = (await browser.get(f"/jobs/{job.job_id}/timeline")).text
        assert "<script>alert" not in line
        assert "round 3/3" in line
        assert (await browser.get(f"/jobs/{job.job_id}/timeline?from=-1")).status_code == 400


async def test_a_long_job_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rounds some are read, those that were measured, and the last."""
    monkeypatch.setattr(job_view, "POINTS", 12)
    async with page_world(tmp_path, "a") as page:
        page.jobs.script.free = True
        job = await page.jobs.submit("mine", ["a"], rounds=40)
        await page.jobs.finished(job.job_id)
        view = await view_job(page.site, job.job_id)
        drawn = view.pictures[0].svg.count("<circle")
        assert 8 <= drawn <= 13


@pytest.mark.parametrize("measured", [1, 7, 25])
@pytest.mark.parametrize("num_clients", [3, 1000])
def test_a_stride_meets_what_was_measured(measured: int, num_clients: int) -> None:
    """Rounds that are read are measured ones, and no more than a page draws."""
    names = tuple(f"c{i}" for i in range(num_clients))
    job = JobInfo("j", "j", "fedavg", JobState.RUNNING, "ann", SEEN, round_num=100_000, clients=names)
    stride = job_view._stride(_with(job, measured))
    assert stride % measured == 0
    assert 10 <= 100_000 // stride <= POINTS


def _with(job: JobInfo, measured: int) -> JobInfo:
    from dataclasses import replace

    return replace(job, settings={"evaluate_every": measured})


def test_who_is_waited_for() -> None:
    """Names are told up to a number, and a step that fails at its end says so."""
    names = tuple(f"c{i:04}" for i in range(1000))
    facts = dict(standing_facts(Standing("s", 0, names, names[1:], frozenset(names[500:]), "", False)))
    assert facts["answered"] == "1 of 1000: c0000"
    assert facts["at work"].startswith("499: c0001, ")
    assert facts["missing"].endswith("and 470 more")
    assert facts["until"] == "no time limit"
    assert standing_facts(None) == []
