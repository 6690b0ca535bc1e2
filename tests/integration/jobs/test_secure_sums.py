"""Secure sums over real sockets with mutual TLS: the bits of a simulation, and what sites refuse."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed.secure_sums.seat import Seat
from kernfed_client.daemon.audit_chain import verify
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

ABC = ["a", "b", "c"]
SECURE = '[privacy]\nsums = "secure"\n'


def simulated(fed: Federation, text: str, clients: list[str]) -> str:
    """Digest of the model of a run in one process."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in clients], fed.root / "state")
    job = parse_job(text)
    out = fed.root / "simulated" / job.name
    assert simulate(job, jobs, text=text, out=out).error is None
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def lines_of(fed: Federation, client: str, job: str) -> list[dict[str, Any]]:
    """A client's audit log of a job."""
    log = fed.client_folder(client) / "state" / "audit.jsonl"
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    assert verify(log) == len(lines)
    return [line for line in lines if line.get("job") == job]


async def test_the_model_is_that_of_a_simulation_and_no_solution_leaves(tmp_path: Path) -> None:
    """Over the network the model has the simulation's bits, and the audit log tells that terms were masked."""
    strict = dict.fromkeys(ABC, "[policy.secure_sum]\nrequire = true")
    async with Federation(tmp_path, ABC, settings=strict) as fed:
        text = fed.job("dkrr") + SECURE
        ended = await fed.run(text)
        assert await fed.model_sha256(ended) == await asyncio.to_thread(simulated, fed, text, ABC)
        text = fed.job("fedavg", rounds=2, begin="dkrr") + SECURE
        rounds = await fed.run(text)
        assert await fed.model_sha256(rounds) == await asyncio.to_thread(simulated, fed, text, ABC)
        clear = await fed.run(fed.job("dkrr"))
        lines = lines_of(fed, "b", ended.info.job_id)
        told = [line["step"] for line in lines_of(fed, "b", rounds.info.job_id)]
    assert [step for step in told if "masked" in step] == [
        "ridge.masked_solve",
        "fedavg.masked_update",
        "fedavg.masked_update",
        "newton.masked_gradient",
    ]
    assert clear.info.state is JobState.FAILED
    assert "sends model_update in the clear, and this client sends it in secure sums alone" in clear.info.error_message
    steps = [line["step"] for line in lines]
    assert "ridge.local_solve" not in steps
    assert [s for s in steps if s.startswith("sums.")] == ["sums.keys", "sums.deal", "sums.unmask"]
    [masked] = [line for line in lines if line["step"] == "ridge.masked_solve"]
    assert masked["remark"] == "masked; part of a sum of 3 sites"
    assert masked["kinds"] == ["model_update"]


async def test_a_client_that_fails_in_the_midst_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four clients one fails as it masks: the model is the mean of the others, as a job in the clear has it."""
    mask = Seat.mask

    def failing(seat: Seat, *args: Any) -> Any:
        if seat._name == "d":
            raise RuntimeError("a fault")
        return mask(seat, *args)

    monkeypatch.setattr(Seat, "mask", failing)
    async with Federation(tmp_path, [*ABC, "d"]) as fed:
        ended = await fed.run(fed.job("dkrr") + SECURE)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        (tmp_path / "secure.safetensors").write_bytes(await _model(fed, ended.info.job_id))
    [failed] = ended.of(EventKind.CLIENT_FAILED)
    assert (failed.client, failed.step) == ("d", "ridge.masked_solve")
    assert np.isfinite(load_file(tmp_path / "secure.safetensors")["weights"]).all()


async def _model(fed: Federation, job_id: str) -> bytes:
    target = fed.root / "fetched"
    await fed.operator.fetch(job_id, target)
    return (target / "model.safetensors").read_bytes()


async def test_two_clients_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    """A job whose file names two is no job; one that finds two at its start ends without a question."""
    async with Federation(tmp_path, ["a", "b"]) as fed:
        text = fed.job("dkrr") + SECURE
        with pytest.raises(ConfigError, match="of two clients, each learns the other's"):
            await fed.submit(text)
        open_cohort = "\n".join(line for line in text.splitlines() if not line.startswith("clients =")) + "\n"
        ended = await fed.run(open_cohort)
        left = lines_of(fed, "a", ended.info.job_id) if (fed.client_folder("a") / "state/audit.jsonl").exists() else []
    assert ended.info.error_reason == "SECURE_SUM_FAILED"
    assert "the job has 2 clients" in ended.info.error_message
    assert left == []


@pytest.mark.redteam
async def test_clients_hold_the_coordinator_to_secure_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that asks in the clear what the signed file has as secure sums is refused."""
    monkeypatch.setattr("kernfed_server.jobs.start.preparation.Setup.secure", False)
    async with Federation(tmp_path, ABC) as fed:
        ended = await fed.run(fed.job("dkrr") + SECURE)
    assert ended.info.state is JobState.FAILED
    assert "ridge.local_solve is asked in the clear, and the job file says that sums are secure" in str(
        ended.of(EventKind.CLIENT_FAILED)[0].message
    )


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("newton", {"differences": True}, "method newton tells how each client differs"),
        ("fednew", {"loss": "squared"}, "method fednew needs messages of single clients"),
        ("fedavg", {"client_fraction": 0.5}, "draws other clients in each round, by method.client_fraction"),
        ("fedprox", {"loss": "squared"}, "has secure sums with method.loss = .ridge. alone"),
        ("local", {}, "method local forms no sum over clients"),
        ("dkrr", {"aggregate": "median"}, "compares the clients' updates"),
        ("dkrr", {"ridge": "auto"}, "chooses method.ridge by sums over folds"),
    ],
)
def test_other_jobs_say_why_they_cannot(tmp_path: Path, method: str, settings: Mapping[str, Any], words: str) -> None:
    """A method or a setting without secure sums is refused as the file is read, with the reason."""
    text = Federation(tmp_path, ABC).job(method, **settings) + SECURE
    with pytest.raises(ConfigError, match=words):
        parse_job(text)
