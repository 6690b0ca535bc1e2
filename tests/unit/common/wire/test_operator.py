"""What operators are told, by releases that keep an error's reason apart and by those of before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kernfed.federation.events import EventKind, JobEvent
from kernfed.jobs.info import NumberedEvent
from kernfed.v1 import operator_service_pb2 as pb
from kernfed.wire.operator import event_from_proto, event_to_proto

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reason", "message"),
    [("INVALID_DATA", "a.csv: row 3"), ("STEP_FAILED", "STEP_FAILED: twice"), ("odd one", "words"), ("", ": words")],
)
def test_a_failure_arrives_with_its_reason(reason: str, message: str) -> None:
    """Reason and message are the same at the other end; the text is whole for an operator of before."""
    sent = NumberedEvent(3, NOW, JobEvent(EventKind.CLIENT_FAILED, 1, "s", "c", message, reason))
    on_the_wire = event_to_proto(sent)
    assert on_the_wire.message == (f"{reason}: {message}" if reason else message)
    assert event_from_proto(on_the_wire) == sent


@pytest.mark.parametrize(
    ("kind", "text", "reason", "message"),
    [
        (EventKind.CLIENT_FAILED, "INVALID_DATA: a.csv: row 3", "INVALID_DATA", "a.csv: row 3"),
        (EventKind.CLIENT_FAILED, "a.csv: row 3", "", "a.csv: row 3"),
        (EventKind.CLIENT_FAILED, "STEP_FAILED", "", "STEP_FAILED"),
        (EventKind.CLIENT_MISSING, "LATE: words", "", "LATE: words"),
        (EventKind.NOTE, "NOTE: words", "", "NOTE: words"),
    ],
)
def test_a_coordinator_of_before(kind: EventKind, text: str, reason: str, message: str) -> None:
    """The text of a failure is split where no reason came; what does not start with a code stays whole."""
    event = event_from_proto(pb.Event(sequence=1, time=Timestamp(seconds=1), kind=kind.value, message=text)).event
    assert (event.reason, event.message, event.text) == (reason, message, text)
