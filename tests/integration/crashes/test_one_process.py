"""One process per data folder and per state folder: a second one is told who is there, and changes nothing."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kernfed.federation.events import JobState
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S


async def refused(package: str, config: Path) -> str:
    """Start a second daemon by another copy of a file, and hand over what it says as it leaves."""
    command = (sys.executable, "-m", package, "run", "--config", str(config))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=config.parent, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(LIMIT_S):
        _, told = await process.communicate()
    assert process.returncode == 3
    assert b"Traceback" not in told
    return told.decode()


@pytest.mark.redteam
async def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """On other ports, or by another identity's file, it leaves with the first one's name, and the job goes on."""
    async with Federation(tmp_path, ["a", "b"], processes=True) as fed:
        spool = tmp_path / "data" / "spool"
        assert spool.is_dir()
        (spool / "marker").touch()
        second = tmp_path / "second.toml"
        second.write_text((tmp_path / "coordinator.toml").read_text())
        told = await refused("kernfed_server", second)
        assert "is the data folder of a coordinator that runs, and process" in told
        assert "stop that one" in told
        assert (spool / "marker").exists()

        config = fed.client_folder("a") / "second.toml"
        config.write_text((fed.client_folder("a") / "client.toml").read_text())
        assert "is the state folder of a client that runs, and process" in await refused("kernfed_client", config)

        ended = await fed.run(fed.job("fedavg", rounds=2, cohort_min_clients=2))
        assert ended.info.state is JobState.SUCCEEDED
