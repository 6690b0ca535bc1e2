"""A client believes the operator's signature, and not the coordinator, about whose job it is and what it runs."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kernfed.errors import RevokedError
from kernfed.federation.events import EventKind, JobState
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import DescribeDataRequest
from kernfed.jobs.job_file import data_schema, parse_job
from kernfed.pki.authority import Authority, utc_now
from kernfed.pki.identity import Identity, Role, channel_credentials
from kernfed.pki.revocation_list import MAX_LIST_BYTES, VALIDITY, sign_list
from kernfed.pki.submission import sha256_of, sign_job, signed_job_id
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import operator_service_pb2, operator_service_pb2_grpc, task_pb2
from kernfed.wire.operator_client import OperatorClient
from kernfed_client.daemon.audit_chain import verify
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation, make_csv
from kernfed_testing.hostile.scripted_coordinator import Line, scripted_coordinator
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import Process

JOB = """name = "demo"
[method]
name = "{method}"
[data]
task = "regression"
target = "y"
features = ["age", "dose", "pressure"]
"""
NUMBERS = itertools.count(1)


async def ask(
    line: Line,
    request: Request[Any],
    told: task_pb2.JobSubmission | None = None,
    job_id: str = "demo-aaaaaa",
    operator: str = "ann",
    method: str = "dkrr",
) -> str:
    """Ask a client, as a coordinator with a true certificate that tells it whatever a test puts down.

    Returns:
        `reply`, or the reason and text of its refusal.
    """
    await line.ask(job_id, f"{job_id}/{next(NUMBERS)}/{request.step}", request, method, operator, told)
    answer = await line.answer()
    return "reply" if answer.HasField("reply") else f"{answer.failure.reason}: {answer.failure.message}"


def client(ids: Identities, folder: Path, port: int, policy: Sequence[str]) -> Process:
    folder.mkdir()
    ids.make(Role.CLIENT, "a", into=folder / "identity")
    (folder / "train.csv").write_text(make_csv("a"))
    file = [f'coordinator = "localhost:{port}"', 'device = "cpu"', "[datasets.default.train]", 'path = "train.csv"']
    (folder / "client.toml").write_text("\n".join([*file, "[policy]", *policy, ""]))
    return Process("kernfed_client", "run", cwd=folder)


@pytest.mark.redteam
async def test_a_hostile_coordinator_is_not_believed(tmp_path: Path) -> None:
    """Alice may run dkrr; a coordinator that says so of what she did not sign gets no answer, and an audit line."""
    ids = make_identities(tmp_path)
    alice, ann = Identity.load(ids.make(Role.OPERATOR, "alice")), Identity.load(ids.operator)
    text = JOB.format(method="dkrr")

    def submission(of: Identity, signed: str = text, shown: str = text) -> task_pb2.JobSubmission:
        made = sign_job(signed, of, utc_now())
        return task_pb2.JobSubmission(job_id=signed_job_id("demo", sha256_of(made)), job_toml=shown, submission=made)

    request = DescribeDataRequest(dataset="default", schema=data_schema(parse_job(text)))
    other_target = replace(request, schema=replace(request.schema, target="dose", features=("age",)))
    good, by_ann = submission(alice), submission(ann)
    fedavg = submission(alice, JOB.format(method="fedavg"), JOB.format(method="fedavg"))
    changed = submission(alice, JOB.format(method="fedavg"))
    replayed = task_pb2.JobSubmission(job_id="demo-bbbbbbbb", job_toml=good.job_toml, submission=good.submission)
    policy = ('operators = ["alice"]', 'methods = ["dkrr"]')
    async with scripted_coordinator(ids) as coordinator:
        daemon = client(ids, tmp_path / "a", coordinator.port, policy)
        await daemon.start()
        try:
            line = await coordinator.line()
            said = [
                await ask(line, request, operator="alice"),
                await ask(line, request, by_ann, by_ann.job_id, "alice"),
                await ask(line, request, by_ann, by_ann.job_id, "ann"),
                await ask(line, request, fedavg, fedavg.job_id, "alice", "dkrr"),
                await ask(line, request, fedavg, fedavg.job_id, "alice", "fedavg"),
                await ask(line, request, changed, changed.job_id, "alice"),
                await ask(line, request, replayed, replayed.job_id, "alice"),
                await ask(line, other_target, good, good.job_id, "alice"),
            ]
            assert await ask(line, request, good, good.job_id, "alice") == "reply"
        finally:
            await daemon.stop()
    told = [
        "UNPROVEN_JOB: the job is not signed by its operator",
        "UNPROVEN_JOB: the coordinator says that the job is of operator 'alice', and ann signed it",
        "REFUSED_BY_POLICY: this client runs no jobs of operator 'ann'",
        "UNPROVEN_JOB: the coordinator says that the job runs method 'dkrr', and its operator signed 'fedavg'",
        "REFUSED_BY_POLICY: this client does not run method 'fedavg'",
        "UNPROVEN_JOB: the job file is not the one that operator/alice signed",
        "UNPROVEN_JOB: what operator alice signed is not job 'demo-bbbbbbbb'",
        "UNPROVEN_JOB: data.describe asks for target dose, and the job file says y",
    ]
    assert [text.startswith(begin) for text, begin in zip(said, told, strict=True)] == [True] * len(told), said
    log = tmp_path / "a" / "state" / "audit.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert verify(log) == len(told) + 1
    assert [line["reason"] for line in lines if line.get("kind") == "refused"] == [t.partition(":")[0] for t in told]
    assert (lines[-1]["operator"], lines[-1]["submission"]) == ("alice", sha256_of(good.submission).hex())


async def test_an_unsigned_job_goes_on_once_it_is_signed(tmp_path: Path) -> None:
    """A job without a signature waits over a restart, says the command that signs it, and ends as a signed one does."""
    settings = {"b": '[policy]\noperators = ["ann"]'}
    async with Federation(tmp_path, ["a", "b"], processes=True, settings=settings) as fed:
        text = f"report = false\n{fed.job('dkrr', cohort_min_fraction=1.0)}"
        own = ("--identity", str(fed.identities.operator))

        async def sign(job_id: str, *more: str) -> tuple[int, str]:
            at = f"localhost:{fed.ports.federation}"
            done = await run_command("kernfed", "job", "sign", job_id, *more, *own, "--coordinator", at, cwd=tmp_path)
            return done.returncode, done.stdout + done.stderr

        async with grpc.aio.secure_channel(
            f"localhost:{fed.ports.federation}", channel_credentials(Identity.load(fed.identities.operator))
        ) as channel:
            stub: Any = operator_service_pb2_grpc.OperatorServiceStub(channel)
            response = await stub.SubmitJob(operator_service_pb2.SubmitJobRequest(job_toml=text))
        job_id = response.job.job_id
        waits = f"waiting for the signature of ann, which b asks for: kernfed job sign {job_id}"
        await fed.event(job_id, EventKind.WAITING, message=waits)
        await fed.coordinator.kill()
        await fed.start_coordinator()
        async with asyncio.timeout(LIMIT_S):
            while (await fed.operator.get(job_id)).waiting_for != waits:
                await fed.coordinator.saw("client connected", client="b")
        status, said = await sign(job_id, "--yes")
        assert (status, f"{job_id}: signed by operator/ann" in said) == (0, True), said
        ended = await fed.end(job_id)
        twin = await fed.run(text)
        assert await fed.model_sha256(ended) == await fed.model_sha256(twin)
        assert not ended.of(EventKind.CLIENT_FAILED)
        assert "signed by ann" in [event.message for event in ended.of(EventKind.NOTE)]
        status, said = await sign(job_id)  # nobody is asked to read what was signed before
        assert (status, "is over; submit it again" in said) == (5, True), said


@pytest.mark.redteam
async def test_a_coordinator_that_withholds_who_was_revoked(tmp_path: Path) -> None:
    """Lists that do not hold, of a day to come or of last week buy no answer; a fresh one does, until it names ann."""
    ids, now = make_identities(tmp_path), utc_now()
    ann, ca = Identity.load(ids.operator), ids.pki.authority
    text = JOB.format(method="dkrr")
    made = sign_job(text, ann, now)
    told = task_pb2.JobSubmission(job_id=signed_job_id("demo", sha256_of(made)), job_toml=text, submission=made)
    request = DescribeDataRequest(dataset="default", schema=data_schema(parse_job(text)))
    no_answer = (
        b"",
        b"\x30\x80" * 10_000,
        bytes(MAX_LIST_BYTES + 1),
        sign_list(Authority.create("hearts", now), {}, 9, now),
        sign_list(ca, {}, 9, now)[:-1],
        sign_list(ca, {}, 9, now + timedelta(days=365)),
        sign_list(ca, {}, 9, now - VALIDITY),
    )
    async with scripted_coordinator(ids) as coordinator:
        daemon = client(ids, tmp_path / "a", coordinator.port, ('stale_revocations = "refuse"',))
        await daemon.start()
        try:
            line = await coordinator.line()

            async def after(der: bytes) -> str:
                await line.send(pb.ConnectResponse(revoked_operators=pb.RevocationList(der=der)))
                return await ask(line, request, told, told.job_id)

            for der in no_answer:
                assert re.match("UNPROVEN_JOB: .*list of revoked operators", await after(der))
            assert await after(sign_list(ca, {}, 9, now)) == "reply"
            revoked = await after(sign_list(ca, {ann.serial: now}, 10, now))
            assert "by which operator ann signed the job was revoked on" in revoked
            assert await after(sign_list(ca, {}, 11, utc_now())) == revoked
        finally:
            await daemon.stop()
    log = tmp_path / "a" / "state" / "audit.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    refused, [answered] = [x for x in lines if "reason" in x], [x for x in lines if "reason" not in x]
    assert {line["reason"] for line in refused} == {"UNPROVEN_JOB"}
    assert sum(line.get("times", 1) for line in refused) == len(no_answer) + 2
    assert answered["revocations"] == now.replace(microsecond=0).isoformat()


@pytest.mark.redteam
async def test_a_job_of_a_revoked_operator_is_refused_at_the_clients(tmp_path: Path) -> None:
    """It ends in the middle, and says why; another operator's jobs go on. The revoked one sees no more of it."""
    async with Federation(tmp_path, ["a", "b"]) as fed:
        bob = Identity.load(fed.identities.make(Role.OPERATOR, "bob"))
        job = await fed.submit(f"report = false\n{fed.job('fedavg', rounds=5000)}")
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=1)
        watching = asyncio.ensure_future(fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=5000))
        await asyncio.to_thread(fed.identities.pki.revoke, "operator/ann", why="left")
        with pytest.raises(
            RevokedError, match=r"ann was revoked: make a new request with `kernfed-client csr --operator`"
        ):
            await watching
        async with OperatorClient(bob, f"localhost:{fed.ports.federation}", timeout_s=LIMIT_S) as operator:
            async with asyncio.timeout(LIMIT_S):
                updates = [update async for update in operator.watch(job.job_id)]
            last = updates[-1].job
            assert last is not None
            assert last.state is JobState.FAILED
            assert "by which operator ann signed the job was revoked" in last.error_message
            assert last.round_num < 5000
            again = await operator.submit(f"report = false\n{fed.job('fedavg', rounds=1)}")
            async with asyncio.timeout(LIMIT_S):
                updates = [update async for update in operator.watch(again.job_id)]
            last = updates[-1].job
            assert last is not None
            assert last.state is JobState.SUCCEEDED
