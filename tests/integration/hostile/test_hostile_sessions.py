"""A client with a valid certificate that floods, stalls or never says hello hurts its own session only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from kernfed.errors import CertificateError, VersionMismatchError, WireError
from kernfed.federation.events import EventKind, JobState
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, Role
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.operator_client import OperatorClient
from kernfed_testing.federation import Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import TRIO, Logs, mallory
from kernfed_testing.hostile.scripted_client import ScriptedClient, hello
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
fed, no_trace = hostile.fed, hostile.no_trace


async def test_more_under_way_than_allowed(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who announces more bytes than may be under way ends its session, before any of them is read."""
    limits = replace(fed.sessions.limits, max_inflight_bytes=10_000_000)
    monkeypatch.setattr(fed.sessions, "limits", limits)

    async def announce(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        await client.announce(task.task_id, replace(reply, values=np.ones(1_500_000)), 5)
        return False

    folder = fed.client_folder("mallory")
    async with ScriptedClient(folder, fed.ports.federation, misbehave=announce) as client:
        ended = await fed.run(
            fed.job("probe", TRIO, payload_bytes=6_000_000, rounds=1, cohort_min_clients=2, cohort_deadline_s=0.5)
        )
        error = await asyncio.wait_for(client.over, LIMIT_S)
    await fed.wait_disconnected("mallory")
    assert isinstance(error, WireError)
    assert "max_inflight_bytes" in str(error)
    assert ended.info.state is JobState.SUCCEEDED
    assert not list((fed.root / "data" / "spool").iterdir())


async def test_flood_of_frames(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames above the allowed rate wait at their sender; others' rounds go on meanwhile."""
    monkeypatch.setattr(fed.sessions, "limits", replace(fed.sessions.limits, max_frames_per_s=100.0))
    async with mallory(fed) as client:
        await fed.wait_connected("mallory")
        failure = pb.ConnectRequest(failure=task_pb2.TaskFailure(task_id="x", reason="R"))
        for _ in range(400):
            await client.send(failure)
        begun = asyncio.get_running_loop().time()
        ended = await fed.run(fed.job("probe", ["a", "b"], payload_bytes=800, rounds=20, cohort_min_clients=2))
        await until(lambda: len(client.acks) == 400)
        took = asyncio.get_running_loop().time() - begun
        assert not client.over.done()
    assert ended.info.state is JobState.SUCCEEDED
    assert took > 1.5


async def test_wrong_version_is_refused(fed: Federation) -> None:
    """Another protocol version is told to install a matching release."""
    async with mallory(fed, first=hello(protocol_version=99)) as client:
        error = await asyncio.wait_for(client.over, LIMIT_S)
    assert isinstance(error, VersionMismatchError)
    assert "install matching releases" in str(error)


async def test_a_client_of_a_release_before(fed: Federation) -> None:
    """A client that states no fields is not asked for what its release would pass over; the job goes on without it."""
    async with mallory(fed, first=hello(later_fields=[], software_version="0.0.9")):
        text = fed.job(
            "personalise", TRIO, weights="paper", c_q="theorem", cohort_min_clients=2, cohort_preflight="quorum"
        )
        ended = await fed.run(text)
    failed = {e.client: (e.reason, e.step, e.message) for e in ended.of(EventKind.CLIENT_FAILED)}
    assert list(failed) == ["mallory"]
    assert failed["mallory"][:2] == ("VERSION_MISMATCH", "personalise.solve_weights")
    assert "(0.0.9) does not know what the job asks for (personalise.solve_weights: theorem_q)" in failed["mallory"][2]
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message


async def test_no_hello(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not say hello is not waited for."""
    async with mallory(fed, first=pb.ConnectRequest(heartbeat=pb.Heartbeat())) as client:
        assert isinstance(await asyncio.wait_for(client.over, LIMIT_S), WireError)

    monkeypatch.setattr("kernfed_server.services.federation.HELLO_TIMEOUT_S", 0.3)
    async with mallory(fed, says_hello=False) as client:
        error = await asyncio.wait_for(client.over, LIMIT_S)
    assert isinstance(error, WireError)
    assert "no hello" in str(error)


async def test_client_that_asks_and_never_reads(
    fed: Federation, monkeypatch: pytest.MonkeyPatch, no_trace: Logs
) -> None:
    """Acknowledgements for a client that does not read are bounded, for its session ends."""
    monkeypatch.setattr("kernfed_server.services.federation.MAX_BACKLOG", 2000)
    async with mallory(fed, reads=False) as client:
        await fed.wait_connected("mallory")
        session = fed.sessions.get("mallory")
        assert session is not None
        failure = pb.ConnectRequest(failure=task_pb2.TaskFailure(task_id="x" * 4000, reason="R"))

        async def flood() -> None:
            while True:
                await client.send(failure)

        flooding = asyncio.ensure_future(flood())  # what is sent as the session ends may never be taken
        try:
            async with asyncio.timeout(LIMIT_S):
                await fed.wait_disconnected("mallory")
        finally:
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
    [ended] = [e["error"] for e in no_trace if e["event"] == "session ended: protocol violated"]
    assert ended == "the client asks for more answers than it reads"
    assert session.outgoing.backlog < 2000 + 2 * failure.ByteSize()


async def test_a_session_ends_with_its_certificate(fed: Federation) -> None:
    """A client that stays on the line behind its certificate's end is cut off, and an operator's watch ends."""
    folder = fed.client_folder("late")
    fed.identities.make(Role.CLIENT, "late", lifetime=timedelta(seconds=4), into=folder / "identity")
    (folder / "client.toml").write_text((fed.client_folder("eve") / "client.toml").read_text())
    (folder / "train.csv").write_text(fed.data["eve"])
    brief = Identity.load(fed.identities.make(Role.OPERATOR, "brief", lifetime=timedelta(seconds=4)))
    async with (
        ScriptedClient(folder, fed.ports.federation) as client,
        OperatorClient(brief, f"localhost:{fed.ports.federation}") as operator,
    ):
        await fed.wait_connected("late")
        assert "late" in {c.name for c in await operator.clients()}
        error = await asyncio.wait_for(client.over, LIMIT_S)
        assert isinstance(error, CertificateError)
        assert "client/late expired on" in str(error)
        await asyncio.sleep(max((brief.not_after - utc_now()).total_seconds(), 0.0))  # it was made behind the other one
        with pytest.raises(CertificateError, match="operator/brief expired on"):
            await operator.clients()
    await fed.wait_disconnected("late")
    assert fed.sessions.present() >= {"a", "b"}


async def test_revoked_client_that_does_not_read(fed: Federation, no_trace: Logs) -> None:
    """A revoked client is cut off though the coordinator is stuck in writing to it, and though it sends heartbeats."""
    async with ScriptedClient(fed.client_folder("eve"), fed.ports.federation, reads=False):
        await fed.wait_connected("eve")
        text = fed.job("probe", ["a", "b", "eve"], rounds=1, payload_bytes=8_000_000, cohort_min_clients=2)
        submitted = await fed.submit(text)
        await fed.event(submitted.job_id, EventKind.CLIENT_ANSWERED, client="b")
        await asyncio.to_thread(fed.identities.pki.revoke, "client/eve")
        async with asyncio.timeout(LIMIT_S):
            await fed.wait_disconnected("eve")
        assert (await fed.end(submitted.job_id)).info.state is JobState.SUCCEEDED  # a step waits for no revoked client
    assert [(e["client"], e["reason"]) for e in no_trace if e["event"] == "session cut"] == [("eve", "REVOKED")]
    assert fed.sessions.present() >= {"a", "b"}
