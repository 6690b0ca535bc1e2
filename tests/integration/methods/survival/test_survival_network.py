"""Times to an event over mutual TLS: as in one process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kernfed.federation.events import JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

NAMES = ["a", "b"]
JOB = """
name = "curves"
[method]
name = "kaplan-meier"
event = "ill"
[data]
task = "regression"
target = "age"
features = ["ill", "dose"]
"""


async def test_network_equals_one_process(tmp_path: Path) -> None:
    """The file of the curves has the same bytes, and clients hold the requests to the signed file."""
    async with Federation(tmp_path, NAMES) as fed:
        ended = await fed.run(JOB)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        (table,) = await fed.operator.fetch(ended.info.job_id, tmp_path / "fetched", ("kaplan-meier.csv",))
        files = [fed.client_folder(name) / "client.toml" for name in NAMES]
        jobs = from_client_files(files, tmp_path / "state")
        await asyncio.to_thread(simulate, parse_job(JOB), jobs, text=JOB, out=tmp_path / "simulated")
    assert table.read_bytes() == (tmp_path / "simulated" / "kaplan-meier.csv").read_bytes()
