"""A coordinator that is killed with SIGKILL at the worst moments goes on with the same job, to the same bits."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kernfed.errors import UnavailableError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.info import JobInfo
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.crashes.crashing_coordinator import POINTS, ROUND
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import Process
from kernfed_testing.places import TESTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

AB = ["a", "b"]
ROUNDS = 3


class Killed(Federation):
    """A federation of processes whose coordinator can be told where to die."""

    def _make_coordinator(self) -> Process:
        return Process("kernfed_testing.crashes.crashing_coordinator", "run", cwd=self.root)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])))
        signed = dict.fromkeys(AB, '[policy]\nunsigned = "refuse"')  # each life must pass the signature on
        async with Killed(tmp_path_factory.mktemp("killed"), AB, processes=True, settings=signed) as fed:
            yield fed


@pytest.fixture(scope="module")
def text(fed: Federation) -> str:
    return fed.job("fedavg", rounds=ROUNDS, cohort_min_clients=2)


@pytest.fixture(scope="module")
def undisturbed(fed: Federation, text: str) -> str:
    """Digest of the model of a run in one process."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in AB], fed.root / "state")
    assert simulate(parse_job(text), jobs, text=text, out=fed.root / "simulated").error is None
    return hashlib.sha256((fed.root / "simulated" / "model.safetensors").read_bytes()).hexdigest()


async def restarted(fed: Federation, point: str = "") -> None:
    """A new life of the coordinator, with both clients back, that dies at a point."""
    await fed.coordinator.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNFED_CRASH_AT", point)
        await fed.start_coordinator()
    await fed.wait_connected(*AB)


async def submitted(fed: Federation, text: str, request_id: str) -> JobInfo:
    """Ask until the operator's channel, which waits a moment after a fault, has found the new life."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(UnavailableError):
                return await fed.operator.submit(text, request_id=request_id)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("point", POINTS)
async def test_killed(fed: Federation, text: str, undisturbed: str, point: str) -> None:
    """The job ends with the model of an undisturbed run, no closed round is done again, and nothing is left over."""
    await restarted(fed, point)
    job_id = f"lost-{point}"
    submitting = asyncio.ensure_future(fed.operator.submit(text, request_id=job_id))
    async with asyncio.timeout(LIMIT_S):
        assert await fed.coordinator.wait() == -9
    if point == "accepted":
        with contextlib.suppress(UnavailableError):
            await submitting
    await restarted(fed)
    job = await submitted(fed, text, job_id)  # asked again, it is the same job
    if point != "accepted":
        assert job.job_id == (await submitting).job_id
    ended = await fed.end(job.job_id)
    assert await fed.model_sha256(ended) == undisturbed
    assert ended.info.round_num == ROUNDS
    closed = Counter(e.round_num for e in ended.of(EventKind.ROUND_CLOSED))
    assert closed == Counter(range(1, ROUNDS + 1))
    opened = Counter(e.round_num for e in ended.of(EventKind.ROUND_OPENED))
    again = point in ("half-the-replies", "all-in", "aggregated", "checkpoint-half-written", "checkpoint-not-named")
    assert opened[1] == 1
    assert opened[ROUND] <= 1 + again
    assert not ended.of(EventKind.CLIENT_FAILED)
    data = fed.root / "data"
    assert not list((data / "checkpoints").iterdir())
    assert [path.name for path in (data / "jobs" / job.job_id).iterdir()] == ["artifacts"]
    assert all(listed.state.finished for listed in (await fed.operator.list_jobs()).jobs)


async def test_a_checkpoint_that_is_gone_ends_the_job(fed: Federation, text: str) -> None:
    """Killed in round 2, and the file of round 1 removed: the job fails at once and says so, and waits for no disk."""
    await restarted(fed, "all-in")
    job = await submitted(fed, text, "gone")
    async with asyncio.timeout(LIMIT_S):
        assert await fed.coordinator.wait() == -9
    [path] = (fed.root / "data" / "checkpoints").iterdir()
    path.unlink()
    await restarted(fed)
    ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.FAILED
    assert "the checkpoint of round 1 cannot be read" in ended.info.error_message
    assert any("no checkpoint.safetensors is left" in note.message for note in ended.of(EventKind.NOTE))


async def test_sigterm_in_mid_job(fed: Federation, text: str, undisturbed: str) -> None:
    """The round that is open is closed, the process ends in its grace with status 0, and the next life goes on."""
    await restarted(fed)
    job = await submitted(fed, text, "terminated")
    await fed.event(job.job_id, EventKind.ROUND_OPENED, round_num=1)
    os.kill(fed.coordinator.pid, signal.SIGTERM)
    async with asyncio.timeout(LIMIT_S / 2):  # drain_s = 1, and the end of a process
        assert await fed.coordinator.wait() == 0
    assert {"coordinator stops"} <= {e["event"] for e in fed.coordinator.log}
    await restarted(fed)
    assert (await submitted(fed, text, "terminated")).job_id == job.job_id
    ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED
    assert await fed.model_sha256(ended) == undisturbed
