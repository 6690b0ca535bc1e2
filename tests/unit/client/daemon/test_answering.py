"""Which tasks a client answers from memory."""

from __future__ import annotations

import asyncio
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from kernfed.errors import ApprovalError
from kernfed.methods.probe.messages import Echo
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.frames import MAX_TEXT
from kernfed.wire.outgoing import Outgoing
from kernfed_client.approval.book import Book, Decision, Entry, Word
from kernfed_client.approval.gate import Approvals, News
from kernfed_client.daemon.answering import Answering
from kernfed_client.daemon.tasks import Answered


class Learner:
    """A runner whose one step takes the next row of a stream, and keeps the rows learned up to each round."""

    step_names = ("learn",)
    later_fields = ()

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        """Rows learned after each round."""

    def moves_state(self, step: str) -> bool:
        return step == "learn"

    def incoming(self, task: task_pb2.Task) -> Any:
        return None

    def answer(self, task: task_pb2.Task, incoming: Any, wanted: Any) -> Answered:
        del incoming, wanted
        self.rows = {r: rows for r, rows in self.rows.items() if r < task.round}
        row = max(self.rows.values(), default=0) + 1
        self.rows[task.round] = row
        return Answered(encode(Echo(num_rows=1, values=np.array([float(row)]))), 0.0)


class AtOnce:
    """A worker without a thread of its own."""

    def submit(self, work: Any, done: Any) -> None:
        done(work(), None)


class Asking:
    """A client's tasks, and a coordinator that asks it for rounds."""

    def __init__(self) -> None:
        self.runner = Learner()
        self.tasks = answering(self.runner)

    def ask(self, round_num: int, words: str = "") -> int:
        """The row that the answer counts."""
        task = task_pb2.Task(task_id=f"job/{round_num}/learn", job_id="job", round=round_num, step="learn")
        task.request_sha256 = words.encode()
        before = dict(self.runner.rows)
        incoming = self.tasks.begin(task)
        if task.task_id in self.tasks.busy_task_ids:
            self.tasks.compute(task, incoming)  # type: ignore[arg-type]  # the runner takes none
        else:
            assert self.runner.rows == before
        answered = self.tasks._outbox._entries[task.task_id]
        assert answered.payload is not None
        self.tasks.acknowledged(task_pb2.TaskAck(task_id=task.task_id))
        return int(np.frombuffer(answered.payload.body())[0])


def answering(runner: Any) -> Answering:
    return Answering(runner, AtOnce())  # type: ignore[arg-type]  # a worker at once


@pytest.mark.parametrize("words", ["", "other"], ids=["as before", "in other words"])
def test_no_row_counts_twice_when_a_coordinator_falls_back(words: str) -> None:
    """Round 2 is computed anew from the state before it; the answers to 3 and 4 belonged to what came after."""
    asking = Asking()
    assert [asking.ask(r, f"of {r}") for r in (1, 2, 3, 4)] == [1, 2, 3, 4]
    again = [asking.ask(2, f"of 2{words}"), *(asking.ask(r, f"of {r}") for r in (3, 4, 5))]
    assert again == [2, 3, 4, 5]
    assert asking.runner.rows[5] == 5


def test_a_task_that_is_asked_again_at_once_is_answered_from_memory() -> None:
    """Its answer belongs to the state that there is."""
    asking = Asking()
    assert [asking.ask(r) for r in (1, 2, 2)] == [1, 2, 2]
    assert asking.runner.rows == {1: 1, 2: 2}


class Preparing:
    """A runner whose steps are prepared on top of each other, as a client's data are: each needs those before it."""

    step_names = ("read", "scale", "measure", "centre", "train")
    later_fields = ()
    setup = ("read", "scale", "centre")

    def __init__(self) -> None:
        self.done: list[str] = []

    def moves_state(self, step: str) -> bool:
        return step in self.setup

    def incoming(self, task: task_pb2.Task) -> Any:
        return None

    def answer(self, task: task_pb2.Task, incoming: Any, wanted: Any) -> Answered:
        del incoming, wanted
        is_setup = task.step in self.setup
        if is_setup:
            place = self.setup.index(task.step)
            self.done = [step for step in self.done if self.setup.index(step) < place] + [task.step]
        else:
            place = len(self.done) - 1
        return Answered(encode(Echo(num_rows=1, values=np.zeros(1))), 0.0, place, is_setup)


def test_a_setup_step_that_is_done_again_takes_later_ones_along() -> None:
    """Reading the data anew undoes what was done on top: it is done again too, and not answered from memory."""
    runner = Preparing()
    tasks = answering(runner)

    def ask(step: str) -> bool:
        """Whether it was computed."""
        task = task_pb2.Task(task_id=f"job/0/{step}", job_id="job", step=step, request_sha256=b"1")
        incoming = tasks.begin(task)
        computed = task.task_id in tasks.busy_task_ids
        if computed:
            tasks.compute(task, incoming)  # type: ignore[arg-type]  # the runner takes none
        tasks.acknowledged(task_pb2.TaskAck(task_id=task.task_id))
        return computed

    steps = ("read", "scale", "measure", "centre", "train")
    assert [ask(step) for step in steps] == [True] * 5
    assert [ask(step) for step in steps] == [False] * 5
    tasks._outbox.drop("job/0/scale")  # as one of many answers is that were given since
    assert [ask(step) for step in steps] == [False, True, True, True, True]
    assert runner.done == ["read", "scale", "centre"]


class Held:
    """A runner, and people at its site, who let nothing through until `free` is set."""

    step_names = ("learn",)
    later_fields = ()

    def __init__(self) -> None:
        self.free = False

    def moves_state(self, step: str) -> bool:
        return False

    def incoming(self, task: task_pb2.Task) -> Any:
        return None

    def held(self, job_id: str) -> bool:
        return not self.free

    def knows(self, job_id: str) -> bool:
        return True


