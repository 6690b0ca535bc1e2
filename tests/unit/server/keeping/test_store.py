"""The coordinator's store: what it keeps, and what a crash leaves; in an SQLite file and in PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import load_file

from kernfed.errors import DiskFullError, JobError, UnavailableError, UnknownJobError
from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics
from kernfed.jobs.info import ClientInfo, JobInfo, NumberedEvent
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.outcomes import ClientOutcome, Tally
from kernfed_server.keeping import database
from kernfed_server.keeping.checkpoints import write_checkpoint
from kernfed_server.keeping.schema import make_engine
from kernfed_server.keeping.store import Resumption, Store
from kernfed_server.keeping.store_rows import event_columns
from kernfed_testing.books import OWNER
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine import postgres

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def job(job_id: str = "a-111111", **changes: Any) -> JobInfo:
    facts = {"name": "a", "method": "probe", "state": JobState.RUNNING, "submitted_by": "ann", "submitted_at": NOW}
    return JobInfo(job_id, **{**facts, "clients": ("x", "y"), "job_toml": "name = 'a'", **changes})


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(url, tmp_path, OWNER)
    yield opened
    await opened.close()


async def reopened(store: Store, url: str, tmp_path: Path) -> Store:
    await store.close()
    return await Store.open(url, tmp_path, OWNER)


def rows_of(url: str, query: str) -> Sequence[sa.Row[Any]]:
    """Rows as another connection of ours reads them."""
    engine = make_engine(url)
    try:
        with engine.connect() as db:
            return db.execute(sa.text(query)).all()
    finally:
        engine.dispose()


async def kept(store: Store) -> Resumption:
    """The checkpoint of the job, which has one."""
    found = await store.load_checkpoint("a-111111")
    assert found is not None
    return found


async def test_a_job_reads_back_as_it_was_written(store: Store) -> None:
    """Every field of a job survives, to the microsecond."""
    info = job(started_at=NOW, round_num=3, num_rounds=9, error_reason="X", error_message="ünï\ncode")
    assert await store.submit(info, "") == (info, True)
    assert await store.find_job(info.job_id) == info


async def test_the_same_request_id_gets_the_first_job_per_operator(store: Store) -> None:
    """A repeated submission is one job; another operator's same id is another."""
    first, _ = await store.submit(job("a-111111"), "r1")
    assert await store.submit(job("a-222222"), "r1") == (first, False)
    assert (await store.submit(job("a-333333", submitted_by="bob"), "r1"))[1]
    assert len((await store.list_jobs(10)).jobs) == 2


async def test_a_beginning_of_an_id_is_enough_while_it_is_unique(store: Store) -> None:
    """Prefixes resolve; ambiguous, unknown and wildcard ones are refused."""
    for job_id in ("ab-111111", "ab-122222", "ab-1"):
        await store.submit(job(job_id), "")
    assert (await store.find_job("ab-12")).job_id == "ab-122222"
    assert (await store.find_job("ab-1")).job_id == "ab-1"
    with pytest.raises(UnknownJobError, match=r"may be any of .*ab-122222"):
        await store.find_job("ab-")
    for unknown in ("", "zz", "%", "ab_"):
        with pytest.raises(UnknownJobError):
            await store.find_job(unknown)


async def test_a_job_s_name_stands_for_the_newest_of_it(store: Store) -> None:
    """Beside jobs whose names go on from there, and many newer ones; an id comes before a name."""
    for job_id, name in [("cg-111111", "cg"), ("cg-222222", "cg"), *((f"cg-diff-{i}", "cg-diff") for i in range(8))]:
        await store.submit(job(job_id, name=name), "")
    assert (await store.find_job("cg")).job_id == "cg-222222"
    assert (await store.find_job("cg-diff")).job_id == "cg-diff-7"
    await store.submit(job("cg", name="other"), "")
    assert (await store.find_job("cg")).name == "other"
    with pytest.raises(UnknownJobError, match="may be any of"):
        await store.find_job("cg-d")


async def test_pages_cover_all_jobs_newest_first(store: Store) -> None:
    """Following page tokens shows each job once."""
    for i in range(7):
        await store.submit(job(f"j-{i}"), "")
    seen, before = [], None
    while True:
        page = await store.list_jobs(3, before)
        seen += [info.job_id for info in page.jobs]
        if not page.next_page_token:
            break
        before = int(page.next_page_token)
    assert seen == [f"j-{i}" for i in reversed(range(7))]


