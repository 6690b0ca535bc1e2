"""Statistics of columns over mutual TLS: those of one process, and no model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from kernfed.federation.events import JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

NAMES = ["a", "b"]
JOB = """
name = "columns"
[method]
name = "describe"
[data]
task = "binary"
target = "ill"
features = ["age", "dose", "pressure"]
classes = ["0", "1"]
"""


async def test_network_equals_one_process(tmp_path: Path) -> None:
    """The files have the same bytes, the finding is that of the table, and there is no model."""
    async with Federation(tmp_path, NAMES) as fed:
        ended = await fed.run(JOB)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        paths = await fed.operator.fetch(ended.info.job_id, tmp_path / "fetched", ())
        found = {path.name: path.read_bytes() for path in paths}
        files = [fed.client_folder(name) / "client.toml" for name in NAMES]
        jobs = from_client_files(files, tmp_path / "state")
        await asyncio.to_thread(simulate, parse_job(JOB), jobs, text=JOB, out=tmp_path / "simulated")
    assert "model.json" not in found
    for name in ("describe.json", "describe.csv"):
        assert found[name] == (tmp_path / "simulated" / name).read_bytes()
    told = json.loads(found["findings.json"])["describe"]
    assert told == json.loads(found["describe.json"])
    assert sorted(told["clients"]) == NAMES
