"""Operators over real sockets: the service, its client, and the commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kernfed.errors import (
    ConfigError,
    PermissionDeniedError,
    PolicyError,
    SubmissionError,
    UnavailableError,
    UnknownArtifactError,
    UnknownJobError,
    WireError,
)
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import JobInfo
from kernfed.jobs.job_file import parse_job
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.methods.scores import ScoresFinding
from kernfed.pki.authority import utc_now
from kernfed.pki.identity import Identity, Role, server_credentials
from kernfed.pki.submission import sha256_of, sign_job, signed_job_id
from kernfed.status import StatusInterceptor
from kernfed.v1 import operator_service_pb2_grpc
from kernfed.wire.channel import SERVER_OPTIONS
from kernfed.wire.operator_client import OperatorClient
from kernfed_server.services.operator import OperatorServicer
from kernfed_testing.identities import make_identities
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.methods.scores import client_scores
from kernfed_testing.worlds.job_world import World, probe_toml, world
from kernfed_testing.worlds.operator_service import serving


async def test_a_job_from_submission_to_files(tmp_path: Path) -> None:
    """Submit, watch, list, fetch: the file that arrives is the file that was left."""
    async with serving(tmp_path, "a", "b") as service, service.dial() as operator:
        service.world.script.free = True
        job = await operator.submit(probe_toml("demo", ["a", "b"]))
        updates = [update async for update in operator.watch(job.job_id)]
        final = updates[-1].job
        assert final is not None
        assert final.state is JobState.SUCCEEDED
        numbers = [u.event.sequence for u in updates if u.event and u.event.sequence]
        assert numbers == list(range(1, len(numbers) + 1))
        last = [u.event.event for u in updates if u.event and u.event.event.kind is EventKind.ROUND_CLOSED][-1]
        assert last.metrics is not None
        assert last.metrics.pooled == {"global": {"auc": 0.8}}
        assert last.metrics.clients["b"] == {"global": {"auc": 0.8}}
        assert last.metrics.training == {"seconds": 0.5}
        assert await operator.get(job.job_id[:-2]) == updates[-1].job
        assert [j.job_id for j in (await operator.list_jobs()).jobs] == [job.job_id]
        assert await operator.events(job.job_id) == [u.event for u in updates if u.event and u.event.sequence]
        artifacts = {a.name: a for a in await operator.artifacts(job.job_id)}
        paths = await operator.fetch(job.job_id, tmp_path / "out")
        assert {path.name for path in paths} == set(artifacts)
        for path in paths:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == artifacts[path.name].sha256
        assert (tmp_path / "out" / "job.toml").read_text() == probe_toml("demo", ["a", "b"])


async def test_a_job_is_kept_as_its_operator_signed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`show` says who signed; what comes again is the same job; another's signature, or none at all, is told."""
    async with serving(tmp_path, "a") as service, service.dial() as operator:
        text = probe_toml("demo", ["a"])
        made = sign_job(text, Identity.load(service.operator), utc_now())
        with monkeypatch.context() as patch:
            patch.setattr("kernfed.wire.operator_client.sign_job", lambda *_: made)
            job, again = await operator.submit(text), await operator.submit(text)
            bob = service.identities.make(Role.OPERATOR, "bob")
            async with service.dial(bob) as other:
                with pytest.raises(SubmissionError, match="another certificate than that of operator/bob"):
                    await other.submit(text)
            with pytest.raises(SubmissionError, match="not the one that operator/ann signed"):
                await operator.submit(text + "#")
        assert again.job_id == job.job_id == signed_job_id("demo", sha256_of(made))
        unsigned = await service.world.submit("plain", ["a"])
        _, told, _ = await service.command("job", "show", job.job_id)
        assert f"signed     by operator/ann, submission {sha256_of(made).hex()[:16]}" in told
        _, told, _ = await service.command("job", "show", unsigned.job_id)
        assert "signed     no; clients whose policy asks for a signature wait for `kernfed job sign`" in told


async def test_settings_are_those_that_the_job_began_with(tmp_path: Path) -> None:
    """`show` prints what the coordinator kept, a record where it kept none, and else says whose defaults it prints."""
    async with serving(tmp_path, "a") as service:
        service.world.script.free = True
        runs, store = service.world.runs, service.world.store
        job = await service.world.finished((await service.world.submit("demo", ["a"])).job_id)
        told = json.loads((await service.command("job", "show", job.job_id, "--json"))[1])
        assert told["settings"] == job.settings == parse_job(job.job_toml).plan()

        async def printed(settings: dict[str, Any]) -> str:
            await store.update_job(replace(job, settings=settings))
            return (await service.command("job", "show", job.job_id))[1]

        method = dict(job.settings["method"])
        assert "\n  method.rounds         77\n" in await printed({**job.settings, "method": {**method, "rounds": 77}})
        record = runs.artifact_folder(job.job_id) / "job.json"
        kept = json.loads(record.read_text())
        kept["settings"]["method"]["rounds"] = 55
        record.write_text(json.dumps(kept))
        assert "\n  method.rounds         55\n" in await printed({})
        record.unlink()
        assert "\nsettings by default; defaults as of kernfed 0." in await printed({})


