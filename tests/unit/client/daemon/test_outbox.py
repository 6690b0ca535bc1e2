"""Answers are kept until the coordinator has them, and the small ones a while longer."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.methods.probe.messages import Echo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.outgoing import Body
from kernfed.wire.payload import INLINE_BYTES
from kernfed_client.daemon.outbox import KEPT_BYTES, KEPT_BYTES_OF_ALL_JOBS, KEPT_REPLIES, Outbox

SMALL = encode(Echo(num_rows=1, values=np.ones(4)))
LARGE = encode(Echo(num_rows=1, values=np.ones(INLINE_BYTES // 8 + 1)))
HUGE = encode(Echo(num_rows=1, values=np.ones(KEPT_BYTES // 8 + 1)))


def task(job_id: str, task_id: str, sha256: bytes = b"") -> task_pb2.Task:
    return task_pb2.Task(job_id=job_id, task_id=task_id, request_sha256=sha256)


def frame(outbox: Outbox, task_id: str) -> tuple[pb.ConnectRequest, Body | None]:
    data, body = outbox.frame(task_id)
    return pb.ConnectRequest.FromString(data), body


def test_undelivered_in_order_until_acknowledged() -> None:
    """Replies wait in the order of their tasks until each is acknowledged."""
    outbox = Outbox()
    for i in range(3):
        outbox.add_reply(task("job", f"t{i}"), SMALL, 0.5)
    assert outbox.undelivered() == ["t0", "t1", "t2"]
    outbox.acknowledge("t1")
    assert outbox.undelivered() == ["t0", "t2"]
    assert outbox.holds("t1")
    assert outbox.delivered("t1")
    assert not outbox.delivered("t0")
    outbox.acknowledge("unknown")


def test_frames() -> None:
    """A small reply rides in its frame, a large one beside it under a transfer number that no other has."""
    outbox = Outbox()
    outbox.add_reply(task("job", "small"), SMALL, 0.5)
    outbox.add_reply(task("job", "large"), LARGE, 0.5)
    sent, body = frame(outbox, "small")
    assert body is None
    assert outbox.transfer("small") == 0
    assert (sent.reply.task_id, sent.reply.compute_s) == ("small", 0.5)
    assert sent.reply.payload.inline_body == SMALL.body()
    sent, body = frame(outbox, "large")
    assert body is not None
    assert sent.reply.payload.transfer == body.transfer == outbox.transfer("large") > 0
    again, body = frame(outbox, "large")
    assert again.reply.payload.transfer != sent.reply.payload.transfer  # unique within a session
    assert outbox.transfer("large") == again.reply.payload.transfer
    assert outbox.transfer("unknown") == 0


def test_failure_is_kept_until_delivered_only() -> None:
    """A failed task that is asked again is tried again."""
    outbox = Outbox()
    outbox.add_failure("job", task_pb2.TaskFailure(task_id="t", reason="INVALID_DATA", message="row 3"))
    assert frame(outbox, "t")[0].failure.reason == "INVALID_DATA"
    outbox.acknowledge("t")
    assert not outbox.holds("t")


def test_delivered_replies_are_bounded() -> None:
    """Of the delivered replies of each job the newest are kept."""
    outbox = Outbox()
    for job in ("one", "other"):
        for i in range(KEPT_REPLIES + 5):
            outbox.add_reply(task(job, f"{job}/{i}"), SMALL, 0.0)
            outbox.acknowledge(f"{job}/{i}")
    assert not outbox.holds("one/4")
    assert outbox.holds("one/5")
    assert len(outbox.of_job("one")) == len(outbox.of_job("other")) == KEPT_REPLIES


def test_undelivered_are_never_dropped_for_others() -> None:
    """A reply that waits is kept however many others come and go."""
    outbox = Outbox()
    outbox.add_reply(task("job", "old"), SMALL, 0.0)
    for i in range(2 * KEPT_REPLIES):
        outbox.add_reply(task("job", f"t{i}"), SMALL, 0.0)
        outbox.acknowledge(f"t{i}")
    assert outbox.undelivered() == ["old"]


def test_huge_reply_goes_when_delivered() -> None:
    """A reply that is too large to keep is dropped once it is delivered."""
    outbox = Outbox()
    outbox.add_reply(task("job", "huge"), HUGE, 0.0)
    assert outbox.holds("huge")
    outbox.acknowledge("huge")
    assert not outbox.holds("huge")


@pytest.mark.parametrize(
    ("kept", "asked", "same"), [(b"x", b"x", True), (b"x", b"y", False), (b"", b"y", True), (b"x", b"", True)]
)
def test_an_answer_is_for_one_request(kept: bytes, asked: bytes, same: bool) -> None:
    """A task that comes again with another request is not answered; a side without digests counts on the id alone."""
    outbox = Outbox()
    outbox.add_reply(task("job", "t", kept), SMALL, 0.0)
    assert outbox.answers(task("job", "t", asked)) is same
    assert not outbox.answers(task("job", "other", asked))
    outbox.drop("t")
    assert not outbox.answers(task("job", "t", asked))


def test_drop_job() -> None:
    """The replies of an ended job go, those of others stay."""
    outbox = Outbox()
    outbox.add_reply(task("job", "t"), SMALL, 0.0)
    outbox.add_reply(task("other", "o"), SMALL, 0.0)
    outbox.drop_job("job")
    assert not outbox.holds("t")
    assert outbox.undelivered() == ["o"]


def test_replies_of_many_jobs_are_bounded_together() -> None:
    """Whoever names jobs without end, and takes every answer, fills no memory: the oldest replies go."""
    outbox = Outbox()
    num = KEPT_BYTES_OF_ALL_JOBS // LARGE.body_size + 5
    for i in range(num):
        outbox.add_reply(task(f"job{i}", f"t{i}"), LARGE, 0.5)
        outbox.acknowledge(f"t{i}")
    held = [i for i in range(num) if outbox.holds(f"t{i}")]
    assert held == list(range(num - len(held), num))
    assert KEPT_BYTES_OF_ALL_JOBS - LARGE.body_size < len(held) * LARGE.body_size <= KEPT_BYTES_OF_ALL_JOBS
