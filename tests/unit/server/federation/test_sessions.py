"""Who is connected, and what is sent to whom; no sockets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import AlreadyConnectedError, RevokedError, VersionMismatchError, WireError
from kernfed.jobs.info import ClientInfo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed_server.federation.session import SessionLimits
from kernfed_server.federation.sessions import MAX_DEVICE_REPORTS, MAX_NAMES, SessionRegistry
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.session_calls import connect, drain, said


@pytest.fixture
def registry(tmp_path: Path) -> SessionRegistry:
    return SessionRegistry(SessionLimits(heartbeat_timeout_s=20.0), tmp_path)


def test_second_daemon_is_told_who_holds_the_name(registry: SessionRegistry) -> None:
    """A second daemon of a name is told from where and since when the first is connected."""
    connect(registry, "a")
    with pytest.raises(AlreadyConnectedError, match=r"already connected from ipv4:192\.0\.2\.1:1 since 20"):
        connect(registry, "a", "2")


def test_dead_session_gives_way(registry: SessionRegistry) -> None:
    """A session that was not heard of is replaced, and takes nothing along when its stream ends."""
    old = connect(registry, "a")
    old.last_heard -= 21
    new = connect(registry, "a", "2")
    assert old.ended.is_set()
    registry.closed(old)  # its stream ends later, and takes nothing along
    assert registry.get("a") is new
    assert registry.clients()["a"].connected
    registry.closed(new)
    assert registry.present() == frozenset()
    assert not registry.clients()["a"].connected


async def test_same_daemon_replaces_its_stream(registry: SessionRegistry) -> None:
    """A daemon that connects again replaces its own stream."""
    old = connect(registry, "a")
    new = connect(registry, "a")
    goodbye = (await drain(old))[-1].goodbye
    assert goodbye.reason == "REPLACED"
    assert registry.get("a") is new


def test_other_version(registry: SessionRegistry) -> None:
    """A daemon of another protocol version is told both versions."""
    with pytest.raises(VersionMismatchError, match="speaks protocol 9, this coordinator speaks 1"):
        connect(registry, "a", protocol_version=9)
    assert registry.present() == frozenset()


@pytest.mark.parametrize(
    "hello",
    [
        {"datasets": [pb.OfferedDataset(name="x" * 129)]},
        {"datasets": [pb.OfferedDataset(name=str(i)) for i in range(1001)]},
        {"steps": [str(i) for i in range(1001)]},
        {"instance": "x" * 129},
    ],
)
@pytest.mark.redteam
def test_a_hello_beyond_all_bounds_is_refused(registry: SessionRegistry, hello: dict[str, Any]) -> None:
    """What no client file can hold never gets into the coordinator's memory, store and lists."""
    with pytest.raises(WireError, match=r"client a: its .* are more than 1000, or longer than 128 characters"):
        connect(registry, "a", **hello)
    assert registry.clients() == {}


@pytest.mark.redteam
def test_tasks_that_no_client_knows_are_not_kept(registry: SessionRegistry) -> None:
    """Of a hello with fifty thousand tasks, with ids of megabytes, and with digests that are none, little stays."""
    many = [f"j/{number}/s" for number in range(50_000)]
    assert len(connect(registry, "a", known_task_ids=many).known_tasks) == MAX_NAMES
    ids, digests = ["t" * 1_000_000, "j/1/s", "j/2/s", "j/3/s"], [b"", b"d" * 32, b"d" * 1_000_000]
    kept = connect(registry, "b", known_task_ids=ids, known_requests_sha256=digests).known_tasks
    assert kept == {"j/1/s": b"d" * 32, "j/3/s": b""}
    assert connect(registry, "c", known_requests_sha256=digests).known_tasks == {}


@pytest.mark.redteam
async def test_a_heartbeat_names_tasks(registry: SessionRegistry) -> None:
    """What is longer than any task's name, or beyond a hundred, is not kept of what a client says to be busy with."""
    session = connect(registry, "a")
    busy = ["t" * 1_000_000, *(f"j/{number}/s" for number in range(200))]
    await said(registry, session, pb.ConnectRequest(heartbeat=pb.Heartbeat(busy_task_ids=busy)))
    assert len(session.busy) == 99
    assert max(map(len, session.busy)) < 10


