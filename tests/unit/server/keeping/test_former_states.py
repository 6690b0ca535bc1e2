"""Tests of `kernfed_server.keeping.former_states`: what jobs may begin from."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from kernfed.artifact_names import CHECKPOINT
from kernfed.errors import ConfigError
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.jobs.named_files import attach_files
from kernfed.methods.personalise.kept import ARTIFACT
from kernfed_server.keeping.former_states import refuse_made_up
from kernfed_simulation.federation import JOB_ID, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import regression_rows

pytestmark = pytest.mark.redteam

ROWS = regression_rows({"ant": 20, "bee": 20})


def job_text(start_from: str = "") -> str:
    return f"""
name = "test"
start_from = {json.dumps(start_from)}
report = false
[method]
name = "fedavg"
rounds = 1
[data]
task = "regression"
target = "y"
features = ["x0", "x1", "x2"]
[features]
kernel = "linear"
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Artifacts of a job, where a coordinator has them."""
    folder = tmp_path / "jobs" / JOB_ID / "artifacts"
    job = parse_job(job_text())
    folder.parent.mkdir(parents=True)
    assert simulate(job, from_rows(ROWS, (), tmp_path / "state"), text=job_text(), out=folder).error is None
    return folder


def submit(folder: Path, start_from: str) -> JobFile:
    """The job, where it may begin."""
    text = job_text(start_from)
    job, _, files = attach_files(parse_job(text), text, folder)
    refuse_made_up(job, files.__getitem__, folder / "jobs")
    return job


def test_what_a_job_left_here(tmp_path: Path, left: Path) -> None:
    """It is taken, also from a copy that was fetched."""
    shutil.copytree(left, tmp_path / "fetched")
    assert submit(tmp_path, "fetched").start_from == "fetched"


@pytest.mark.parametrize("array", ["weights", "run.agreement.mean"])
def test_a_state_that_was_changed(tmp_path: Path, left: Path, array: str) -> None:
    """Weights, or scales, of one's own choice are no job's, though all else is."""
    shutil.copytree(left, tmp_path / "fetched")
    arrays = load_file(left / CHECKPOINT)
    save_file({**arrays, array: arrays[array] * 1e6 + 1.0}, tmp_path / "fetched" / CHECKPOINT)
    with pytest.raises(ConfigError, match=f"not what job {JOB_ID} left .*foreign_states = true"):
        submit(tmp_path, "fetched")


def test_a_job_that_is_not_known_here(tmp_path: Path, left: Path) -> None:
    """One of a simulation, or of another coordinator."""
    shutil.move(left, tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="foreign_states = true"):
        submit(tmp_path, "elsewhere")


def test_what_a_job_kept_of_its_clients(tmp_path: Path) -> None:
    """Its bytes are those of an artifact here, or it is refused."""
    folder = tmp_path / "jobs" / "first-abc" / "artifacts"
    folder.mkdir(parents=True)
    (folder / ARTIFACT).write_bytes(b"kept")
    files = {hashlib.sha256(content).hexdigest(): content for content in (b"kept", b"made")}
    for digest, content in files.items():
        job = JobFile.model_validate(
            {
                "name": "later",
                "method": {"name": "personalise", "from_job": "first"},
                "data": {"task": "regression", "target": "y", "features": ["x0"]},
                "files": {"first": digest},
            }
        )
        if content == b"kept":
            refuse_made_up(job, files.__getitem__, tmp_path / "jobs")
        else:
            with pytest.raises(ConfigError, match="not what the job that it names left"):
                refuse_made_up(job, files.__getitem__, tmp_path / "jobs")
