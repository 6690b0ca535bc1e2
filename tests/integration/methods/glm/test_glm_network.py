"""A generalised linear model over mutual TLS: that of one process."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from kernfed.federation.events import JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

NAMES = ["a", "b"]
JOB = """
name = "odds"
[method]
name = "glm"
family = "binomial"
errors = "robust"
[data]
task = "binary"
target = "ill"
features = ["age", "dose"]
classes = ["0", "1"]
"""


async def test_network_equals_one_process(tmp_path: Path) -> None:
    """Model and table have the same bytes, and clients hold the requests to the signed file."""
    async with Federation(tmp_path, NAMES) as fed:
        ended = await fed.run(JOB)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        digest = await fed.model_sha256(ended)
        (table,) = await fed.operator.fetch(ended.info.job_id, tmp_path / "fetched", ("coefficients-table.csv",))
        files = [fed.client_folder(name) / "client.toml" for name in NAMES]
        jobs = from_client_files(files, tmp_path / "state")
        await asyncio.to_thread(simulate, parse_job(JOB), jobs, text=JOB, out=tmp_path / "simulated")
    here = tmp_path / "simulated"
    assert digest == hashlib.sha256((here / "model.safetensors").read_bytes()).hexdigest()
    assert table.read_bytes() == (here / "coefficients-table.csv").read_bytes()
