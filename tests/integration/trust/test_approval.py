"""People at a site decide on jobs from a second terminal, and the coordinator waits for them by the quorum's rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import JobInfo
from kernfed_client.approval import listing
from kernfed_client.approval.book import State, Word
from kernfed_client.daemon.audit_chain import verify
from kernfed_client.daemon.audit_report import audit
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S

ROUNDS: dict[str, Any] = {"rounds": 6, "local_steps": 2}
WAITS = "waiting for approval at b until "


def policy(approve: str) -> dict[str, str]:
    return {"b": f'[policy]\napprove = "{approve}"'}


def config(fed: Federation) -> Path:
    return fed.client_folder("b") / "client.toml"


async def waits(fed: Federation, job: JobInfo, text: str = WAITS) -> None:
    """Wait until the coordinator says that the job waits for people at b."""
    async with asyncio.timeout(LIMIT_S):
        while not (await fed.operator.get(job.job_id)).waiting_for.startswith(text):
            await asyncio.sleep(0.02)


def answers(fed: Federation, job_id: str) -> int:
    return sum(part.replies for part in audit(config(fed)).jobs if part.job == job_id)


async def test_nothing_leaves_until_a_person_approves(tmp_path: Path) -> None:
    """A job waits over restarts of both sides, runs once it is approved, and leaves the model of its twin elsewhere."""
    async with Federation(tmp_path, ["a", "b"], settings=policy("manual")) as fed:
        job = await fed.submit(fed.job("fedavg", **ROUNDS))
        await waits(fed, job)
        behind = await fed.submit(fed.job("dkrr", "a"))
        await waits(fed, behind, f"waiting: a works for {job.job_id}; {job.job_id} itself is {WAITS}")
        await fed.operator.cancel(behind.job_id)
        [asks] = listing.jobs(config(fed))
        assert (asks.job, asks.state, asks.operator, asks.proven) == (job.job_id, State.ASKS, "ann", True)
        shown = listing.show(config(fed), "fedavg")
        assert shown.plan is not None
        assert "fedavg.local_update" in [step.step for step in shown.plan.steps if step.surely]
        await fed.coordinator.kill()
        await fed.clients["b"].kill()
        await fed.start_coordinator()
        await fed.clients["b"].start()
        await waits(fed, job)
        assert answers(fed, job.job_id) == 0
        await fed.clients["b"].kill()
        listing.decide(config(fed), job.job_id, Word.APPROVE, "as agreed")  # no daemon runs
        await fed.clients["b"].start()
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert not ended.of(EventKind.CLIENT_FAILED)
        log = fed.client_folder("b") / "state" / "audit.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kinds = [line.get("kind", "reply") for line in lines if line["job"] == job.job_id]
        [said] = [line for line in lines if line.get("kind") == "decided"]
        assert (said["decision"], said["why"], bool(said["user"])) == ("approve", "as agreed", True)
        assert "reply" not in kinds[: kinds.index("decided")]
        assert verify(log) == len(lines)
        digest = await fed.model_sha256(ended)
    async with Federation(tmp_path / "twin", ["a", "b"]) as twin:
        assert await twin.model_sha256(await twin.run(twin.job("fedavg", **ROUNDS))) == digest


async def test_a_refusal_leaves_the_client_out_by_the_rules_of_the_quorum(tmp_path: Path) -> None:
    """The operator reads the reason; a job that needs everybody ends, and one with a quorum goes on without."""
    async with Federation(tmp_path, ["a", "b"], settings=policy("manual")) as fed:
        strict = await fed.submit(fed.job("dkrr"))
        await waits(fed, strict)
        listing.decide(config(fed), strict.job_id, Word.REFUSE, "no ethics vote")
        ended = await fed.end(strict.job_id)
        assert ended.info.state is JobState.FAILED
        assert "b: REFUSED_BY_SITE: people at this site refused the job: no ethics vote" in ended.info.error_message
        quorum: dict[str, Any] = {"cohort_preflight": "quorum", "cohort_min_fraction": 0.5}
        lenient = await fed.submit(fed.job("dkrr", **quorum, cohort_grace_s=1e6))
        await waits(fed, lenient)
        listing.decide(config(fed), lenient.job_id, Word.REFUSE, "no ethics vote")
        ended = await fed.end(lenient.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert [e.reason for e in ended.of(EventKind.CLIENT_FAILED, "b")] == ["REFUSED_BY_SITE"]
        hasty = await fed.run(fed.job("dkrr", **quorum, cohort_grace_s=0.05))
        assert hasty.info.state is JobState.SUCCEEDED, hasty.info.error_message
        assert any("waits for approval there" in e.message for e in hasty.of(EventKind.CLIENT_MISSING, "b"))
        assert [answers(fed, job) for job in (strict.job_id, lenient.job_id, hasty.info.job_id)] == [0, 0, 0]


async def test_a_pause_in_the_midst_changes_no_bit(tmp_path: Path) -> None:
    """A job that is paused between two rounds, over a restart of the client, ends with the bits of one that was not."""
    long: dict[str, Any] = {"rounds": 40, "local_steps": 2, "cohort_min_fraction": 1.0}
    async with Federation(tmp_path, ["a", "b"], settings=policy("all")) as fed:
        job = await fed.submit(fed.job("fedavg", **long))
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=3)
        assert listing.decide(config(fed), job.job_id, Word.PAUSE, "").state is State.PAUSED
        await waits(fed, job)
        await fed.clients["b"].kill()
        await fed.clients["b"].start()
        await waits(fed, job)
        assert (await fed.operator.get(job.job_id)).state is JobState.RUNNING
        listing.decide(config(fed), job.job_id, Word.RESUME, "")
        ended = await fed.end(job.job_id)
        twin = await fed.run(fed.job("fedavg", **long))
        assert await fed.model_sha256(ended) == await fed.model_sha256(twin)
        assert [part.decision for j in audit(config(fed)).jobs for part in j.decisions] == ["pause", "resume"]


async def test_a_known_plan_runs_at_once(tmp_path: Path) -> None:
    """A job of a plan that was approved for good runs; another ridge, seed or a refusal of the plan asks again."""
    async with Federation(tmp_path, ["a", "b"], settings=policy("known")) as fed:
        first = await fed.submit(fed.job("dkrr"))
        await waits(fed, first)
        listing.decide(config(fed), first.job_id, Word.APPROVE, "", remember=True)
        assert (await fed.end(first.job_id)).info.state is JobState.SUCCEEDED
        again = await fed.run(fed.job("dkrr").replace('name = "dkrr"', 'name = "weekly"  # as before', 1))
        assert again.info.state is JobState.SUCCEEDED
        [line] = [d for j in audit(config(fed)).jobs for d in j.decisions if j.job == again.info.job_id]
        assert (line.decision, line.user) == ("approve", "known plan")
        for text in (fed.job("dkrr", ridge=0.5), fed.job("dkrr").replace("seed = 3", "seed = 4")):
            other = await fed.submit(text)
            await waits(fed, other)
            listing.decide(config(fed), other.job_id, Word.REFUSE, "not this one")
            assert (await fed.end(other.job_id)).info.state is JobState.FAILED
