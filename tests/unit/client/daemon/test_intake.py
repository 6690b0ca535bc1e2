"""What a coordinator may leave with a client at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.errors import PayloadTooLargeError, WireError
from kernfed.methods.probe.messages import EchoRequest
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import MAX_ID
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.intake import MAX_OPEN, MAX_OPEN_OF_JOB, Intake, check_names

MIB = 1 << 20


class Waiting:
    """A worker whose turns never come."""

    def __init__(self) -> None:
        self.withdrawn: list[int] = []

    def withdraw(self, turn: int) -> bool:
        self.withdrawn.append(turn)
        return True


def task(task_id: str, mib: float = 0.0, job_id: str = "j") -> task_pb2.Task:
    payload = encode(EchoRequest(values=np.ones(max(1, int(mib * MIB / 8)))))
    return task_pb2.Task(task_id=task_id, job_id=job_id, payload=payload_to_proto(payload, 1))


def receive(task: task_pb2.Task) -> IncomingPayload:
    return IncomingPayload(EchoRequest, task.payload, 1 << 30, {})


def intake(limit: int | None = None, available: int = 1 << 40) -> tuple[Intake, Any]:
    worker: Any = Waiting()
    return Intake(worker, limit, lambda: available), worker


def test_tasks_of_a_job_and_of_all_are_counted_with_the_answers_that_nobody_took() -> None:
    """A coordinator that leaves more is refused; one that takes its answers is not."""
    held, _ = intake()
    for number in range(MAX_OPEN_OF_JOB - 1):
        held.check_count("j", [])
        held.admit(task(f"j/{number}"), receive)
    held.check_count("j", ["other"])
    with pytest.raises(WireError, match="8 of one job"):
        held.check_count("j", ["j"])
    held.check_count("k", [])
    with pytest.raises(WireError, match="more than 32 tasks"):
        held.check_count("k", ["other"] * (MAX_OPEN - MAX_OPEN_OF_JOB + 1))


def test_a_body_without_room_is_refused_before_memory_is_taken() -> None:
    """All bodies together stay within `max_memory_bytes`; small ones are taken without a look."""
    held, _ = intake(limit=10 * MIB)
    held.admit(task("j/1", 6), receive)
    with pytest.raises(PayloadTooLargeError, match=r"12 MiB at once, and 10 MiB may be used.*max_memory_bytes"):
        held.admit(task("j/2", 6), receive)
    held.admit(task("j/3", 1), receive)
    held.leave("j/1")
    held.admit(task("j/2", 6), receive)


def test_without_a_limit_bodies_stay_within_nine_tenths_of_what_is_free() -> None:
    """What has arrived is counted by the system, what is still to come here."""
    held, _ = intake(available=20 * MIB)
    held.admit(task("j/1", 10), receive)
    with pytest.raises(PayloadTooLargeError, match="20 MiB at once, and 18 MiB"):
        held.admit(task("j/2", 10), receive)


def test_what_waits_for_its_turn_goes_at_once_when_it_is_cancelled() -> None:
    """Its body is let go, and it leaves the queue."""
    held, worker = intake()
    asked = task("j/1", 0.01)
    incoming = held.admit(asked, receive)
    found = held.find(asked)
    assert found is not None
    found.turn = 7
    held.leave("j/1")
    assert worker.withdrawn == [7]
    assert incoming._buffer is None
    assert "j/1" not in held


def test_a_name_without_end_is_refused() -> None:
    """Ids are kept for as long as their jobs are."""
    check_names("j" * MAX_ID)
    with pytest.raises(WireError, match="more than 256 characters"):
        check_names("a", "j" * (MAX_ID + 1))
