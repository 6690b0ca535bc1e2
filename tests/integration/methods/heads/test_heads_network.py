"""Heads over mutual TLS: the model is that of one process, through restarts of all, and clients may refuse."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import QuorumNotMetError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

ABC = ["a", "b", "c"]
METHODS = {
    "newton": 'name = "newton"\nloss = "cross-entropy"\nrounds = 8',
    "paper": 'name = "newton"\nloss = "cross-entropy"\nstep = "paper"\nclient_fraction = 0.67\nrounds = 8',
    "fedprox": 'name = "fedprox"\nloss = "cross-entropy"\nbatch_size = 16\nrounds = 8',
    "fedsophia": 'name = "fedsophia"\nbatch_size = 16\nrounds = 8',
    "fednew": 'name = "fednew"\nrounds = 8',
}


def job_text(method: str, top: str = "") -> str:
    """A job that tells the sick from the rest."""
    return f"""
    name = "ill"
    seed = 4
    {top}
    [method]
    {METHODS[method]}
    [data]
    task = "binary"
    target = "ill"
    features = ["age", "dose", "pressure"]
    classes = ["0", "1"]
    [features]
    kernel = "linear"
    """


async def simulated_sha256(fed: Federation, text: str) -> str:
    """Digest of the model of the same job on the same client files, in this process."""
    out = fed.root / "simulated"
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in ABC], fed.root / "state")
    result: Any = await asyncio.to_thread(simulate, parse_job(text), jobs, text=text, out=out)
    assert result.error is None
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("method", METHODS)
async def test_network_equals_one_process(tmp_path: Path, method: str) -> None:
    """Every method's model has the bytes of the simulation's."""
    async with Federation(tmp_path, ABC) as fed:
        text = job_text(method)
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert await fed.model_sha256(ended) == await simulated_sha256(fed, text)


async def test_a_killed_coordinator_and_client_leave_the_same_bytes(tmp_path: Path) -> None:
    """Both go between rounds and come back; the head is that of a job left in peace."""
    async with Federation(tmp_path, ABC, processes=True, proxied=["a"]) as fed:
        text = job_text("newton", top="evaluate_every = 50") + "[cohort]\nmin_clients = 3\n"
        undisturbed = await simulated_sha256(fed, text)
        line = fed.proxies["a"]
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=2)
        line.stall()  # the job cannot end while one client is deaf
        await fed.clients["b"].kill()
        await fed.coordinator.kill()
        await fed.start_coordinator()
        await fed.clients["b"].start()
        line.cut()
        line.resume()
        ended = await fed.end(job.job_id)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert await fed.model_sha256(ended) == undisturbed


async def test_a_client_that_lets_no_gradient_out_refuses(tmp_path: Path) -> None:
    """Policy names the kind; with too few clients left the job waits, and fails when its time is over."""
    refusing = {"b": '[policy]\nallow = ["summary", "mean_embedding", "metric"]\n'}
    async with Federation(tmp_path, ABC, settings=refusing) as fed:
        ended = await fed.run(job_text("newton") + "[cohort]\nmin_clients = 3\nwait_s = 1.0\ndeadline_s = 1.0\n")
        assert ended.info.error_reason == QuorumNotMetError.reason
        assert "b: REFUSED_BY_POLICY" in ended.info.error_message