async def test_cut_and_drain(registry: SessionRegistry) -> None:
    """A revoked client is cut off, the others are told goodbye at the end, each once."""
    a, b = connect(registry, "a"), connect(registry, "b")
    registry.cut(frozenset({"serial-a"}), "REVOKED", "why")
    assert a.ended.is_set()
    assert not b.ended.is_set()
    assert (await drain(a))[-1].goodbye == pb.Goodbye(reason="REVOKED", message="why")
    registry.drain("later")
    assert (await drain(b))[-1].goodbye.reason == "UNAVAILABLE"
    a.end("UNAVAILABLE", "again")
    assert await drain(a) == []


@pytest.mark.redteam
def test_a_hello_after_the_revocation(registry: SessionRegistry) -> None:
    """Who called before, and keeps its hello back until it was revoked, gets no session; a new certificate does."""
    registry.revoke("a", "lost")
    registry.cut(frozenset({"serial-a"}), "REVOKED", "ask for a new token")
    with pytest.raises(RevokedError, match="ask for a new token"):
        connect(registry, "a")
    assert (registry.present(), registry.revoked()) == (frozenset(), {"a": "lost"})
    registry.open(ClientInfo("a"), "another", pb.Hello(protocol_version=1, instance_id="2"))
    assert (registry.present(), registry.revoked()) == (frozenset({"a"}), {})


async def test_revoked_operators_are_announced(registry: SessionRegistry) -> None:
    """To those who are there, and first of all to those who come."""
    here = connect(registry, "a")
    registry.announce(pb.RevocationList(der=b"1"))
    there = connect(registry, "b")
    registry.start(there)
    assert (await drain(here))[0].revoked_operators.der == b"1"
    assert (await drain(there))[0].revoked_operators.der == b"1"


async def test_end_of_job_reaches_all(registry: SessionRegistry) -> None:
    """All clients are told that a job has ended."""
    a, b = connect(registry, "a"), connect(registry, "b")
    registry.end_job("job", "succeeded")
    for session in (a, b):
        assert (await drain(session))[-1].cancel == task_pb2.Cancel(job_id="job", why="succeeded")


async def test_change_wakes_who_waits(registry: SessionRegistry) -> None:
    """Who waits for a change is woken by a new client, and the text of a device is bounded."""
    waiting = asyncio.ensure_future(registry.wait_change(LIMIT_S))
    await asyncio.sleep(0)
    session = connect(registry, "a")
    await asyncio.wait_for(waiting, LIMIT_S)
    registry.report_device(session, "cpu" * 1000, "")
    assert len(registry.clients()["a"].device) == 200
    await registry.wait_change(0.01)


def test_a_client_was_last_seen_when_it_was_last_heard(registry: SessionRegistry) -> None:
    """Neither when it connected, nor when its stream was given up: its silence before that counts."""
    session = connect(registry, "a")
    session.last_heard -= 3600
    connected_at = datetime.now(UTC)
    seen = registry.clients()["a"].last_seen_at
    assert seen is not None
    assert timedelta(minutes=59) < connected_at - seen < timedelta(minutes=61)
    registry.heard(session)
    seen = registry.clients()["a"].last_seen_at
    assert seen is not None
    assert seen >= connected_at
    session.last_heard -= 20
    registry.closed(session)
    seen = registry.clients()["a"].last_seen_at
    assert seen is not None
    assert timedelta(seconds=15) < datetime.now(UTC) - seen < timedelta(seconds=90)


async def test_a_client_that_tells_its_device_over_and_over_is_not_heard(registry: SessionRegistry) -> None:
    """A few reports of a session count, for each is stored and looked at; a new session has its own."""
    session = connect(registry, "a")
    for n in range(1000):
        registry.report_device(session, f"cpu {n}", "why")
    assert registry.clients()["a"].device == f"cpu {MAX_DEVICE_REPORTS - 1}"
    registry.report_device(connect(registry, "a"), "cuda:0", "")
    assert registry.clients()["a"].device == "cuda:0"
