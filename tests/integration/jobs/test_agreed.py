"""A client that was left out before round 1 does not come in through a restart of the coordinator."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation, make_csv

AB = ["a", "b"]
ROUNDS = 60


def shifted(name: str) -> str:
    """Rows of a client whose first column lies elsewhere."""
    header, *lines = make_csv(name).splitlines()
    rows = [line.split(",") for line in lines]
    return "\n".join([header, *(",".join([str(float(row[0]) + 5.0), *row[1:]]) for row in rows)]) + "\n"


@pytest.mark.parametrize("lengthscale", ['"median"', "1.5"])
async def test_a_client_left_out_for_its_file_stays_out(tmp_path: Path, lengthscale: str) -> None:
    """The file of c is put back, and the coordinator is killed and started: the model is that of a and b."""
    async with Federation(tmp_path, {"a": make_csv("a"), "b": make_csv("b"), "c": shifted("c")}, processes=True) as fed:
        settings = {"rounds": ROUNDS, "cohort_min_clients": 2, "cohort_preflight": "quorum", "cohort_deadline_s": 5.0}
        both, text = (f"{fed.job('fedavg', who, **settings)}lengthscale = {lengthscale}\n" for who in (AB, ()))
        twins = from_client_files([fed.client_folder(name) / "client.toml" for name in AB], tmp_path / "state")
        alone = await asyncio.to_thread(simulate, parse_job(both), twins, text=both, out=tmp_path / "simulated")
        assert alone.error is None
        undisturbed = hashlib.sha256((tmp_path / "simulated" / "model.safetensors").read_bytes()).hexdigest()

        data = fed.client_folder("c") / "train.csv"
        data.rename(data.with_suffix(".away"))
        job = await fed.submit(text)
        await fed.event(job.job_id, EventKind.ROUND_CLOSED, round_num=2)
        await fed.coordinator.kill()
        data.with_suffix(".away").rename(data)
        await fed.start_coordinator()
        await fed.wait_connected("a", "b", "c")
        ended = await fed.end(job.job_id)
        assert await fed.model_sha256(ended) == undisturbed
        notes = [e.message for e in ended.of(EventKind.NOTE)]
        assert any(note.startswith("c is left out of this job as before the restart") for note in notes)
        assert not any("same version of kernfed" in note for note in notes)
        assert not ended.of(EventKind.CLIENT_ANSWERED, "c")