async def test_a_large_artifact_arrives_in_pieces(tmp_path: Path) -> None:
    """More than a frame holds, bit for bit, with nothing left over beside it."""
    async with serving(tmp_path, "a") as service, service.dial() as operator:
        service.world.script.free = True
        job = await service.world.submit("demo", ["a"])
        await service.world.finished(job.job_id)
        content = bytes(range(256)) * 50_000 + b"end"
        (service.world.runs.artifact_folder(job.job_id) / "big.bin").write_bytes(content)
        (path,) = await operator.fetch(job.job_id, tmp_path / "out", ["big.bin"])
        assert path.read_bytes() == content
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["big.bin"]


@pytest.mark.redteam
async def test_a_file_that_changed_on_the_way_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is checked before the file gets its name."""

    async def corrupted(path: Path) -> AsyncIterator[bytes]:
        yield b"x" * path.stat().st_size

    monkeypatch.setattr("kernfed_server.services.operator.read_pieces", corrupted)
    async with serving(tmp_path, "a") as service, service.dial() as operator:
        service.world.script.free = True
        job = await service.world.submit("demo", ["a"])
        await service.world.finished(job.job_id)
        with pytest.raises(WireError, match="not what the coordinator announced"):
            await operator.fetch(job.job_id, tmp_path / "out", ["job.json"])
        assert not list((tmp_path / "out").iterdir())


async def test_errors_cross_the_line_as_themselves(tmp_path: Path) -> None:
    """Class and text of the coordinator's error reach the caller."""
    async with serving(tmp_path, "a", known={"a"}) as service, service.dial() as operator:
        with pytest.raises(ConfigError, match="job file: method: "):
            await operator.submit('name = "x"\n')
        with pytest.raises(UnknownJobError, match="no job 'zz'"):
            await operator.get("zz")
        with pytest.raises(UnknownJobError):
            await anext(operator.watch("zz"))
        job = await operator.submit(probe_toml("demo", ["a"]))
        with pytest.raises(UnknownArtifactError, match="none yet"):
            await operator.fetch(job.job_id, tmp_path / "out", ["model.json"])
        with pytest.raises(WireError, match="plain file name"):
            await operator.fetch(job.job_id, tmp_path / "out", ["../x"])
        assert (await operator.cancel(job.job_id)).state is JobState.CANCELLED


@pytest.mark.redteam
async def test_a_clients_certificate_opens_none_of_the_operators_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call asks for the role, also of a command that signs nothing."""
    monkeypatch.setattr("kernfed.wire.operator_client.sign_job", lambda *_: None)
    async with serving(tmp_path, "a") as service, service.dial(service.client) as impostor:
        calls = [
            impostor.submit(probe_toml()),
            impostor.list_jobs(),
            impostor.get("x"),
            impostor.cancel("x"),
            impostor.clients(),
            impostor.artifacts("x"),
            impostor.fetch("x", tmp_path / "out", ["model.json"]),
            anext(impostor.watch("x")),
        ]
        for call in calls:
            with pytest.raises(PermissionDeniedError, match="client/a may not"):
                await call


async def test_a_submission_repeated_by_a_nervous_caller_is_one_job(tmp_path: Path) -> None:
    """The request id decides."""
    async with serving(tmp_path) as service, service.dial() as operator:
        first = await operator.submit(probe_toml("demo", ["a"]), "id-1")
        assert (await operator.submit(probe_toml("demo", ["a"]), "id-1")).job_id == first.job_id
        assert len((await operator.list_jobs()).jobs) == 1


async def test_clients_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that fits no message comes whole; the revoked are told apart, and who is kept from work; each with why."""
    monkeypatch.setattr("kernfed_server.services.operator.PAGE_BYTES", 1)
    names = [f"site-{number:02}" for number in range(12)]
    async with serving(tmp_path, *names) as service, service.dial() as operator:
        service.world.sessions.gone = {"site-03": "lost \x1b[2J"}
        infos = service.world.sessions.infos
        infos["site-05"] = replace(infos["site-05"], trouble="waits \x1b[2J")
        assert [(c.name, c.revoked) for c in await operator.clients()] == [(n, n == "site-03") for n in names]
        _, out, _ = await service.command("client", "list")
        (line,) = (line for line in out.splitlines() if line.startswith("site-03"))
        assert line.split()[1:3] == ["revoked:", "lost"]
        (line,) = (line for line in out.splitlines() if line.startswith("site-05"))
        assert line.split()[1:3] == ["connected:", "waits"]
        assert "\x1b" not in out
        _, out, _ = await service.command("client", "list", "--json")
        assert [c["trouble"] for c in json.loads(out) if c["trouble"]] == ["waits \x1b[2J"]
        assert {c["name"]: c["revoked_why"] for c in json.loads(out)} == dict.fromkeys(names, "") | {
            "site-03": "lost \x1b[2J"
        }


