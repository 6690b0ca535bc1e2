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
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed.errors import DataError, UnavailableError
from kernfed.federation.messages.base import Kind, Request
from kernfed.federation.messages.catalogue import request_classes
from kernfed.federation.messages.data import (
    DataSchema,
    DescribeDataRequest,
    LearningTask,
    MeanEmbedding,
    MeanEmbeddingRequest,
    MissingRule,
)
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed_client.daemon.audit import MAX_DIGEST_BYTES, MAX_ITEMS, MAX_MESSAGE, MAX_TEXT, AuditLog, facts_of
from kernfed_client.daemon.audit_chain import verify
from kernfed_testing.audit_lines import lines, refuse
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.messages import messages

REPLY = MeanEmbedding(num_rows=9, feature_mean=np.array([3.14159, 2.71828]), target_mean=np.array([1.61803]))


def record(log: AuditLog, task: str = "t", body: bytes = b"body", num_bytes: int = 10) -> None:
    log.record(
        job_id="j1",
        task_id=task,
        step="data.mean_embedding",
        operator="ann",
        submission=None,
        revocations=None,
        kinds=(Kind.MEAN_EMBEDDING,),
        request=MeanEmbeddingRequest(num_features=2, num_outputs=1),
        request_sha256=bytes(32),
        reply=REPLY,
        header=b"header",
        body=[body],
        num_bytes=num_bytes,
        num_numbers=3,
    )


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
    assert line["request"] == {"num_features": 2, "num_outputs": 1}
    assert line["request_sha256"] == "00" * 32
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
        thread.join(LIMIT_S)
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


def test_a_line_torn_by_a_loss_of_power_is_kept_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn line ends what came before, the next says so, and other damage is still found."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    record(log, "t1")
    record(log, "t2")
    path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr("kernfed_client.daemon.audit_chain.boot_id", lambda: "the next run of the machine")
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


def test_two_lines_torn_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stops in mid-write twice leaves two torn lines; the log goes on, and other damage is found."""
    path = tmp_path / "audit.jsonl"
    for life in range(3):
        monkeypatch.setattr("kernfed_client.daemon.audit_chain.boot_id", lambda life=life: f"run {life}")
        log = AuditLog(path)
        record(log, f"t{life}")
        if life == 2:
            record(log, "t3")
        log.close()
        path.with_name("audit.end").write_bytes(b"")
        if life < 2:
            path.write_bytes(path.read_bytes()[:-20])
    assert verify(path) == 4
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*text[:2], "broken\n", text[3]]))
    with pytest.raises(DataError, match="line 4 does not follow"):
        verify(path)


@pytest.mark.parametrize("opened_again", [True, False])
def test_a_damaged_line_before_a_torn_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_again: bool
) -> None:
    """A whole line that is made unreadable is no torn line, whether the log went on behind the torn one or not."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    record(log, "t1")
    record(log, "t2")
    log.close()  # both are on the disk, and `audit.end` says so
    end = path.with_name("audit.end").read_bytes()
    log = AuditLog(path)
    record(log, "t3")
    log.close()
    path.write_bytes(path.read_bytes()[:-20])
    path.with_name("audit.end").write_bytes(end)
    monkeypatch.setattr("kernfed_client.daemon.audit_chain.boot_id", lambda: "the next run of the machine")
    if opened_again:
        log = AuditLog(path)
        record(log, "t4")
        record(log, "t5")
        log.close()
    whole = path.read_bytes()
    assert verify(path) == (5 if opened_again else 3)
    text = whole.splitlines(keepends=True)
    for damaged in (b"x" * (len(text[1]) - 1) + b"\n", text[1][:-20] + b"\n", b""):
        path.write_bytes(b"".join([text[0], damaged, *text[2:]]))
        with pytest.raises(DataError, match=r"above line \d was changed|are missing at the end"):
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


def test_a_log_that_is_closed_says_that_the_client_stops(tmp_path: Path) -> None:
    """A step that ends after its daemon was told to stop writes nothing, and is no fault of the disk."""
    log = AuditLog(tmp_path / "audit.jsonl")
    record(log)
    log.close()
    with pytest.raises(UnavailableError, match="this client stops"):
        record(log)
    assert verify(tmp_path / "audit.jsonl") == 1


def test_a_refusal_is_a_line_of_the_chain(tmp_path: Path) -> None:
    """What was refused is told with job, step, operator, method and reason, in the one chain of all lines."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    record(log)
    refuse(log, "x" * 10_000)
    record(log)
    log.close()
    assert verify(path) == 3
    line = lines(path)[1]
    assert (line["kind"], line["job"], line["operator"]) == ("refused", "j1", "ann")
    assert (line["step"], line["method"], line["reason"]) == ("fedavg.local_update", "dkrr", "REFUSED_BY_POLICY")
    assert line["request_sha256"] == "ab" * 32
    assert len(line["message"]) == MAX_MESSAGE


def test_a_line_tells_the_scalars_that_decide_what_an_answer_means(tmp_path: Path) -> None:
    """Two updates of the same shape differ in their lines by batch size and seed; weights are told by a digest."""
    weights = np.array([[3.14159], [2.71828]])
    request = GradientDescentRequest(ridge=0.5, weights=weights, learning_rate=0.1, num_steps=1, batch_size=1, seed=9)
    facts = facts_of(request)
    assert {k: facts[k] for k in ("ridge", "learning_rate", "num_steps", "batch_size", "seed")} == {
        "ridge": 0.5,
        "learning_rate": 0.1,
        "num_steps": 1,
        "batch_size": 1,
        "seed": 9,
    }
    assert facts["weights"] == {"shape": [2, 1], "sha256": hashlib.sha256(weights.tobytes()).hexdigest()}
    assert "3.14159" not in json.dumps(facts)


def test_facts_of_a_request_are_bounded() -> None:
    """Long texts and lists of a peer do not make a line long; the columns of a job are named up to a limit."""
    names = tuple(f"{i}" + "x" * 5000 for i in range(1000))
    schema = DataSchema(
        task=LearningTask.REGRESSION,
        target="y" * 5000,
        features=names,
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.2,
        seed=1,
    )
    facts = facts_of(DescribeDataRequest(dataset="d" * 5000, schema=schema))
    assert facts["dataset"] == "d" * MAX_TEXT
    assert facts["schema.features"]["items"] == 1000
    assert len(facts["schema.features"]["first"]) == MAX_ITEMS
    assert len(json.dumps(facts)) < 10_000


@pytest.mark.parametrize("cls", list(request_classes()), ids=lambda cls: cls.step)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_facts_of_every_request_fit_into_a_line(cls: type[Request[Any]], data: st.DataObject) -> None:
    """The scalars of any request are JSON, and few."""
    facts = facts_of(data.draw(messages(cls)))
    assert len(json.dumps(facts)) < 60_000
