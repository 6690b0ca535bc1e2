"""Sessions over real sockets: cuts, silence, second daemons, revoked clients."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
import structlog

from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.client_file import load_client_file
from kernfed.methods.probe.messages import EchoRequest
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity
from kernfed.pki.registry_reader import RegistryReader
from kernfed.pki.renewal import renew
from kernfed.pki.successions import OVERLAP
from kernfed_client.app import ClientDaemon
from kernfed_server.jobs.tasks.manager import RunManager
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine.proxy import Direction
from kernfed_testing.nodes import until
from kernfed_testing.worlds.gate import Gate


@pytest.mark.parametrize("back_before_it_is_done", [True, False])
async def test_cut_while_computing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_before_it_is_done: bool
) -> None:
    """A reply computed across or during a cut is delivered after it, and computed once."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    async with Federation(tmp_path, ["a", "b"], proxied=["a"]) as fed:
        job = await fed.submit(fed.job("probe", rounds=2, payload_bytes=80_000, cohort_min_clients=2))
        await gate.wait_reached()
        line = fed.proxies["a"]
        line.refuses = True
        line.cut()
        await fed.wait_disconnected("a")
        if not back_before_it_is_done:
            gate.open()
            await until(lambda: not fed.daemons["a"].session.tasks.busy_task_ids)
        line.refuses = False
        await fed.wait_connected("a")
        gate.open()
        ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert gate.calls == {"a": 2, "b": 2}
    assert [e.message for e in ended.of(EventKind.WAITING)] == ["waiting: 1 of 2 clients (missing: a)", ""]


@pytest.mark.parametrize("direction", list(Direction))
async def test_cut_in_mid_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: Direction) -> None:
    """A body cut short is sent again from the start, and arrives as it was."""
    gate = Gate(monkeypatch, EchoRequest, "nobody")
    async with Federation(tmp_path, ["a", "b"], proxied=["a"]) as fed:
        fed.proxies["a"].cut_after(direction, 6_000_000)
        ended = await fed.run(fed.job("probe", rounds=2, payload_bytes=20_000_000, cohort_min_clients=2))
        assert fed.proxies["a"].num_cuts == 1
        assert not list((tmp_path / "data" / "spool").iterdir())
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message  # the job compares all numbers
    assert gate.calls == {"a": 2, "b": 2}
    assert len(ended.of(EventKind.CLIENT_ANSWERED, "a")) == 2


async def test_silent_peer_is_dropped(tmp_path: Path) -> None:
    """Both ends drop a line on which nothing moves within the heartbeat limit, and come together when it moves."""
    async with Federation(tmp_path, ["a", "b"], proxied=["a"], heartbeat_s=(0.1, 1.0)) as fed:
        session = fed.daemons["a"].session
        fed.proxies["a"].stall()
        async with asyncio.timeout(LIMIT_S):
            await fed.wait_disconnected("a")
            await until(lambda: not session.connected)
        assert fed.sessions.present() == {"b"}
        fed.proxies["a"].resume()
        await fed.wait_connected("a")
        ended = await fed.run(fed.job("probe", cohort_min_clients=2))
    assert ended.info.state is JobState.SUCCEEDED


async def test_stall_in_mid_transfer(tmp_path: Path) -> None:
    """A client that stops reading in the middle of a body is dropped like any other, and gets it whole later."""
    async with Federation(tmp_path, ["a", "b"], proxied=["a"], heartbeat_s=(0.1, 1.0)) as fed:
        line = fed.proxies["a"]
        with structlog.testing.capture_logs() as logs:
            job = await fed.submit(fed.job("probe", rounds=1, payload_bytes=20_000_000, cohort_min_clients=2))
            await line.wait(lambda: line.passed[Direction.DOWN] > 3_000_000)
            line.stall()
            async with asyncio.timeout(LIMIT_S):
                await fed.wait_disconnected("a")
            line.resume()
            ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED
    assert [e for e in logs if e["log_level"] == "error"] == []


@pytest.mark.parametrize("direction", list(Direction))
async def test_half_closed_line(tmp_path: Path, direction: Direction) -> None:
    """A line that is closed in one direction is given up and dialled again."""
    async with Federation(tmp_path, ["a"], proxied=["a"], heartbeat_s=(0.1, 1.0)) as fed:
        line = fed.proxies["a"]
        before = line.num_connections
        line.half_close(direction)
        await until(lambda: line.num_connections > before)
        await fed.wait_connected("a")
        assert (await fed.run(fed.job("probe"))).info.state is JobState.SUCCEEDED


async def test_same_identity_twice(tmp_path: Path) -> None:
    """A second daemon is told who holds its identity, and takes over once that one is gone."""
    async with Federation(tmp_path, ["a"]) as fed:
        stop = asyncio.Event()
        with structlog.testing.capture_logs() as logs:
            file = load_client_file(fed.client_folder("a") / "client.toml")
            second = ClientDaemon(file.model_copy(update={"state": tmp_path / "second"}))
            running = asyncio.ensure_future(second.run(stop))
            await until(lambda: any(e.get("reason") == "ALREADY_CONNECTED" for e in logs))
            assert not second.session.connected
            assert (await fed.run(fed.job("probe"))).info.state is JobState.SUCCEEDED
            await fed.clients["a"].stop()
            await until(lambda: second.session.connected)
            assert (await fed.run(fed.job("probe"))).info.state is JobState.SUCCEEDED
            stop.set()
            await asyncio.wait_for(running, LIMIT_S)
    told = [e["error"] for e in logs if e["event"].startswith("no session") and e["reason"] == "ALREADY_CONNECTED"]
    assert len(told) == 1  # once, however often it is tried
    assert "client a is already connected from ipv4:127.0.0.1:" in told[0]
    assert "enrol this one under its own name" in told[0]


