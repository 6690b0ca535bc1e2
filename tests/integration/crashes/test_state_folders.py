"""The folders that an earlier release left are read, and its jobs taken up: tests/golden/state-folders.tar.gz."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import tarfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytest_asyncio
from safetensors.numpy import load_file

import kernfed
from kernfed.artifact_names import CHECKPOINT
from kernfed.federation.events import EventKind, JobState
from kernfed.methods.registry import METHODS
from kernfed_client.daemon.audit_chain import find_files, verify
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.models.kept_models import find_kept_model, kept_models, load_kept_model
from kernfed_server.keeping.store import Store
from kernfed_testing.books import OWNER
from kernfed_testing.federation import COLUMNS, Federation
from kernfed_testing.methods.installed import STREAMING
from kernfed_testing.nodes import Node
from kernfed_testing.places import GOLDEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID: dict[str, Any] = json.loads((GOLDEN / "state-folders.json").read_text())
ENDED: dict[str, Any] = SAID["ended"]
OPEN: dict[str, Any] = SAID["interrupted"]
POINTS = pd.DataFrame(SAID["points"], columns=list(COLUMNS))
CLIENTS = ("a", "b", "c")
OWN = [(name, client) for name, job in ENDED.items() for client in job["own_scores"]]


class Inherited(Federation):
    """A federation on the folders of the earlier release, with certificates of its own."""

    def __init__(self, root: Path, left: Path) -> None:
        self._left = left / "clients"
        rows = {name: (self._left / name / "train.csv").read_text() for name in CLIENTS}
        settings = dict.fromkeys(CLIENTS, "[policy]\nmin_rows = 1")
        shutil.copytree(left / "data", root / "data")
        super().__init__(root, rows, settings=settings, coordinator="jobs_per_client = 2")

    def _make_coordinator(self) -> Node:
        # The registry of that release noted no books.
        with contextlib.closing(sqlite3.connect(self.root / "pki" / "registry.sqlite")) as db:
            db.execute("DELETE FROM about WHERE key = 'books'")
            db.commit()
        return super()._make_coordinator()

    def _write_client(self, name: str) -> None:
        super()._write_client(name)
        shutil.copytree(self._left / name / "state", self.client_folder(name) / "state")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the archive holds."""
    folder = tmp_path_factory.mktemp("left")
    with tarfile.open(GOLDEN / "state-folders.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(left: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """Coordinator and clients of this release on these folders."""
    async with Inherited(tmp_path_factory.mktemp("inherited"), left) as fed:
        yield fed


async def test_jobs_are_listed(fed: Federation) -> None:
    """Every job of before is listed with its state, its cohort and its rounds."""
    listed = {job.job_id: job for job in (await fed.operator.list_jobs()).jobs}
    assert {said["job_id"] for said in (*ENDED.values(), *OPEN.values())} <= listed.keys()
    for said in ENDED.values():
        job = listed[said["job_id"]]
        assert (job.state.value, job.round_num) == (said["state"], said["rounds"])
        assert (job.clients, job.submitted_by) == (CLIENTS, "ann")


@pytest.mark.parametrize("name", ENDED)
async def test_events_are_told(fed: Federation, name: str) -> None:
    """An ended job's events are all there, in order, with the metrics of its rounds."""
    events = await fed.operator.events(ENDED[name]["job_id"])
    assert [event.sequence for event in events] == list(range(1, ENDED[name]["num_events"] + 1))
    closed = [event.event for event in events if event.event.kind is EventKind.ROUND_CLOSED]
    assert len(closed) >= ENDED[name]["rounds"]
    assert all(event.metrics is not None for event in closed)


async def test_failures_are_told_with_their_reason(left: Path, tmp_path: Path) -> None:
    """A client's failure that was kept as "REASON: message" is read as reason and message."""
    shutil.copytree(left / "data", tmp_path / "data")
    said = next(iter(ENDED.values()))
    last = said["num_events"] + 1
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "coordinator.sqlite")) as db:
        db.execute(
            "INSERT INTO events (job_id, sequence, time, kind, round_num, step, client, message) "
            "VALUES (?, ?, 1.5, 'client-failed', 1, 'ridge.local_solve', 'a', 'INVALID_DATA: a.csv: row 3')",
            (said["job_id"], last),
        )
        db.commit()
    store = await Store.open(f"sqlite:///{tmp_path}/data/coordinator.sqlite", tmp_path / "data", OWNER)
    events = await store.events(said["job_id"])
    await store.close()
    assert (events[-1].sequence, events[-1].event.kind) == (last, EventKind.CLIENT_FAILED)
    assert (events[-1].event.reason, events[-1].event.message) == ("INVALID_DATA", "a.csv: row 3")
    assert not any(numbered.event.reason for numbered in events[:-1])


