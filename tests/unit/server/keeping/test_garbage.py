"""`kernfed-coordinator gc` and `actions`: what nothing refers to goes, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobInfo, NumberedEvent
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.keeping.actions import last_actions
from kernfed_server.keeping.garbage import OldEvents, find_garbage, find_old_events, remove, remove_old_events
from kernfed_server.keeping.store import Store
from kernfed_testing.books import OWNER
from kernfed_testing.commands import run_command

DAY = timedelta(days=1)
FILES = "[files]\n'public.npz' = '{}'\n"


def named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make(path: Path, *, old: bool = True) -> Path:
    """A file of 10 bytes, two days old or new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456789")
    if old:
        for changed in (path, path.parent):
            os.utime(changed, (time.time() - 2 * 86400,) * 2)
    return path


def job(job_id: str, state: JobState, ago: timedelta | None = None, upload: str = "") -> JobInfo:
    now = datetime.now(UTC)
    ended = now - ago if ago is not None else None
    text = FILES.format(named(upload)) if upload else ""
    return JobInfo(job_id, "a", "probe", state, "ann", now - 30 * DAY, finished_at=ended, clients=("x",), job_toml=text)


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[Store]:
    """A store at work: one job runs and has a checkpoint, one ended yesterday, one ten days ago."""
    opened = await Store.open(url, tmp_path, OWNER)
    running = job("running", JobState.RUNNING, upload="wanted")
    await opened.submit(running, "")
    await opened.save_checkpoint(running, Checkpoint(3, {"weights": np.ones(4)}), {})
    await opened.submit(job("new", JobState.SUCCEEDED, DAY, upload="unwanted"), "")
    await opened.submit(job("old", JobState.SUCCEEDED, 10 * DAY), "")
    for name in ("running", "new", "old"):
        make(tmp_path / "jobs" / name / "artifacts" / "model.safetensors")
    yield opened
    await opened.close()


async def test_what_nothing_refers_to(url: str, store: Store, tmp_path: Path) -> None:
    """Old orphans go; what a job needs, what is new and what is no business of ours stays."""
    [kept] = (tmp_path / "checkpoints").iterdir()
    os.utime(kept, (0, 0))
    stay = [
        kept,
        make(tmp_path / "checkpoints" / "running.4.safetensors.part", old=False),
        make(tmp_path / "checkpoints" / "notes.txt"),
        make(tmp_path / "uploads" / named("wanted")),
        make(tmp_path / "uploads" / named("about to be submitted"), old=False),
        make(tmp_path / "jobs" / "just-made" / "artifacts.new" / "job.toml", old=False),
        *(tmp_path / "jobs" / name / "artifacts" / "model.safetensors" for name in ("running", "new", "old")),
    ]
    go = [
        make(tmp_path / "checkpoints" / "gone.1.0123.safetensors"),
        make(tmp_path / "checkpoints" / "gone.2.safetensors.part"),
        make(tmp_path / "uploads" / named("unwanted")),
        make(tmp_path / "uploads" / ".upload.abc"),
        make(tmp_path / "jobs" / "gone" / "artifacts" / "model.safetensors"),
        make(tmp_path / "jobs" / "new" / "artifacts.new" / "job.toml"),
    ]
    os.utime(tmp_path / "jobs" / "gone", (0, 0))
    os.utime(tmp_path / "uploads" / named("wanted"), (0, 0))
    found = find_garbage(url, tmp_path)
    assert sum(item.num_bytes for item in found) == 10 * len(go)
    assert all(path.exists() for path in go)
    remove(found)
    assert [path for path in go if path.exists()] == []
    assert [path for path in stay if not path.exists()] == []
    assert find_garbage(url, tmp_path) == []
    assert await store.load_checkpoint("running") is not None


@pytest.mark.usefixtures("store")
def test_old_artifacts_on_request(url: str, tmp_path: Path) -> None:
    """Only those of jobs that ended longer ago; a job that runs keeps what it has, whatever the number."""
    assert [g.path.name for g in find_garbage(url, tmp_path, older_than_days=5)] == ["old"]
    assert [g.path.name for g in find_garbage(url, tmp_path, older_than_days=0)] == ["new", "old"]


async def test_old_history_on_request(url: str, store: Store) -> None:
    """Of jobs that ended long ago what passes goes, and states, notes and the last round stay; others keep all."""
    kinds = [EventKind.STATE, *[EventKind.STEP_ASKED, EventKind.ROUND_CLOSED] * 3, EventKind.WAITING, EventKind.NOTE]
    for job_id in ("running", "new", "old"):
        for number, kind in enumerate(kinds, 1):
            store.add_event(job_id, NumberedEvent(number, datetime.now(UTC), JobEvent(kind, number)))
    before = await store.events("old")
    assert find_old_events(url, older_than_days=5) == [OldEvents("old", 6)]
    remove_old_events(url, older_than_days=5)
    assert find_old_events(url, older_than_days=5) == []
    left = await store.events("old")
    assert [e.event.kind for e in left] == [EventKind.STATE, EventKind.ROUND_CLOSED, EventKind.NOTE]
    assert left == [before[i] for i in (0, 6, 8)]
    assert [len(await store.events(job_id)) for job_id in ("running", "new")] == [9, 9]


@pytest.mark.usefixtures("store")
def test_actions(url: str) -> None:
    """Who submitted what, oldest first."""
    assert [(a.operator, a.action, a.job_id) for a in last_actions(url, 2)] == [
        ("ann", "submit", "new"),
        ("ann", "submit", "old"),
    ]
    assert [a.job_id for a in last_actions(url, 100, "run")] == ["running"]


def test_no_store(tmp_path: Path) -> None:
    """A wrong folder is told, and no database is made there."""
    with pytest.raises(ConfigError, match=r"no store at .*give the coordinator's file with --config"):
        find_garbage(f"sqlite:///{tmp_path}/c.sqlite", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("store", "url")
async def test_commands(tmp_path: Path) -> None:
    """From the command line, beside a coordinator at work: a dry run removes nothing; the numbers agree."""
    (tmp_path / "coordinator.toml").write_text('data = "."\n')
    orphan = make(tmp_path / "uploads" / named("unwanted"))
    told = [f"--config={tmp_path}/coordinator.toml"]
    dry = await run_command("kernfed-coordinator", "gc", *told, "--dry-run")
    assert dry.stdout.splitlines()[-1] == "1 would go, 0.00 MB"
    assert orphan.exists()
    wet = await run_command("kernfed-coordinator", "gc", *told, "--json", "--older-than", "5")
    said = json.loads(wet.stdout)
    assert (said["removed"], said["bytes"]) == (True, 20)
    assert [item["what"] for item in said["items"]] == ["upload", "artifacts"]
    assert not orphan.exists()
    actions = await run_command("kernfed-coordinator", "actions", *told, "--json")
    assert [a["job_id"] for a in json.loads(actions.stdout)] == ["running", "new", "old"]
