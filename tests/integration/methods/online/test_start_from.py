"""Jobs that go on from another one that is over: on streams, with each client's place in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.commands import run_command
from kernfed_testing.federation import COLUMNS, Ended, Federation

AB = ["a", "b"]


def stream_job(*, start_from: str = "", **settings: object) -> str:
    """A job on the rows of the clients' tables, one by one."""
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    return f"""
name = "rows"
seed = 3
start_from = {json.dumps(start_from)}
[method]
name = "online"
num_frequencies = 6
wait_s = 0.05
{lines}
[cohort]
clients = ["a", "b"]
min_fraction = 1.0
[data]
task = "regression"
target = "y"
features = {json.dumps(list(COLUMNS))}
"""


async def submitted(fed: Federation, text: str, folder: Path) -> str:
    """The id of a job that `kernfed job submit` submits."""
    (folder / "job.toml").write_text(text)
    where = ("--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}")
    done = await run_command("kernfed", "job", "submit", str(folder / "job.toml"), "--json", *where)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["job_id"])


async def left(fed: Federation, job: Ended, folder: Path) -> dict[str, Any]:
    """Arrays of the model of a job."""
    await fed.operator.fetch(job.info.job_id, folder)
    found: dict[str, Any] = load_file(folder / "online.safetensors")
    return found


async def test_a_stream_job_goes_on_where_another_stopped(tmp_path: Path) -> None:
    """Twenty rounds and the rest, in two jobs, learn what one job learns: each row once, to the same bits.

    The second names the first by its id; the coordinator is restarted in its midst.
    """
    settings = dict.fromkeys(AB, "[policy]\nmin_rows = 1")
    async with Federation(tmp_path / "fed", AB, settings=settings) as fed:
        whole = await fed.run(stream_job())
        first = await fed.run(stream_job(rounds=20))
        job_id = await submitted(fed, stream_job(start_from=first.info.job_id), tmp_path)
        await fed.event(job_id, EventKind.ROUND_CLOSED, round_num=25)
        await fed.coordinator.stop()
        await fed.start_coordinator()
        await fed.wait_connected(*AB)
        second = await fed.end(job_id)
        assert second.info.state is JobState.SUCCEEDED, second.info.error_message
        assert second.info.round_num == whole.info.round_num
        notes = [event.message for event in second.of(EventKind.NOTE)]
        assert any(f"goes on from job {first.info.job_id}, behind its round 20" in note for note in notes)
        assert not any("begin anew" in note or "was lost" in note for note in notes)
        assert not second.of(EventKind.CLIENT_FAILED)  # who was never prepared has not failed
        one, two = await left(fed, whole, tmp_path / "whole"), await left(fed, second, tmp_path / "second")
        assert one.keys() == two.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, two[name], err_msg=name)
        record = json.loads((tmp_path / "second" / "job.json").read_text())
        assert record["settings"]["start_from"] == first.info.job_id
