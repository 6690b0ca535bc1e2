"""A client that is killed with SIGKILL at the worst moments comes back, and is counted once."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kernfed.artifact_names import FINDINGS
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.job_file import parse_job
from kernfed_client.models.kept_models import find_kept_model
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Ended, Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import Process
from kernfed_testing.places import TESTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

AB = ["a", "b"]
POINTS = ["computing", "stored", "acknowledged"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])))
        async with Federation(tmp_path_factory.mktemp("killed"), AB, processes=True) as fed:
            yield fed


async def run_with_kill(fed: Federation, text: str, point: str, task_end: str) -> tuple[Ended, Counter[str]]:
    """Run a job in which `b` is killed at a point of a task and then started again; its computations by task end."""
    log = fed.root / "computed"
    log.unlink(missing_ok=True)
    await fed.clients["b"].kill()
    armed = Process(
        "kernfed_testing.crashes.killed_client", point, task_end, str(log), "run", cwd=fed.client_folder("b")
    )
    await armed.start()
    await armed.saw("session open")
    job = await fed.submit(text)
    async with asyncio.timeout(LIMIT_S):
        assert await armed.wait() == -9
    await armed.kill()
    fed.clients["b"] = Process(
        "kernfed_testing.crashes.killed_client", "never", "", str(log), "run", cwd=fed.client_folder("b")
    )
    await fed.clients["b"].start()
    ended = await fed.end(job.job_id)
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    answered = Counter((e.round_num, e.step) for e in ended.of(EventKind.CLIENT_ANSWERED, "b"))
    assert set(answered.values()) == {1}
    assert not ended.of(EventKind.CLIENT_FAILED)
    return ended, Counter(line.removeprefix(job.job_id) for line in log.read_text().split())


@pytest.fixture(scope="module")
def undisturbed(fed: Federation) -> str:
    """Digest of the model of a run in one process."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in AB], fed.root / "state")
    text = fed.job("fedavg", rounds=3, cohort_min_clients=2)
    assert simulate(parse_job(text), jobs, text=text, out=fed.root / "simulated").error is None
    return hashlib.sha256((fed.root / "simulated" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("point", POINTS)
async def test_killed_in_a_round(fed: Federation, undisturbed: str, point: str) -> None:
    """Killed in mid-step a round is computed again, later it is not; model and scores are an undisturbed run's."""
    task = "/2/fedavg.local_update"
    text = fed.job("fedavg", rounds=3, cohort_min_clients=2)
    ended, computed = await run_with_kill(fed, text, point, task)
    assert await fed.model_sha256(ended) == undisturbed
    left = [a.sha256 for a in await fed.operator.artifacts(ended.info.job_id) if a.name == FINDINGS]
    assert left == [hashlib.sha256((fed.root / "simulated" / FINDINGS).read_bytes()).hexdigest()]
    assert computed[task] == (2 if point == "computing" else 1)
    assert set((computed - Counter([task])).values()) == {1}


@pytest.mark.parametrize("point", POINTS)
async def test_killed_with_a_large_reply(fed: Federation, point: str) -> None:
    """So it is with a reply that is a file of its own and is sent in pieces; the file is gone when the job is over."""
    text = fed.job("probe", rounds=2, payload_bytes=6_000_000, cohort_min_clients=2)
    _, computed = await run_with_kill(fed, text, point, "/1/probe.echo")
    again = point == "computing"
    assert computed == {"/1/probe.echo": 1 + again, "/2/probe.echo": 1}
    async with asyncio.timeout(LIMIT_S):
        while list((fed.client_folder("b") / "state" / "outbox").rglob("*.reply")):
            await asyncio.sleep(0.05)


async def test_killed_in_preparation(fed: Federation, undisturbed: str) -> None:
    """A client killed while its data are prepared, its reply stored, takes the prepared state up again."""
    text = fed.job("fedavg", rounds=3, cohort_min_clients=2)
    ended, _ = await run_with_kill(fed, text, "stored", "/data.centre")
    assert await fed.model_sha256(ended) == undisturbed


async def test_killed_between_the_weights_and_training(fed: Federation) -> None:
    """A client that dies when it has told whom it learns from trains on from there; models that stay are the twin's."""
    text = fed.job("personalise", trainer="newton", rounds=3, cohort_min_clients=2)
    files = [fed.client_folder(name) / "client.toml" for name in AB]
    twin = fed.root / "twin"
    done = await asyncio.to_thread(simulate, parse_job(text), from_client_files(files, twin), text=text)
    assert done.error is None, done.error
    task = "/1/personalise.tell_weights"
    ended, computed = await run_with_kill(fed, text, "acknowledged", task)
    assert computed[task] == 1
    assert set(computed.values()) == {1}
    for name in AB:
        kept = find_kept_model(fed.client_folder(name) / "state", ended.info.job_id) / "model.safetensors"
        alone = twin / name / "model" / "model.safetensors"
        assert hashlib.sha256(kept.read_bytes()).digest() == hashlib.sha256(alone.read_bytes()).digest(), name
