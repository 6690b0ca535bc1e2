"""The same job gives the same model, over the network or in one process, disturbed or not."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import psutil
import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Ended, Federation

ABC = ["a", "b", "c"]


async def simulated_sha256(fed: Federation, text: str) -> str:
    """Digest of the model of the same job on the same client files, in this process."""
    out = fed.root / "simulated"
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in ABC], fed.root / "state")
    result = await asyncio.to_thread(simulate, parse_job(text), jobs, text=text, out=out)
    assert result.error is None
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("method", ["newton", "fedavg"])
async def test_network_equals_one_process(tmp_path: Path, method: str) -> None:
    """Networked runs with replies in different orders, and the simulation, leave the same bytes."""
    async with Federation(tmp_path, ABC, proxied=["a"]) as fed:
        text = fed.job(method, rounds=12)
        first = await fed.run(text)
        fed.proxies["a"].delay_s = 0.05
        second = await fed.run(text)
        digests = {await fed.model_sha256(first), await fed.model_sha256(second), await simulated_sha256(fed, text)}
        scores = [json.loads((folder / "findings.json").read_text())["scores"] for folder in await folders(fed, second)]

    def orders(ended: Ended) -> list[list[str]]:
        """Names in the order of their answers, one list a step."""
        steps: dict[tuple[int, str], list[str]] = {}
        for e in ended.of(EventKind.CLIENT_ANSWERED):
            steps.setdefault((e.round_num, e.step), []).append(e.client)
        return list(steps.values())

    assert orders(second) != orders(first)
    assert any(names[-1] == "a" for names in orders(second))
    assert len(digests) == 1
    assert scores[0] == scores[1]


async def folders(fed: Federation, ended: Ended) -> tuple[Path, Path]:
    """What a job left at the coordinator, fetched, and what the simulation of before left."""
    await fed.operator.fetch(ended.info.job_id, fed.root / "fetched", ["findings.json"])
    return fed.root / "fetched", fed.root / "simulated"


async def test_float32_equals_one_process(tmp_path: Path) -> None:
    """So do they with float32 on the wire."""
    async with Federation(tmp_path, ABC) as fed:
        text = 'precision = "float32"\n' + fed.job("dkrr")
        assert await fed.model_sha256(await fed.run(text)) == await simulated_sha256(fed, text)


async def test_a_ridge_chosen_by_rows_apart_equals_one_process(tmp_path: Path) -> None:
    """Clients of a signed job answer every request of the search, and the model is that of a simulation."""
    async with Federation(tmp_path, ABC) as fed:
        text = fed.job("newton", ridge="auto")
        ended = await fed.run(text)
        assert any("rows kept apart best" in e.message for e in ended.of(EventKind.NOTE))
        assert await fed.model_sha256(ended) == await simulated_sha256(fed, text)


async def test_features_of_landmarks_equal_one_process(tmp_path: Path) -> None:
    """Every end draws the same landmarks, and none is sent."""
    async with Federation(tmp_path, ABC) as fed:
        text = fed.job("dkrr") + 'form = "nystroem"\n'
        assert await fed.model_sha256(await fed.run(text)) == await simulated_sha256(fed, text)


async def test_processes_are_killed(tmp_path: Path) -> None:
    """A job in which the coordinator and a client were killed leaves the model of one left in peace."""
    async with Federation(tmp_path, ABC, processes=True, proxied=["a"]) as fed:
        line = fed.proxies["a"]
        text = "report = true\nevaluate_every = 50\n" + fed.job("fedavg", rounds=100, cohort_min_clients=3)
        undisturbed = await simulated_sha256(fed, text)

        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=4)
        line.stall()  # the job cannot end while one client is deaf
        await fed.coordinator.kill()
        await fed.start_coordinator()
        line.cut()
        line.resume()
        await fed.wait_connected(*ABC)
        ended = await fed.end(job.job_id)
        assert await fed.model_sha256(ended) == undisturbed
        assert "the coordinator was restarted" in {e.message for e in ended.of(EventKind.NOTE)}

        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=4)
        line.stall()
        await fed.clients["b"].kill()
        await fed.clients["b"].start()
        line.resume()
        ended = await fed.end(job.job_id)
        assert await fed.model_sha256(ended) == undisturbed
        assert any(e["event"] == "job state rebuilt after restart" for e in fed.clients["b"].log)
        for node in (fed.coordinator, *fed.clients.values()):
            assert [e for e in node.log if e["level"] not in ("info", "warning")] == []


@pytest.mark.slow
async def test_gigabyte(tmp_path: Path) -> None:
    """A 1 GiB body goes to another process and back; the coordinator holds it and the mean, the client only it."""
    async with Federation(tmp_path, ["a"], processes=True, fresh=True) as fed:
        job = await fed.submit(fed.job("probe", rounds=1, payload_bytes=1 << 30))
        peak = {"coordinator": 0, "client": 0}
        processes = {"coordinator": fed.coordinator.pid, "client": fed.clients["a"].pid}
        ending = asyncio.ensure_future(fed.end(job.job_id))
        while not (await asyncio.wait([ending], timeout=0.1))[0]:
            for name, pid in processes.items():
                memory = psutil.Process(pid).memory_full_info()
                peak[name] = max(peak[name], memory.uss)
        ended = ending.result()
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert peak["coordinator"] < 2.4 * 2**30
    assert peak["client"] < 1.5 * 2**30
