"""The audit log: one line per reply, chained, never rewritten, never holding numbers of the reply."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed.federation.messages.base import Kind
from kernfed.federation.messages.data import MeanEmbedding
from kernfed_client.daemon.audit import MAX_DIGEST_BYTES, AuditLog, verify

REPLY = MeanEmbedding(num_rows=9, feature_mean=np.array([3.14159, 2.71828]), target_mean=np.array([1.61803]))


def record(log: AuditLog, task: str = "t", body: bytes = b"body", num_bytes: int = 10) -> None:
    log.record(
        job_id="j1",
        task_id=task,
        step="data.mean_embedding",
        operator="ann",
        kinds=(Kind.MEAN_EMBEDDING,),
        reply=REPLY,
        header=b"header",
        body=[body],
        num_bytes=num_bytes,
        num_numbers=3,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_tells_what_left_without_its_numbers(tmp_path: Path) -> None:
    """A line names kinds, shapes, size and digest of a reply, none of its numbers, in a file for its owner only."""
    path = tmp_path / "state" / "audit.jsonl"
    log = AuditLog(path)
    record(log)
    log.close()
    [line] = lines(path)
    assert line["when"].endswith("+00:00")
    assert line["kinds"] == ["mean_embedding"]
    assert line["shapes"] == {"feature_mean": [2], "target_mean": [1]}
    assert (line["bytes"], line["sha256"]) == (10, hashlib.sha256(b"headerbody").hexdigest())
    assert "3.14159" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_digest_of_a_large_reply_is_left_out(tmp_path: Path) -> None:
    """A reply beyond the limit of digests is written down without one."""
    log = AuditLog(tmp_path / "audit.jsonl")
    record(log, num_bytes=MAX_DIGEST_BYTES + 1)
    log.close()
    assert lines(tmp_path / "audit.jsonl")[0]["sha256"] is None


def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Three runs of a client write one chain."""
    path = tmp_path / "audit.jsonl"
    for start in range(3):
        log = AuditLog(path)
        record(log, f"t{start}a")
        record(log, f"t{start}b")
        log.close()
    assert verify(path) == 6
    assert [line["task"] for line in lines(path)] == ["t0a", "t0b", "t1a", "t1b", "t2a", "t2b"]


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    """Lines of four threads that write at once are whole and chained."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)

    def many() -> None:
        for _ in range(50):
            record(log)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    log.close()
    assert verify(path) == 200


@pytest.mark.parametrize("change", ["edit", "remove", "insert", "swap"])
def test_a_change_breaks_the_chain(tmp_path: Path, change: str) -> None:
    """A line that was edited, removed, inserted or swapped is found."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for i in range(4):
        record(log, f"task-{i}")
    log.close()
    text = path.read_text().splitlines(keepends=True)
    changed = {
        "edit": [text[0], text[1].replace("task-1", "task-9"), *text[2:]],
        "remove": [text[0], *text[2:]],
        "insert": [text[0], text[0], *text[1:]],
        "swap": [text[0], text[2], text[1], text[3]],
    }[change]
    path.write_text("".join(changed))
    with pytest.raises(DataError, match=r"line [23] does not follow"):
        verify(path)


def test_a_line_torn_by_a_crash_is_kept_and_told(tmp_path: Path) -> None:
    """A torn line ends what came before, the next says so, and other damage is still found."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    record(log, "t1")
    record(log, "t2")
    log.close()
    path.write_bytes(path.read_bytes()[:-20])
    log = AuditLog(path)
    record(log, "t3")
    record(log, "t4")
    log.close()
    assert verify(path) == 4
    assert json.loads(path.read_text().splitlines()[2])["after_torn_line"] is True
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join([text[0], "broken\n", *text[2:]]))
    with pytest.raises(DataError, match="line 3 does not follow"):
        verify(path)


def test_a_lost_line_end_is_no_change(tmp_path: Path) -> None:
    """A log that lost its last byte, the end of a line, goes on with a whole line behind a whole one."""
    path = tmp_path / "audit.jsonl"
    for task in ("t1", "t2"):
        log = AuditLog(path)
        record(log, task)
        log.close()
        path.write_bytes(path.read_bytes()[:-1])
    assert verify(path) == 2
    assert "after_torn_line" not in path.read_text()


def test_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that did not fit is taken back, said, and may be written again."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    record(log, "t1")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:30]))
        with pytest.raises(OSError, match="No space left on device"):
            record(log, "t2")
    record(log, "t2")
    log.close()
    assert [line["task"] for line in lines(path)] == ["t1", "t2"]
    assert verify(path) == 2