async def test_a_failure_keeps_its_reason_apart(store: Store) -> None:
    """Reason code and message of an event come back as they were written; an event without a reason has none."""
    await store.submit(job(), "")
    failed = JobEvent(EventKind.CLIENT_FAILED, 1, "ridge.local_solve", "x", "a.csv: row 3", "INVALID_DATA")
    missing = JobEvent(EventKind.CLIENT_MISSING, 1, "ridge.local_solve", "y", "no answer: late")
    for i, event in enumerate((failed, missing), 1):
        store.add_event("a-111111", NumberedEvent(i, NOW, event))
    assert [e.event for e in await store.events("a-111111")] == [failed, missing]


async def test_events_come_back_in_order_with_their_metrics(store: Store) -> None:
    """Queued events are visible to the next read, whatever the batching did."""
    await store.submit(job(), "")
    metrics = RoundMetrics({"global": {"auc": 0.9}}, {"x": {"local": {"auc": 0.8}}}, {"bound": 1e-9})
    sent = [
        NumberedEvent(i, NOW, JobEvent(EventKind.ROUND_CLOSED, i, metrics=metrics if i == 500 else None))
        for i in range(1, 2001)
    ]
    for event in sent:
        store.add_event("a-111111", event)
    assert await store.events("a-111111", limit=5000) == sent
    assert await store.events("a-111111", first=500, limit=2) == sent[499:501]


async def test_events_wait_for_a_disk_that_is_full(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is lost; reading goes on, the events that wait included, and who writes hears of the fault."""
    await store.submit(job(), "")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.add_event("a-111111", NumberedEvent(1, NOW, JobEvent(EventKind.NOTE, message="stored")))
    assert len(await store.events("a-111111")) == 1
    monkeypatch.setattr(database, "event_columns", broken)
    store.add_event("a-111111", NumberedEvent(2, NOW, JobEvent(EventKind.NOTE, message="waits")))
    store.add_event("a-111111", NumberedEvent(3, NOW, JobEvent(EventKind.ROUND_OPENED)))
    assert [e.event.message for e in await store.events("a-111111")] == ["stored", "waits", ""]
    assert [e.event.message for e in await store.events("a-111111", 2, kinds=[EventKind.NOTE])] == ["waits"]
    assert [e.event.message for e in await store.events("a-111111", limit=1)] == ["stored"]
    assert (await store.find_job("a-1")).job_id == "a-111111"
    with pytest.raises(DiskFullError, match="disk is full"):
        await store.update_job(job(round_num=2))
    monkeypatch.setattr(database, "event_columns", event_columns)
    await store.update_job(job(round_num=2))
    assert [tuple(row) for row in rows_of(url, "SELECT sequence FROM events ORDER BY sequence")] == [(1,), (2,), (3,)]
    assert [e.event.message for e in await store.events("a-111111")] == ["stored", "waits", ""]


async def test_events_that_are_being_written_are_read_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads while the next write is under way is told of what waits for the disk all the same."""
    await store.submit(job(), "")
    calls, under_way, gate = itertools.count(1), threading.Event(), threading.Event()

    def full(*_: object) -> None:
        if next(calls) == 2:
            under_way.set()
            assert gate.wait(LIMIT_S)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database, "event_columns", full)
    store.add_event("a-111111", NumberedEvent(1, NOW, JobEvent(EventKind.NOTE, message="waits")))
    reading = asyncio.ensure_future(store.events("a-111111"))
    writing = asyncio.ensure_future(store.update_job(job()))
    await asyncio.sleep(0)
    assert under_way.wait(LIMIT_S)  # the event loop goes on once the store writes again
    try:
        assert [e.event.message for e in await reading] == ["waits"]
    finally:
        gate.set()
    with pytest.raises(DiskFullError, match="disk is full"):
        await writing
    monkeypatch.setattr(database, "event_columns", event_columns)


async def test_an_event_whose_commit_was_not_acknowledged_counts_once(store: Store) -> None:
    """Written again, as after a connection that broke in the commit, it is there once."""
    await store.submit(job(), "")
    event = NumberedEvent(1, NOW, JobEvent(EventKind.NOTE, message="once"))
    for _ in range(2):
        store.add_event("a-111111", event)
        await store.update_job(job())
    assert await store.events("a-111111") == [event]