@pytest.mark.parametrize("name", ENDED)
async def test_artifacts_and_models(fed: Federation, tmp_path: Path, name: str) -> None:
    """Artifacts have the digests of before, and a model predicts the recorded numbers."""
    said = ENDED[name]
    assert {a.name: a.sha256 for a in await fed.operator.artifacts(said["job_id"])} == said["artifacts"]
    for path in await fed.operator.fetch(said["job_id"], tmp_path):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == said["artifacts"][path.name]
    assert ("model.safetensors" in said["artifacts"]) == (said["scores"] is not None)
    if said["scores"] is not None:
        scores = kernfed.load_model(tmp_path).predict_scores(POINTS)
        np.testing.assert_allclose(scores, said["scores"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in OPEN if name in METHODS])
async def test_interrupted_jobs_are_taken_up(fed: Federation, tmp_path: Path, name: str) -> None:
    """A job that was cut off goes on from its checkpoint and its clients' state, to the model of one left in peace.

    Not to the bit: the release that began it rounded means and deviations otherwise.
    """
    ended = await fed.end(OPEN[name]["job_id"])
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    assert "the coordinator was restarted" in {event.message for event in ended.of(EventKind.NOTE)}
    assert not ended.of(EventKind.CLIENT_FAILED)  # else a client had lost its state
    rounds = Counter(event.round_num for event in ended.of(EventKind.ROUND_CLOSED))
    assert rounds == Counter(range(1, ended.info.round_num + 1))
    text = OPEN[name]["text"]
    if name not in STREAMING:  # the rule of that release, by its name
        text = text.replace("[data]\n", '[data]\nsplit = "copies-together"\n')
    twin = await fed.run(text)
    models = [await _models(fed, job.info.job_id, tmp_path / job.info.job_id) for job in (ended, twin)]
    for taken_up, undisturbed in zip(*models, strict=True):
        arrays, expected = load_file(taken_up), load_file(undisturbed)
        assert arrays.keys() == expected.keys()
        for key, array in arrays.items():
            np.testing.assert_allclose(array, expected[key], rtol=1e-6, atol=1e-9)


async def _models(fed: Federation, job_id: str, folder: Path) -> list[Path]:
    """A job's models, fetched."""
    names = [a.name for a in await fed.operator.artifacts(job_id) if a.name.endswith(".safetensors")]
    names = [name for name in names if name != CHECKPOINT]  # how far it came, in words too
    assert names
    return sorted(await fed.operator.fetch(job_id, folder, names))


@pytest.mark.parametrize(("name", "client"), OWN)
async def test_models_that_clients_kept(left: Path, name: str, client: str) -> None:
    """A client's own model of before is found by its job and predicts the recorded numbers."""
    state = left / "clients" / client / "state"
    assert {ENDED[name]["job_id"] for name, owner in OWN if owner == client} <= kept_models(state).keys()
    scores = load_kept_model(find_kept_model(state, ENDED[name]["job_id"])).predict_scores(POINTS)
    np.testing.assert_allclose(scores, ENDED[name]["own_scores"][client], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("client", CLIENTS)
async def test_audit_log_goes_on(fed: Federation, left: Path, client: str) -> None:
    """The audit log of before is unbroken, and what leaves now is added to it."""
    for said in OPEN.values():
        await fed.end(said["job_id"])
    before = left / "clients" / client / "state" / "audit.jsonl"
    records = verify(before)
    assert records == len(before.read_text().splitlines())
    now = fed.client_folder(client) / "state" / "audit.jsonl"
    first, *_ = find_files(now)  # a month ended since
    assert first.read_bytes().startswith(before.read_bytes())
    assert verify(now) > records


@pytest.mark.parametrize("client", CLIENTS)
async def test_undelivered_replies(left: Path, tmp_path: Path, client: str) -> None:
    """Replies that were computed and not delivered are read from the journal of before."""
    (journal,) = (left / "clients" / client / "state" / "outbox").iterdir()
    terms = "the same terms"
    shutil.copytree(journal, tmp_path / hashlib.sha256(terms.encode()).hexdigest()[:16])
    store = ReplyStore(tmp_path, terms)
    replies = store.restore()
    store.close()
    assert replies
    assert {reply.job_id for reply in replies} & {said["job_id"] for said in OPEN.values()}
    assert all(reply.payload.header and reply.task_id.startswith(reply.job_id) for reply in replies)
