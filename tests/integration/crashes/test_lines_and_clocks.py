"""Firewalls that cut idle lines or lose one direction, wall clocks that jump: same bits, each reply counted once."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import kernfed
import kernfed_client
import kernfed_server
from kernfed.federation.events import EventKind
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed_testing.federation import Federation
from kernfed_testing.machine.proxy import Direction
from kernfed_testing.machine.shifted_clock import FILE, set_by_file
from kernfed_testing.worlds.gate import Gate

AB = ["a", "b"]


def text_of(fed: Federation, rounds: int = 4) -> str:
    return "evaluate_every = 50\n" + fed.job("fedavg", rounds=rounds, cohort_min_clients=2)


async def test_heartbeats_keep_a_line_from_being_idle(tmp_path: Path) -> None:
    """A firewall that cuts lines idle for four times the heartbeat interval, as 20 s to 5 s, never cuts ours."""
    async with Federation(tmp_path, AB, proxied=["a"], heartbeat_s=(0.25, 5.0)) as fed:
        fed.proxies["a"].cut_idle(1.0)
        await asyncio.sleep(3)
        assert fed.proxies["a"].num_cuts == 0
        assert fed.sessions.present() == set(AB)


async def test_a_box_that_cuts_idle_lines_is_named_and_kept_from_it(tmp_path: Path) -> None:
    """With seldom heartbeats a line is cut three times; then its client says so, and sends them more often."""
    async with Federation(tmp_path, AB, proxied=["a"], heartbeat_s=(30.0, 100.0)) as fed:
        line, daemon = fed.proxies["a"], fed.daemons["a"]
        line.cut_idle(0.8)
        await line.wait(lambda: line.num_cuts >= 3 and line.num_connections >= 4)
        found = daemon.session.idle_cuts
        await line.wait(lambda: found.after_s is not None)
        assert "something between this client and the coordinator" in found.text
        cuts, passed = line.num_cuts, line.passed[Direction.UP]
        await line.wait(lambda: line.passed[Direction.UP] > passed + 600)  # some heartbeats
        assert line.num_cuts <= cuts + 1


async def test_idle_lines_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cuts all the same while a client computes, the reply arrives over the next line and counts once."""
    gate = Gate(monkeypatch, GradientDescentRequest, "a")
    async with Federation(tmp_path, AB, proxied=["a"], heartbeat_s=(2.0, 10.0)) as fed:
        gate.open()
        undisturbed = await fed.model_sha256(await fed.run(text_of(fed)))
    gate = Gate(monkeypatch, GradientDescentRequest, "a")
    async with Federation(tmp_path / "again", AB, proxied=["a"], heartbeat_s=(2.0, 10.0)) as fed:
        job = await fed.submit(text_of(fed))
        await gate.wait_reached()
        line = fed.proxies["a"]
        line.cut_idle(0.4)
        await line.wait(lambda: line.num_connections > 2)
        gate.open()
        ended = await fed.end(job.job_id)
        assert line.num_cuts > 0
        assert await fed.model_sha256(ended) == undisturbed
    assert gate.calls["a"] == 4


async def test_only_acknowledgements_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that carries replies and no acknowledgement is dialled again, and the reply sent twice counts once."""
    gate = Gate(monkeypatch, GradientDescentRequest, "a")
    async with Federation(tmp_path, AB, proxied=["a"], heartbeat_s=(0.1, 1.0)) as fed:
        job = await fed.submit(text_of(fed))
        await gate.wait_reached()
        line = fed.proxies["a"]
        before = line.num_connections
        line.stall(Direction.DOWN)
        gate.open()
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=1)
        await line.wait(lambda: line.num_connections > before)
        line.resume()
        ended = await fed.end(job.job_id)
        disturbed = await fed.model_sha256(ended)
        answered = [(e.round_num, e.step) for e in ended.of(EventKind.CLIENT_ANSWERED, "a")]
        assert len(answered) == len(set(answered))
        assert not ended.of(EventKind.CLIENT_FAILED)
        assert not [e for e in ended.of(EventKind.NOTE) if "second" in e.message]
        computed = gate.calls["a"]
        assert await fed.model_sha256(await fed.run(text_of(fed))) == disturbed
    assert computed == 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A federation whose coordinator and client `a` have wall clocks that follow files."""
    follows = set_by_file(tmp_path_factory.mktemp("clock"))
    environment = {"coordinator": follows, "a": follows}
    folder = tmp_path_factory.mktemp("fed")
    async with Federation(folder, AB, processes=True, heartbeat_s=(0.3, 30.0), environment=environment) as fed:
        yield fed


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(processes: Federation) -> str:
    """Digest of the model of a job whose clocks go on."""
    return await processes.model_sha256(await processes.run(text_of(processes, 40)))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(sys.platform != "linux", reason="preloads a library")
@pytest.mark.parametrize(
    ("side", "step_s"),
    [("client", 3600), ("client", -3600), ("coordinator", 3600), ("client", 60), ("coordinator", -60)],
)
async def test_wall_clock_jumps(processes: Federation, undisturbed: str, side: str, step_s: int) -> None:
    """A wall clock that jumps on one side in mid-job, by an hour or a minute, is not noticed by the session."""
    fed, clock = processes, clock_of(processes, side)
    begun = {name: len(fed.clients[name].log) for name in AB}
    try:
        job = await fed.submit(text_of(fed, 40))
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=5)
        clock.write_text(str(step_s))
        digests = [await fed.model_sha256(await fed.end(job.job_id))]
        digests.append(await fed.model_sha256(await fed.run(text_of(fed, 40))))
        assert set(digests) == {undisturbed}
        assert not [e for e in fed.clients["a"].log[begun["a"] :] if e["event"] == "session open"]
        assert not [e for e in fed.clients["b"].log[begun["b"] :] if "silent" in str(e.get("error"))]
    finally:
        clock.unlink(missing_ok=True)


def clock_of(fed: Federation, side: str) -> Path:
    return (fed.client_folder("a") if side == "client" else fed.root) / FILE


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(sys.platform != "linux", reason="preloads a library")
async def test_a_client_that_starts_with_its_clock_behind_waits_for_it(processes: Federation) -> None:
    """It says that its certificate is not valid yet and what to look at, and dials once the clock is right."""
    node, clock = processes.clients["a"], clock_of(processes, "client")
    await node.kill()
    clock.write_text("-3600")
    try:
        await node.start()
        said = await node.saw("no session with the coordinator; trying again until there is one")
        assert "is not valid before" in said["error"]
        assert "check this machine's clock" in said["error"]
        clock.unlink()
        await node.saw("session open")
    finally:
        clock.unlink(missing_ok=True)


PROTOCOL = [
    *Path(kernfed.__path__[0], "wire").glob("*.py"),
    *(
        Path(kernfed_client.__path__[0], "daemon", f"{name}.py")
        for name in ("session", "connection", "outbox", "reply_store", "tasks", "worker")
    ),
    *(Path(kernfed_server.__path__[0], "federation", f"{name}.py") for name in ("exchange", "frame_rate")),
    Path(kernfed_server.__path__[0], "jobs", "step_state.py"),
    Path(kernfed_server.__path__[0], "services", "federation.py"),
]


@pytest.mark.parametrize("path", PROTOCOL, ids=lambda path: path.stem)
def test_protocol_reads_no_wall_clock(path: Path) -> None:
    """No module that waits or decides in the protocol reads the wall clock."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("time", "time"), ("time", "time_ns"), ("datetime", "now")}