async def test_reconnect_replaces_half_open_stream(tmp_path: Path) -> None:
    """A daemon that comes back replaces its own stream, which the coordinator still thinks alive."""
    async with Federation(tmp_path, ["a"], proxied=["a"], heartbeat_s=(0.2, 30.0)) as fed:
        old = fed.sessions.get("a")
        assert old is not None
        fed.proxies["a"].cut_client_side()
        await until(lambda: fed.sessions.get("a") not in (old, None))
        assert old.ended.is_set()
        assert (await fed.run(fed.job("probe"))).info.state is JobState.SUCCEEDED
        assert fed.sessions.present() == {"a"}


async def test_revoked_in_mid_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revoked client is cut off within seconds, in the middle of a step, and told why; the job goes on without it."""
    gate = Gate(monkeypatch, EchoRequest, "c")
    async with Federation(tmp_path, ["a", "b", "c"]) as fed:
        job = await fed.submit(fed.job("probe", rounds=2, cohort_min_clients=2, cohort_deadline_s=3600.0))
        await gate.wait_reached()
        with structlog.testing.capture_logs() as logs:
            await asyncio.to_thread(fed.identities.pki.revoke, "client/c", why="left")
            async with asyncio.timeout(LIMIT_S):
                await fed.wait_disconnected("c")
            await until(lambda: any(e.get("reason") == "REVOKED" and "error" in e for e in logs))
        gate.open()
        ended = await fed.end(job.job_id)
        assert fed.sessions.present() == {"a", "b"}
    said = next(e["error"] for e in logs if e.get("reason") == "REVOKED" and "error" in e)
    assert "revoked" in said
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert [e.reason for e in ended.of(EventKind.CLIENT_FAILED, "c")] == ["REVOKED"]
    assert not ended.of(EventKind.CLIENT_MISSING, "c")
    assert not ended.of(EventKind.CLIENT_ANSWERED, "c")


async def test_reply_that_comes_before_its_job_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that a restarted coordinator cannot place yet is asked for again, and not computed again."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    resume, take_up = asyncio.Event(), RunManager._take_up

    async def take_up_late(self: RunManager, stored: Any) -> None:
        await resume.wait()
        await take_up(self, stored)

    async with Federation(tmp_path, ["a", "b"]) as fed:
        job = await fed.submit(fed.job("probe", rounds=1, cohort_min_clients=2))
        await gate.wait_reached()
        await fed.coordinator.stop()
        gate.open()
        await until(lambda: not fed.daemons["a"].session.tasks.busy_task_ids)
        monkeypatch.setattr(RunManager, "_take_up", take_up_late)
        with structlog.testing.capture_logs() as logs:
            await fed.start_coordinator()
            await until(lambda: any(e["event"] == "answer not taken by the coordinator" for e in logs))
        resume.set()
        ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert gate.calls == {"a": 1, "b": 1}


async def test_a_renewed_certificate_is_taken_up_in_mid_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that renewed dials again with the new certificate; the step goes on, and the old one's day begins."""
    gate = Gate(monkeypatch, EchoRequest, "a")
    async with Federation(tmp_path, ["a", "b"]) as fed:
        job = await fed.submit(fed.job("probe", rounds=2))
        await gate.wait_reached()
        old = Identity.load(fed.client_folder("a") / "identity")
        with structlog.testing.capture_logs() as logs:
            fresh = await renew(old, address=f"localhost:{fed.ports.federation}")
            fed.daemons["a"].session.dial_again()
            await until(lambda: (held := fed.sessions.get("a")) is not None and held.serial == fresh.serial)
            with contextlib.closing(RegistryReader(fed.identities.pki.registry.path)) as reader:
                await until(lambda: not reader.unused(utc_now())[0])
                assert reader.unused(utc_now() + OVERLAP) == (frozenset(), True)
        gate.open()
        ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert not ended.of(EventKind.CLIENT_FAILED)
    assert not [e for e in logs if e["log_level"] in ("warning", "error")]


async def test_coordinator_stops_in_good_order(tmp_path: Path) -> None:
    """Clients are told that the coordinator goes, and find it again when it is back."""
    async with Federation(tmp_path, ["a", "b"]) as fed:
        with structlog.testing.capture_logs() as logs:
            async with asyncio.timeout(LIMIT_S):
                await fed.coordinator.stop()
            await until(lambda: sum(e.get("error", "").startswith("the coordinator is shutting") for e in logs) == 2)
        assert [e for e in logs if e["log_level"] == "error"] == []
        await fed.start_coordinator()
        await fed.wait_connected("a", "b")
