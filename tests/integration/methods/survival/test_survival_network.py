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
DATA = """
event = "ill"
[data]
task = "regression"
target = "age"
features = ["ill", "dose"]
"""
JOBS = {
    "kaplan-meier.csv": f'name = "curves"\n[method]\nname = "kaplan-meier"{DATA}',
    "coefficients-table.csv": f'name = "hazards"\n[method]\nname = "cox"\nerrors = "robust"{DATA}',
}


async def test_network_equals_one_process(tmp_path: Path) -> None:
    """Files of curves and of hazard ratios have the same bytes, and clients hold the requests to the signed file."""
    async with Federation(tmp_path, NAMES) as fed:
        tables = {}
        for name, job in JOBS.items():
            ended = await fed.run(job)
            assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
            (tables[name],) = await fed.operator.fetch(ended.info.job_id, tmp_path / "fetched" / name, (name,))
        files = [fed.client_folder(name) / "client.toml" for name in NAMES]
        for name, job in JOBS.items():
            jobs = from_client_files(files, tmp_path / "state" / name)
            await asyncio.to_thread(simulate, parse_job(job), jobs, text=job, out=tmp_path / "simulated" / name)
    for name, table in tables.items():
        assert table.read_bytes() == (tmp_path / "simulated" / name / name).read_bytes()