async def test_two_thousand_clients_are_listed(tmp_path: Path) -> None:
    """Those that are enrolled and were never there too: all of them, once, in order, in messages that fit."""
    names = [f"site-{number:04}" for number in range(2000)]
    async with serving(tmp_path, "site-0003", known=set(names)) as service, service.dial() as operator:
        found = await operator.clients()
        assert [c.name for c in found] == names
        assert [c.name for c in found if c.connected] == ["site-0003"]


async def test_no_coordinator_is_said_in_words(tmp_path: Path) -> None:
    """The diagnosis names the address and what to check."""
    async with serving(tmp_path) as service:
        address, identity = service.address, Identity.load(service.operator)
    async with OperatorClient(identity, address, timeout_s=LIMIT_S) as operator:
        with pytest.raises(UnavailableError, match=address):
            await operator.clients()


async def test_the_commands(tmp_path: Path) -> None:
    """Submit and watch in a pipe, show, list, fetch, clients; JSON where asked."""
    job_file = tmp_path / "job.toml"
    job_file.write_text(probe_toml("demo", ["a", "b"]))
    async with serving(tmp_path, "a", "b") as service:
        service.world.script.free = True
        code, out, err = await service.command("job", "submit", str(job_file), "--watch")
        assert (code, out.count("round 3/3  global auc 0.8 | seconds 0.5")) == (0, 1), err
        assert "running on a, b" in out
        assert "\x1b" not in out
        code, out, _ = await service.command("job", "list", "--json")
        (listed,) = json.loads(out)
        assert (code, listed["state"], listed["name"]) == (0, "succeeded", "demo")
        code, out, _ = await service.command("job", "show", "demo")
        assert code == 0
        assert "cohort.min_fraction" in out
        assert "auc global" in out
        code, out, _ = await service.command("job", "watch", "demo", "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert (code, lines[-1]["job"]["state"], lines[1]["event"]["sequence"]) == (0, "succeeded", 1)
        code, out, _ = await service.command("job", "fetch", "demo", "job.toml", "--out", str(tmp_path / "out"))
        assert (code, out.strip()) == (0, str(tmp_path / "out" / "job.toml"))
        assert (tmp_path / "out" / "job.toml").read_text() == job_file.read_text()
        code, out, _ = await service.command("job", "artifacts", "demo")
        assert (code, "metrics.jsonl" in out) == (0, True)
        code, out, _ = await service.command("client", "list")
        assert (code, out.splitlines()[1].split()[:3]) == (0, ["a", "connected", "default"])


async def test_scripts_read_a_failures_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`job show --json`, `job watch --json` and job.json give reason and message apart; plain text joins them."""

    def step(client: str, request: EchoRequest) -> Echo:
        if client == "b":
            raise PolicyError("step: not here")
        return Echo(num_rows=1, values=request.values)

    monkeypatch.setattr("kernfed_testing.worlds.job_world.echo", step)
    async with serving(tmp_path, "a", "b") as service:
        service.world.script.free = True
        job = await service.world.submit("demo", ["a", "b"], rounds=1, min_clients=1, min_fraction=0.5)
        assert (await service.world.finished(job.job_id)).state is JobState.SUCCEEDED
        code, out, err = await service.command("job", "show", "demo", "--json")
        assert code == 0, err
        (failure,) = json.loads(out)["failures"]
        expected = {"kind": "client-failed", "client": "b", "reason": "REFUSED_BY_POLICY", "message": "step: not here"}
        assert {key: failure[key] for key in expected} == expected
        _, out, _ = await service.command("job", "watch", "demo", "--json")
        told = [json.loads(line).get("event", {}) for line in out.splitlines()]
        (event,) = (e for e in told if e.get("kind") == "client-failed")
        assert {key: event[key] for key in expected} == expected
        _, out, _ = await service.command("job", "show", "demo")
        assert "b failed probe.echo: REFUSED_BY_POLICY: step: not here" in out
        record = json.loads((service.world.runs.artifact_folder(job.job_id) / "job.json").read_text())
        (failure,) = record["failures"]
        assert (failure["reason"], failure["message"]) == ("REFUSED_BY_POLICY", "step: not here")


async def test_jobs_are_compared_by_what_they_left(tmp_path: Path) -> None:
    """A table, a sentence, JSON; a job without scores is named."""
    async with serving(tmp_path, "a") as service:
        service.world.script.free = True
        for name, scores in (("one", (0.20, 0.21)), ("two", (0.15, 0.18))):
            job = await service.world.finished((await service.world.submit(name, ["a"])).job_id)
            if name == "two":
                code, out, err = await service.command("job", "compare", "one", "two")
                assert (code, out) == (3, "")
                assert f"job {job.job_id} has no scores with errors" in err
            clients = tuple(client_scores(c, 0.3, score) for c, score in zip(("ann", "bob"), scores, strict=True))
            finding = ScoresFinding(clients, (), 2, 2, 80, 80)
            path = service.world.runs.artifact_folder(job.job_id) / "findings.json"
            path.write_text(json.dumps({"scores": finding.to_json()}))
        code, out, err = await service.command("job", "compare", "one", "two")
        assert code == 0, err
        assert "+0.050 ± 0.014" in out
        assert f"{job.job_id} is better than" in out
        assert "by 0.040 ± 0.010, mean over 2 clients" in out
        code, out, _ = await service.command("job", "compare", "one", "two", "--json", "--metric", "brier")
        assert (code, json.loads(out)["metrics"][0]["gains"][0]["gain"]) == (0, pytest.approx(0.04))


async def test_the_commands_fail_with_their_codes(tmp_path: Path) -> None:
    """3: the file; 5: the job, and no such job; one line each, without a traceback."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('name = "x"\n[method]\nname = "newton"\nrouns = 3\n')
    failing = tmp_path / "failing.toml"
    failing.write_text(probe_toml("demo", ["a", "gone"], wait_s=0.05))
    async with serving(tmp_path, "a") as service:
        code, _, err = await service.command("job", "submit", str(wrong))
        assert code == 3
        assert f"{wrong}: method.rouns: unknown key" in err
        code, _, err = await service.command("job", "submit", str(failing), "--watch")
        assert code == 5
        assert "QUORUM_NOT_MET" in err
        assert "missing: gone" in err
        code, _, err = await service.command("job", "cancel", "demo")
        assert (code, err.count("\n"), "is over (failed)" in err) == (5, 1, True)
        code, _, err = await service.command("job", "show", "nothing")
        assert (code, "Traceback" in err) == (5, False)


async def test_a_watch_goes_on_when_the_coordinator_comes_back(tmp_path: Path) -> None:
    """The caller sees every event once, and is told of the gap."""
    pki = make_identities(tmp_path / "ids")
    gaps: list[str] = []
    numbers: list[int] = []

    async def start(w: World, port: int) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[StatusInterceptor()])
        servicer = OperatorServicer(w.runs, pki.pki.authority.certificate)
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(servicer, server)
        port = server.add_secure_port(f"localhost:{port}", server_credentials(pki.coordinator))
        await server.start()
        return server, port

    async def follow(operator: OperatorClient, job_id: str, seen: asyncio.Event) -> JobInfo | None:
        async for update in operator.watch(job_id, on_gap=gaps.append):
            if update.event and update.event.sequence:
                numbers.append(update.event.sequence)
            if update.event and update.event.event.kind is EventKind.ROUND_CLOSED:
                seen.set()
        return update.job

    seen = asyncio.Event()
    async with world(tmp_path / "data", "a") as w:
        server, port = await start(w, 0)
        operator = OperatorClient(Identity.load(pki.operator), f"localhost:{port}", timeout_s=LIMIT_S)
        job = await operator.submit(probe_toml("demo", ["a"]))
        watching = asyncio.ensure_future(follow(operator, job.job_id, seen))
        w.script.go("demo")
        async with asyncio.timeout(LIMIT_S):
            await seen.wait()
        w.runs.drain()
        await server.stop(0)
    async with world(tmp_path / "data", "a") as w:
        server, _ = await start(w, port)
        w.script.free = True
        async with asyncio.timeout(LIMIT_S), operator:
            final = await watching
        assert final is not None
        assert final.state is JobState.SUCCEEDED
        await server.stop(0)
    assert len(gaps) >= 1
    assert numbers == list(range(1, len(numbers) + 1))
