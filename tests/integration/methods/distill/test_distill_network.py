"""Distillation over mutual TLS: the public file goes up and out once, and the bits are those of one process."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, WireError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation
from kernfed_testing.methods.distill import made_job, made_rows


def csv_of(num_clients: int, size: int) -> Mapping[str, str]:
    """Clients' files: ten rows of the third data set each."""
    texts = {}
    for name, rows in made_rows(num_clients, size).items():
        lines = [
            ",".join(map(repr, [*x, y])) for x, y in zip(rows.x_train.tolist(), rows.y_train.tolist(), strict=True)
        ]
        texts[name] = "\n".join(["x0,x1,x2,y", *lines]) + "\n"
    return texts


async def end_of(fed: Federation, text: str, files: Mapping[str, bytes]) -> str:
    """Upload, run, and return the consensus' SHA-256."""
    for content in files.values():
        await fed.operator.upload(content)
    ended = await fed.run(text)
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    left = {a.name: a.sha256 for a in await fed.operator.artifacts(ended.info.job_id)}
    assert "consensus.csv" in left
    return left["consensus.safetensors"]


def in_one_process(fed: Federation, folder: Path, text: str, files: Mapping[str, bytes]) -> str:
    """The same job on the same client files, without sockets."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in fed.data], folder / "state")
    done = simulate(parse_job(text), jobs, text=text, files=files, out=folder / "out")
    assert done.error is None, done.error
    return hashlib.sha256((folder / "out" / "consensus.safetensors").read_bytes()).hexdigest()


async def test_the_network_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    """Three daemons; a second job on the same public set sends it to nobody; what was not uploaded is refused."""
    chosen: dict[str, Any] = dict.fromkeys(
        ("ridge", "lengthscale", "intercept")
    )  # none is given: the clients' rows choose
    _, text, files = made_job(tmp_path, rounds=8, num_points=40, **chosen)
    text = text.replace("standardise = false", "standardise = false\ntest_fraction = 0.2")
    async with Federation(tmp_path / "fed", csv_of(3, 15)) as fed:
        with pytest.raises(ConfigError, match="not at this coordinator"):
            await fed.submit(text)
        with pytest.raises(ConfigError, match="kernfed job submit"):
            await fed.submit(text[: text.index("[files]")])
        with pytest.raises(WireError):
            await fed.operator.upload(b"")
        networked = await end_of(fed, text, files)
        ended = await fed.run(text)
        notes = [e.message for e in ended.of(EventKind.NOTE)]
        assert any("sent to nobody" in note for note in notes)
        assert any(note.startswith("ridge ") and "the least error of the clients' rows" in note for note in notes)
        assert networked == await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text, files)


async def test_commands_submit_and_predict(tmp_path: Path) -> None:
    """`kernfed job submit` uploads the public file; `kernfed-client predict` uses what stayed, and tells bounds."""
    made_job(tmp_path, num_points=25)
    _, text, _ = made_job(tmp_path, num_points=25, rounds=2)
    (tmp_path / "job.toml").write_text(text[: text.index("[files]")].rstrip("# \n").rsplit("\n#", 1)[0])
    async with Federation(tmp_path / "fed", csv_of(2, 15)) as fed:
        arguments = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        submitted = await run_command("kernfed", "job", "submit", str(tmp_path / "job.toml"), *arguments)
        assert submitted.returncode == 0, submitted.stderr
        job_id = submitted.stdout.splitlines()[0]
        assert (await fed.end(job_id)).info.state is JobState.SUCCEEDED
        (tmp_path / "new.csv").write_text("x2,x0,x1,who\n0.1,0.2,0.3,ann\n0.4,0.5,0.6,bob\n")
        config = fed.client_folder("site-0") / "client.toml"
        rows = ["--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv"), "--config", str(config)]
        done = await run_command("kernfed-client", "predict", "--job", job_id[:12], "--coverage", "0.8", *rows)
        assert done.returncode == 0, done.stderr
        written = (tmp_path / "out.csv").read_text().splitlines()
        assert written[0] == "x2,x0,x1,who,prediction,deviation,lower,upper"
        told = np.array([line.split(",")[4:] for line in written[1:]], dtype=float)
        assert (told[:, [1, 0, 3]] > np.stack([0 * told[:, 0], told[:, 2], told[:, 0]], axis=1)).all()


@pytest.mark.slow
async def test_processes_are_killed(tmp_path: Path) -> None:
    """Coordinator and a client with a network killed in the middle of a job: the bits of one process."""
    _, text, files = made_job(tmp_path, rounds=25, num_points=40, deregularise=False, cohort="min_clients = 3")
    text = text.replace("standardise = false", "standardise = false\ntest_fraction = 0.2")
    network = 'kind = "mlp"\nhidden = [8]\npretrain_epochs = 5\ndigest_epochs = 1\nrevisit_epochs = 1'
    settings = {"site-2": f"[models.default]\n{network}"}
    async with Federation(
        tmp_path / "fed", csv_of(3, 15), processes=True, proxied=["site-0"], settings=settings
    ) as fed:
        undisturbed = await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text, files)
        for content in files.values():
            await fed.operator.upload(content)
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=4)
        line = fed.proxies["site-0"]
        line.stall()  # the job cannot end while one client is deaf
        await fed.coordinator.kill()
        await fed.clients["site-2"].kill()
        await fed.start_coordinator()
        await fed.clients["site-2"].start()
        line.cut()
        line.resume()
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        left = {a.name: a.sha256 for a in await fed.operator.artifacts(ended.info.job_id)}
        assert left["consensus.safetensors"] == undisturbed


@pytest.mark.slow
async def test_ten_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    """Ten client processes of ten rows, 90 public points, 200 rounds: the consensus has the SHA-256 of a simulation."""
    _, text, files = made_job(tmp_path, rounds=200, num_points=90, top="evaluate_every = 100")
    text = text.replace("standardise = false", "standardise = false\ntest_fraction = 0.0")
    async with Federation(tmp_path / "fed", csv_of(10, 10), processes=True) as fed:
        networked = await end_of(fed, text, files)
        assert networked == await asyncio.to_thread(in_one_process, fed, tmp_path / "sim", text, files)
    assert attach_files(parse_job(text), text, tmp_path)[1] == text  # the text has its digests
