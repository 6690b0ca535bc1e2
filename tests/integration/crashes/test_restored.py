"""A coordinator that is restored from an older backup ends with the model of an undisturbed run."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
from pathlib import Path

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation

ABC = ["a", "b", "c"]
ROUNDS = 150
LIVES = 3
"""The backup is restored again where a machine stood still and a client was late: that is another job, and says so."""


async def test_replayed_rounds_are_answered_anew(tmp_path: Path) -> None:
    """Rounds that c missed and the backup does not know are asked again: each answers what is asked now."""
    async with Federation(tmp_path, ABC, processes=True) as fed:
        text = fed.job("fedavg", rounds=ROUNDS, local_steps=3, cohort_min_clients=2, cohort_deadline_s=5.0)
        jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in ABC], tmp_path / "state")
        alone = await asyncio.to_thread(simulate, parse_job(text), jobs, text=text, out=tmp_path / "simulated")
        assert alone.error is None
        undisturbed = hashlib.sha256((tmp_path / "simulated" / "model.safetensors").read_bytes()).hexdigest()

        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=3)
        await fed.coordinator.kill()
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        await fed.start_coordinator()
        await fed.wait_connected(*ABC)
        resumed = await fed.operator.get(job.job_id)  # a step of the preparation would wait for all
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=resumed.round_num + 1)
        os.kill(fed.clients["c"].pid, signal.SIGSTOP)
        try:
            missed = await fed.event(job.job_id, EventKind.CLIENT_MISSING, client="c")
            await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=missed.round_num + 1)
        finally:
            os.kill(fed.clients["c"].pid, signal.SIGCONT)
        for _ in range(LIVES):
            await fed.coordinator.kill()
            await asyncio.to_thread(shutil.rmtree, tmp_path / "data")
            shutil.copytree(tmp_path / "backup", tmp_path / "data")
            await fed.start_coordinator()
            ended = await fed.end(job.job_id)
            late = ended.of(EventKind.CLIENT_MISSING)
            if not late:
                break
        assert not late
        assert not ended.of(EventKind.CLIENT_FAILED)
        assert await fed.model_sha256(ended) == undisturbed