async def test_texts_of_peers_do_not_stop_the_store(store: Store) -> None:
    """NUL, and more than a column holds, is stored as far as it goes."""
    await store.submit(job(), "request\0id")
    store.add_event("a-111111", NumberedEvent(1, NOW, JobEvent(EventKind.NOTE, 1, "s" * 500, "c\0", "a\0b")))
    (event,) = await store.events("a-111111")
    assert (event.event.step, event.event.client, event.event.message) == ("s" * 64, "c\ufffd", "a\ufffdb")
    await store.save_clients([ClientInfo("va", software_version="v" * 1000, peer="\0", last_seen_at=NOW)])
    assert (await store.clients())["va"].software_version == "v" * 64
    with pytest.raises(UnknownJobError):
        await store.find_job("a-111111\0")


async def test_outcomes_of_a_round_are_kept_with_its_checkpoint(store: Store) -> None:
    """A round that is done again after a restart has the outcomes of the last time."""
    await store.submit(job(), "")
    first = {"x": Tally(2), "y": Tally(1, 1, 0, "STEP_FAILED: no")}
    again = {"x": Tally(1, missed=1)}
    await store.save_checkpoint(job(), Checkpoint(1, {}), {}, {"x": Tally(1)})
    await store.save_checkpoint(job(), Checkpoint(2, {}), {}, first)
    await store.save_checkpoint(job(), Checkpoint(2, {}), {}, again)
    assert await store.outcomes("a-111111") == [
        ClientOutcome(1, "x", Tally(1)),
        ClientOutcome(2, "x", Tally(1, missed=1)),
    ]


async def test_actions_of_operators_are_kept(store: Store, url: str) -> None:
    """Who submitted and who cancelled, in order; a repeated request is no second submission."""
    await store.submit(job(), "r1")
    await store.submit(job("a-222222"), "r1")
    await store.note_action("bob", "cancel", "a-111111")
    rows = rows_of(url, "SELECT operator, action, job_id FROM operator_actions ORDER BY ordinal")
    assert [tuple(row) for row in rows] == [("ann", "submit", "a-111111"), ("bob", "cancel", "a-111111")]


async def test_the_same_checkpoint_again_stays(store: Store, tmp_path: Path) -> None:
    """A round that is done again to the same bits does not delete its own file."""
    await store.submit(job(), "")
    for _ in range(2):
        await store.save_checkpoint(job(), Checkpoint(1, {"w": np.ones(3)}), {})
    assert (await kept(store)).checkpoint.round_num == 1
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


async def test_a_checkpoint_replaces_the_one_before(store: Store, tmp_path: Path) -> None:
    """One file per job is kept; dtypes, shapes and numbers without dimension come back."""
    await store.submit(job(), "")
    state: dict[str, Any] = {"w": np.arange(6.0).reshape(2, 3).T}
    state |= {"n": np.int64(7), "b": np.array([True]), "e": np.empty((0, 4))}
    for round_num in (1, 2):
        await store.save_checkpoint(job(), Checkpoint(round_num, state), {"x": {"s": round_num}})
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    back = await kept(store)
    assert (back.checkpoint.round_num, back.answers) == (2, {"x": {"s": 2}})
    for name, value in state.items():
        np.testing.assert_array_equal(back.checkpoint.state[name], value)
        assert back.checkpoint.state[name].dtype == np.asarray(value).dtype
    assert (await store.find_job("a-111111")).round_num == 2


async def test_a_crash_between_file_and_row_leaves_the_checkpoint_before(
    store: Store, url: str, tmp_path: Path
) -> None:
    """The file that no row names is swept up at the next start."""
    await store.submit(job(), "")
    await store.save_checkpoint(job(), Checkpoint(1, {"w": np.ones(3)}), {})
    folder = tmp_path / "checkpoints"
    write_checkpoint(folder, "a-111111", Checkpoint(2, {"w": np.zeros(3)}))
    (folder / "a-111111.3.x.safetensors.part").write_bytes(b"half")
    again = await reopened(store, url, tmp_path)
    back = await kept(again)
    assert back.checkpoint.round_num == 1
    np.testing.assert_array_equal(back.checkpoint.state["w"], np.ones(3))
    assert len(list(folder.iterdir())) == 1
    await again.close()


