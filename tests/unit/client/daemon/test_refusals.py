"""Refusals in the audit log: those that repeat are counted, and an hour has a bounded number of lines for them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kernfed.files import no_space
from kernfed.journal import append
from kernfed_client.daemon.audit import AuditLog
from kernfed_client.daemon.audit_chain import verify
from kernfed_client.daemon.refusals import MOST_LINES
from kernfed_testing.audit_lines import lines, refuse


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 10, 59, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_refusals_that_repeat_are_counted(tmp_path: Path) -> None:
    """A thousand alike have one line, and one with their number when the hour is over; lives of the daemon count on."""
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = AuditLog(path, now=clock)
    for _ in range(1000):
        refuse(log)
    assert [line.get("times", 1) for line in lines(path)] == [1]
    clock.now += timedelta(minutes=2)
    refuse(log)
    assert [line.get("times", 1) for line in lines(path)] == [1, 999, 1]
    for _ in range(8):
        refuse(log)
    again = AuditLog(path, now=clock)  # the first one died
    for _ in range(4):
        refuse(again)
    again.close()
    assert [line.get("times", 1) for line in lines(path)] == [1, 999, 1, 12]
    assert verify(path) == 4


def test_refusals_of_many_jobs_are_bounded(tmp_path: Path) -> None:
    """Jobs that a coordinator makes up have so many lines in an hour, after a restart too, and the others a count."""
    path, clock = tmp_path / "audit.jsonl", Clock()
    for life in range(3):
        log = AuditLog(path, now=clock)
        for i in range(100):
            refuse(log, job=f"job-{life}-{i}")
        if life < 2:
            continue
        clock.now += timedelta(hours=1)
        refuse(log, job="next")
        log.close()
    told = lines(path)
    assert len(told) == MOST_LINES + 2
    assert told[-2]["job"] == ""
    assert "beyond" in told[-2]["message"]
    assert 140 < told[-2]["times"] <= 300 - MOST_LINES  # a death of the daemon loses less than half
    assert told[-1]["job"] == "next"
    assert verify(path) == len(told)


@pytest.mark.redteam
def test_made_up_jobs_hide_no_refusal_of_a_proven_one(tmp_path: Path) -> None:
    """When the hour has no more lines for refusals of jobs that nobody signed, an operator's still has its own."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for i in range(MOST_LINES + 5):
        refuse(log, job=f"made-up-{i}")
    refuse(log, job="real", submission="ab" * 32)
    log.close()
    told = lines(path)
    assert len(told) == MOST_LINES + 2
    assert [(line["job"], line["operator"]) for line in told if line["submission"]] == [("real", "ann")]


def test_a_refusal_that_cannot_be_written_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the line is tried again, and is then the first of its kind."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    with monkeypatch.context() as full:
        full.setattr("kernfed_client.daemon.audit_chain.append", _no_space)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                refuse(log)
    refuse(log)
    log.close()
    assert [line.get("times", 1) for line in lines(path)] == [1]


def test_counts_before_a_full_disk_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two lines that are due at once the second finds no space: both are tried again, and the first is there."""
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = AuditLog(path, now=clock)
    for _ in range(5):
        refuse(log)
    clock.now += timedelta(hours=1)
    calls = itertools.count()

    def full_at_the_second(*given: Any) -> Any:
        return _no_space() if next(calls) == 1 else append(*given)

    with monkeypatch.context() as full:
        full.setattr("kernfed_client.daemon.audit_chain.append", full_at_the_second)
        with pytest.raises(OSError, match="No space"):
            refuse(log)
    refuse(log)
    log.close()
    assert [line.get("times", 1) for line in lines(path)] == [1, 4, 1]
    assert verify(path) == 3


def _no_space(*_: object) -> None:
    raise no_space()
