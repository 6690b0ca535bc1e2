"""Replies on disk: whole or not at all, bounded, and never under other terms than those they were computed under."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernfed.methods.probe.messages import Echo
from kernfed.v1 import task_pb2
from kernfed.wire.codec import decode, encode
from kernfed.wire.payload import INLINE_BYTES
from kernfed_client.daemon import reply_store
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_testing.properties import examples

SMALL = encode(Echo(num_rows=1, values=np.arange(4.0)))
LARGE = encode(Echo(num_rows=1, values=np.arange(INLINE_BYTES // 8 + 3, dtype=np.float64)))


def task(job_id: str, task_id: str, sha256: bytes = b"") -> task_pb2.Task:
    return task_pb2.Task(job_id=job_id, task_id=task_id, request_sha256=sha256)


def restored(folder: Path, terms: str = "") -> dict[str, Echo]:
    """What a new life of the daemon finds."""
    store = ReplyStore(folder, terms)
    found = {
        r.task_id: decode(Echo, r.payload.header, memoryview(b"".join(r.payload.segments()))) for r in store.restore()
    }
    store.close()
    return found


def filled(folder: Path) -> ReplyStore:
    """A store with two small replies and a large one."""
    store = ReplyStore(folder, "")
    assert store.restore() == []
    store.put(task("job", "s1"), SMALL, 0.5)
    store.put(task("job", "l1"), LARGE, 0.5)
    store.put(task("other", "s2"), SMALL, 0.5)
    return store


def test_found_again(tmp_path: Path) -> None:
    """Small and large replies come back as they were, whether the daemon ended well or not."""
    filled(tmp_path)
    found = restored(tmp_path)
    assert list(found) == ["s1", "s2", "l1"]
    np.testing.assert_array_equal(found["s1"].values, np.arange(4.0))
    np.testing.assert_array_equal(found["l1"].values, np.arange(INLINE_BYTES // 8 + 3))


def test_other_terms(tmp_path: Path) -> None:
    """What was computed under another policy is removed, not sent."""
    filled(tmp_path)
    assert restored(tmp_path, "another policy") == {}
    assert restored(tmp_path) == {}


def test_forgotten(tmp_path: Path) -> None:
    """Acknowledged large replies go at once, small ones with their job, and a job leaves nothing."""
    store = filled(tmp_path)
    assert store.is_file("l1")
    assert not store.is_file("s1")
    store.forget("l1")
    assert not list(tmp_path.rglob("*.reply"))
    store.put(task("job", "l2"), LARGE, 0.5)
    store.forget("s2")
    store.drop_job("job")
    assert restored(tmp_path) == {}
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) == 0


def test_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many small replies nor large ones fill the disk; those above the bound are not stored."""
    monkeypatch.setattr(reply_store, "MAX_JOURNAL_BYTES", 1000)
    monkeypatch.setattr(reply_store, "IDLE_JOURNAL_BYTES", 500)
    monkeypatch.setattr(reply_store, "MAX_STORED_BYTES", 3 * LARGE.body_size)
    store = ReplyStore(tmp_path, "")
    for i in range(50):
        store.put(task("job", f"s{i}"), SMALL, 0.0)
        store.put(task("job", f"l{i}"), LARGE, 0.0)
    assert len(list(tmp_path.rglob("*.reply"))) == 3
    assert next(tmp_path.rglob("journal")).stat().st_size <= 1000
    for i in range(50):
        store.forget(f"s{i}")
    assert next(tmp_path.rglob("journal")).stat().st_size == 0
    store.put(task("job", "again"), SMALL, 0.0)
    assert "again" in restored(tmp_path)


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails is told once, costs no reply that is there, and is used again when it works."""
    store = filled(tmp_path)
    [reply] = tmp_path.rglob("*.reply")

    def half(fd: int, data: bytes) -> int:
        return honest(fd, data[: len(data) // 2])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    honest = os.write
    with structlog.testing.capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        patch.setattr(os, "replace", full)
        store.put(task("job", "s3"), SMALL, 0.0)
        store.put(task("job", "l3"), LARGE, 0.0)
    assert [e["event"] for e in logs] == ["replies cannot be stored; if this daemon is killed, they are computed again"]
    store.put(task("job", "s4"), SMALL, 0.0)
    assert list(restored(tmp_path)) == ["s1", "s2", "s4", "l1"]
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"journal", reply.name}


def test_a_disk_that_lets_nothing_go_ends_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that is read-only by now replies are forgotten here, and a later life finds them."""
    store = filled(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        patch.setattr(os, "ftruncate", refuse)
        patch.setattr(reply_store, "IDLE_JOURNAL_BYTES", 0)
        for name in ("s1", "s2", "l1"):
            store.forget(name)
        store.drop_job("job")
        assert not store.is_file("l1")
    store.close()
    assert set(restored(tmp_path)) == {"s1", "s2", "l1"}


def test_another_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large reply of before a reboot may be damaged, and is not trusted."""
    filled(tmp_path)
    monkeypatch.setattr(reply_store, "boot_id", lambda: "another")
    assert list(restored(tmp_path)) == ["s1", "s2"]
    assert not list(tmp_path.rglob("*.reply"))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400), flip=st.integers(0, 400), junk=st.binary(max_size=64))
def test_damaged(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, junk: bytes) -> None:
    """Of a damaged journal or file, whole replies before the damage come back, and nothing false."""
    folder = tmp_path_factory.mktemp("store")
    filled(folder)
    for path in (next(folder.rglob("journal")), next(folder.rglob("*.reply"))):
        data = bytearray(path.read_bytes())
        if flip < len(data):
            data[flip if path.name == "journal" else -1 - flip] ^= 0x55
        path.write_bytes(bytes(data[: max(len(data) - cut, 0)]) + junk)
    for echo in restored(folder).values():
        np.testing.assert_array_equal(echo.values, np.arange(echo.values.size))
    store = ReplyStore(folder, "")
    store.restore()
    store.put(task("job", "new"), SMALL, 0.0)
    assert "new" in restored(folder)