class Failing(AtOnce):
    """A worker whose work is refused, since the job waits for people."""

    def submit(self, work: Any, done: Any) -> None:
        done(None, ApprovalError("not yet"))


def test_what_waits_for_people_is_asked_again_and_kept_by_nobody() -> None:
    """The coordinator hears of a decision, also of one that fell while the refusal was on its way; no line, no word."""
    site, frames = Held(), list[pb.ConnectRequest]()
    tasks = Answering(site, Failing(), approvals=site)  # type: ignore[arg-type]  # parts of each
    line: Any = types.SimpleNamespace(put=lambda frame, *_: frames.append(pb.ConnectRequest.FromString(frame)))
    task = task_pb2.Task(task_id="job/1/learn", job_id="job", step="learn", request_sha256=b"1")

    def ask() -> list[str]:
        frames.clear()
        tasks.begin(task)
        tasks.compute(task, None)  # type: ignore[arg-type]  # the runner takes none
        return [job for frame in frames for job in frame.heartbeat.decided_job_ids]

    assert (ask(), frames, dict(tasks.known)) == ([], [], {})  # there is no line
    tasks.connected(line)
    assert (ask(), frames[0].failure.reason) == ([], "AWAITS_APPROVAL")
    tasks.decided([News("job", refused=False)])
    assert list(frames[-1].heartbeat.decided_job_ids) == ["job"]
    tasks.acknowledged(task_pb2.TaskAck(task_id=task.task_id))
    site.free = True
    assert ask() == ["job"]
    assert list(tasks.known) == [task.task_id]
    tasks.disconnected()  # the next session asks it anew
    assert list(tasks.known) == []


def test_no_answer_of_a_job_that_was_refused_is_sent_again() -> None:
    """What was computed before the refusal, and not taken by the coordinator, is dropped."""
    tasks = answering(Learner())
    task = task_pb2.Task(task_id="job/1/learn", job_id="job", round=1, step="learn", request_sha256=b"1")
    tasks.begin(task)
    tasks.compute(task, None)  # type: ignore[arg-type]  # the runner takes none
    assert list(tasks.known) == [task.task_id]
    tasks.decided([News("other", refused=True), News("job", refused=False)])
    assert list(tasks.known) == [task.task_id]
    tasks.decided([News("job", refused=True)])
    assert list(tasks.known) == []


@pytest.mark.redteam
def test_acknowledgements_of_what_was_never_sent_fill_no_log() -> None:
    """A refusal is logged, and cut, where there is an answer that it can be of."""
    asking = Asking()
    asking.ask(1)
    with structlog.testing.capture_logs() as logs:
        for number in range(100):
            asking.tasks.acknowledged(task_pb2.TaskAck(task_id=f"job/9/{number}", refused="no" * 5000))
        assert logs == []
        asking.tasks.acknowledged(task_pb2.TaskAck(task_id="job/1/learn", refused="no" * 5000))
    assert [(entry["task_id"], len(entry["why"])) for entry in logs] == [("job/1/learn", MAX_TEXT)]


@pytest.mark.parametrize("word", [Word.REFUSE, Word.RESUME])
@pytest.mark.parametrize("restored", [False, True])
def test_a_reply_waits_for_the_line_of_a_decision(tmp_path: Path, word: Word, *, restored: bool) -> None:
    """While the log lacks a word on a job, no reply of it leaves, new or kept; then it leaves, or is dropped."""
    book, full = Book(tmp_path), True

    def record(entry: Entry, said: Decision) -> None:
        if full:
            raise OSError("no space")

    tasks = Answering(Learner(), AtOnce(), approvals=Approvals(book, "all", record))  # type: ignore[arg-type]
    asked = task_pb2.Task(task_id="job/1/look", job_id="job", step="look")
    tasks._approvals.admit(asked, None)  # type: ignore[union-attr]
    tasks._outbox.add_reply(asked, encode(Echo(num_rows=1, values=np.ones(1))), 0.0)
    book.decide(book.entries()[0], word, "")
    if restored:
        tasks._approvals = Approvals(book, "all", record)
        tasks._outbox._entries[asked.task_id].restored = True
    line = Outgoing()
    tasks.connected(line)
    assert tasks.begin(asked) is None
    assert line.backlog == 0
    with pytest.raises(OSError, match="no space"):
        tasks._approvals.news()  # type: ignore[union-attr]
    full = False
    news = tasks._approvals.news()  # type: ignore[union-attr]
    assert line.backlog == 0
    tasks.decided(news)
    left = pb.ConnectRequest.FromString(asyncio.run(line.next()) or b"") if line.backlog else None
    assert (left is not None and left.WhichOneof("frame") == "reply") is (word is Word.RESUME)
    assert tasks._outbox.holds(asked.task_id) is (word is Word.RESUME)


def test_a_reply_of_a_job_that_is_over_is_not_told_again(tmp_path: Path) -> None:
    """A run that comes after the end of a job goes through the gate, also where an answer is still kept."""
    approvals = Approvals(Book(tmp_path), "all", lambda _entry, _said: None)
    tasks = Answering(Learner(), AtOnce(), approvals=approvals)  # type: ignore[arg-type]
    asked = task_pb2.Task(task_id="job/1/look", job_id="job", step="look")
    approvals.admit(asked, None)
    tasks._outbox.add_reply(asked, encode(Echo(num_rows=1, values=np.ones(1))), 0.0)
    approvals.over("job", "succeeded")
    tasks.begin(asked)
    assert asked.task_id in tasks.busy_task_ids
    assert not tasks._outbox.holds(asked.task_id)
