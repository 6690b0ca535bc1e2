"""Processes that are killed with SIGKILL between the trips of a secure sum: the bits of a run left in peace."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Ended, Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import Process
from kernfed_testing.places import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NAMES = ["a", "b", "c", "d"]


class Killed(Federation):
    """A federation of processes whose coordinator can be told where to die."""

    def _make_coordinator(self) -> Process:
        return Process("kernfed_testing.crashes.crashing_coordinator", "run", cwd=self.root)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])))
        async with Killed(tmp_path_factory.mktemp("killed"), NAMES, processes=True) as fed:
            yield fed


@pytest.fixture(scope="module")
def text(fed: Federation) -> str:
    return fed.job("dkrr") + '[privacy]\nsums = "secure"\n'


@pytest.fixture(scope="module")
def undisturbed(fed: Federation, text: str) -> str:
    """Digest of the model of a run in one process."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in NAMES], fed.root / "state")
    assert simulate(parse_job(text), jobs, text=text, out=fed.root / "simulated").error is None
    return hashlib.sha256((fed.root / "simulated" / "model.safetensors").read_bytes()).hexdigest()


async def begun(fed: Federation, point: str = "") -> None:
    """A new life of the coordinator, with all clients back, that dies at a point."""
    await fed.coordinator.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNFED_CRASH_AT", point)
        await fed.start_coordinator()
    await fed.wait_connected(*NAMES)


async def died(node: Process) -> None:
    async with asyncio.timeout(LIMIT_S):
        assert await node.wait() == -9


def check(ended: Ended) -> None:
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert ended.info.clients == tuple(NAMES)


@pytest.mark.parametrize("step", ["sums.deal", "ridge.masked_solve", "sums.unmask"])
async def test_a_coordinator_that_dies_between_trips(fed: Federation, text: str, undisturbed: str, step: str) -> None:
    """Its next life forms a sum of its own over the same clients, which help again with the same set, and no other."""
    await begun(fed, step)
    job = await fed.submit(text)
    await died(fed.coordinator)
    await begun(fed)
    ended = await fed.end(job.job_id)
    check(ended)
    assert not ended.of(EventKind.CLIENT_FAILED)
    assert await fed.model_sha256(ended) == undisturbed


async def test_a_client_that_dies_behind_its_term(fed: Federation, text: str, undisturbed: str) -> None:
    """Its masked term is there, and it is not: the others take its masks away, and its term counts."""
    await fed.clients["b"].kill()
    module, folder = "kernfed_testing.crashes.killed_client", fed.client_folder("b")
    log = str(fed.root / "computed")
    armed = Process(module, "acknowledged", "/ridge.masked_solve", log, "run", cwd=folder)
    await armed.start()
    await armed.saw("session open")
    job = await fed.submit(text)
    await died(armed)
    await armed.kill()
    fed.clients["b"] = Process(module, "never", "", log, "run", cwd=folder)
    await fed.clients["b"].start()
    ended = await fed.end(job.job_id)
    check(ended)
    assert {(e.client, e.step) for e in ended.of(EventKind.CLIENT_FAILED)} <= {("b", "sums.unmask")}
    assert await fed.model_sha256(ended) == undisturbed