async def test_a_damaged_checkpoint_is_refused(store: Store, tmp_path: Path) -> None:
    """One changed byte is noticed; a missing file too."""
    await store.submit(job(), "")
    await store.save_checkpoint(job(), Checkpoint(1, {"w": np.ones(3)}), {})
    (path,) = (tmp_path / "checkpoints").iterdir()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(JobError, match="round 1 is damaged"):
        await store.load_checkpoint("a-111111")
    path.unlink()
    with pytest.raises(JobError, match="cannot be read"):
        await store.load_checkpoint("a-111111")


async def test_a_checkpoint_can_be_kept_as_a_file(store: Store, tmp_path: Path) -> None:
    """A job that is over leaves its state where it is told to, and then nothing in the store."""
    await store.submit(job(), "")
    await store.save_checkpoint(job(), Checkpoint(4, {"w": np.full(2, 0.5)}), {})
    await store.copy_checkpoint("a-111111", tmp_path / "kept.safetensors")
    np.testing.assert_array_equal(load_file(tmp_path / "kept.safetensors")["w"], np.full(2, 0.5))
    await store.drop_checkpoint("a-111111")
    assert await store.load_checkpoint("a-111111") is None
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("damage", ["gone", "changed"])
async def test_a_lost_checkpoint_is_not_copied(store: Store, tmp_path: Path, damage: str) -> None:
    """A file that is gone or changed is a fault of the job, which no wait for the disk mends; nothing is left of it."""
    await store.submit(job(), "")
    await store.save_checkpoint(job(), Checkpoint(4, {"w": np.full(2, 0.5)}), {})
    [path] = (tmp_path / "checkpoints").iterdir()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(JobError, match="checkpoint of round 4"):
        await store.copy_checkpoint("a-111111", tmp_path / "kept.safetensors")
    assert not (tmp_path / "kept.safetensors").exists()


async def test_unfinished_jobs_come_back_with_their_place_in_history(store: Store, url: str, tmp_path: Path) -> None:
    """Queued and running jobs, oldest first; finished ones stay finished."""
    for job_id, state in (("q-1", JobState.QUEUED), ("f-1", JobState.FAILED), ("r-1", JobState.RUNNING)):
        await store.submit(job(job_id, state=state), "")
    store.add_event("r-1", NumberedEvent(1, NOW, JobEvent(EventKind.NOTE)))
    store.add_event("r-1", NumberedEvent(2, NOW, JobEvent(EventKind.NOTE)))
    again = await reopened(store, url, tmp_path)
    assert [(s.info.job_id, s.last_sequence) for s in await again.unfinished_jobs()] == [("q-1", 0), ("r-1", 2)]
    await again.close()


async def test_clients_are_remembered_across_restarts(store: Store, url: str, tmp_path: Path) -> None:
    """The last word about a client counts; after a restart nobody is connected."""
    await store.save_clients([ClientInfo("va", True, ("old",), last_seen_at=NOW)])
    await store.save_clients([ClientInfo("va", True, ("heart",), ("s",), "cpu", "1", NOW, "peer", NOW)])
    again = await reopened(store, url, tmp_path)
    assert await again.clients() == {"va": ClientInfo("va", False, ("heart",), ("s",), "cpu", "1", NOW, "peer", NOW)}
    await again.close()


async def test_a_database_that_is_away_for_a_while(cluster: postgres.Cluster, tmp_path: Path) -> None:
    """While the server is down who asks hears of it; when it is back the same store goes on, with every event."""
    store = await Store.open(cluster.new_database(), tmp_path, OWNER)
    await store.submit(job(), "")
    cluster.stop("immediate")
    store.add_event("a-111111", NumberedEvent(1, NOW, JobEvent(EventKind.NOTE, message="kept")))
    with pytest.raises(UnavailableError, match="store cannot be used"):
        await store.update_job(job(round_num=1))
    cluster.start()
    assert [e.event.message for e in await store.events("a-111111")] == ["kept"]
    await store.close()


async def test_sqlite_is_in_wal_mode(tmp_path: Path) -> None:
    """Readers and the writer do not block each other, and commits reach the disk."""
    url = f"sqlite:///{tmp_path}/c.sqlite"
    await (await Store.open(url, tmp_path, OWNER)).close()
    assert rows_of(url, "PRAGMA journal_mode")[0][0] == "wal"
    assert rows_of(url, "PRAGMA synchronous")[0][0] == 2
