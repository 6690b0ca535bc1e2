"""What a job says while no rows come, and of rows that were left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed.federation.in_process import InProcessExchange
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed.methods.online.stream_step import StreamTold
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.journal import MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_server.methods.online.row_notes import Absences, GrownRounds, LeftOutNotes
from kernfed_testing.methods.online_clients import StreamClients, finding, stream_job, stream_rows


class Dry(InProcessExchange):
    """Streams that have no row at some of the questions, counted from 1."""

    def __init__(self, made: StreamClients, without: range) -> None:
        super().__init__(STEPS, made.jobs)
        self.without = without
        self.asked = 0

    async def ask(self, call: Any) -> Any:
        if not isinstance(call.request, PooledStepRequest):
            return await super().ask(call)
        self.asked += 1
        if self.asked not in self.without:
            return await super().ask(call)
        none = PooledStep(
            num_samples=0,
            ended=False,
            needs_whole=False,
            num_waiting=0,
            num_skipped=0,
            factor=np.zeros((call.request.num_kernels, 0)),
            evidence=0.0,
        )
        return dict.fromkeys(call.clients, none)


@pytest.mark.parametrize(("without", "told"), [(range(3, 5), 0), (range(3, 6), 1), (range(3, 20), 1)])
def test_a_job_names_those_whose_rows_it_waits_for(tmp_path: Path, without: range, told: int) -> None:
    """Once, when nobody has had a row three times in a row; then it goes on as if nothing had been."""
    made = StreamClients(tmp_path, {name: stream_rows(6, i) for i, name in enumerate(("a", "b"))})
    _, journal = made.run(stream_job(num_frequencies=3), exchange=Dry(made, without))
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE and "waiting" in e.message]
    assert [note.partition(";")[0] for note in notes] == ["waiting for rows of a, b"] * told
    assert {c["rows"] for c in finding(journal)["clients"].values()} == {6}


class Notes:
    """A run that keeps its notes."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def reply(num_skipped: int, *told: StreamTold, num_samples: int = 0) -> PooledStep:
    return PooledStep(
        num_samples=num_samples,
        ended=False,
        needs_whole=False,
        num_waiting=0,
        num_skipped=num_skipped,
        factor=np.zeros((3, 0)),
        evidence=0.0,
        told=told,
    )


def test_what_a_client_met_in_its_stream_is_noted_by_kind() -> None:
    """Counts by kind, a client of an earlier release without kinds, files that changed, and a wait for the disk."""
    run = Notes()
    notes = LeftOutNotes(cast("Run", run), 5.0)
    notes.note({"a": reply(3, StreamTold(text=2, width=1, rotated=1)), "b": reply(1)})
    notes.note({"a": reply(4, StreamTold(text=3, width=1, rotated=1, header=1, waits_for_disk=True))})
    notes.note({"a": reply(4, StreamTold(text=3, width=1, rotated=3, header=1, replaced=1))})
    assert run.said == [
        "a left out 3 rows of its stream so far: 2 with text or no finite number in place of a number, 1 with another "
        "number of cells than the header",
        "a: a file of its stream was rotated, and read to its end before the new one",
        "b left out 1 row of its stream so far: a value is faulty",
        "a: a line of its stream names the columns in another order, and holds for the rows below it",
        "a: its stream waits for disk; make space for its state folder",
        "a: a file of its stream was rotated, and read to its end before the new one (3 times so far)",
        "a: a file of its stream was cut off or replaced: the new one is read from its header, and rows at the end of "
        "the former one may be missing",
        "a: its stream goes on, there is disk again",
    ]


def test_rounds_that_grow_are_noted_with_their_rows() -> None:
    """From four times the stated rows on, and again when they have doubled; not of a client that states none."""
    run = Notes()
    grown = GrownRounds(cast("Run", run), {"a": 10, "b": 20})
    for round_num, rows in enumerate((10, 39, 40, 79, 690), 1):
        grown.note(round_num, {name: reply(0, num_samples=rows) for name in ("a", "b", "c")})
    assert [note.partition(":")[0] for note in run.said] == [
        "a took 40 rows for round 3, and not 10",
        "a took 690 rows for round 5, and not 10",
        "b took 690 rows for round 5, and not 20",
    ]
    assert all("`kernfed-client check-data` there names the columns" in note for note in run.said)


def test_a_mark_that_few_rows_have_makes_rounds_grow_and_is_noted(tmp_path: Path) -> None:
    """Of a client whose policy asks for four rows, with one mark in twenty rows; the other client has none."""
    rows = {name: stream_rows(160, i) for i, name in enumerate(("a", "b"))}
    rows["a"][0][:, 1] = np.arange(160) % 20 == 0
    _, journal = StreamClients(tmp_path, rows, min_rows=4).run(stream_job(num_frequencies=3))
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE and "rows for round" in e.message]
    assert [note.partition(" rows")[0] for note in notes] == ["a took 64"]


def test_a_job_names_those_that_its_rounds_go_on_without() -> None:
    """A client that has no session is named with the round; one that comes and goes ever less."""
    journal = MemoryJournal()
    absences = Absences(Run(cast("Any", None), journal))
    for round_num in range(1, 20):
        absences.note(round_num, frozenset("b" if round_num % 2 else "") | ({"c"} if round_num > 10 else set()))
    assert [e.message for e in journal.events] == [
        "b is not connected: round 1 goes on without it",
        "b is not connected: round 3 goes on without it (the 2. time)",
        "b is not connected: round 7 goes on without it (the 4. time)",
        "c is not connected: round 11 goes on without it",
        "b is not connected: round 15 goes on without it (the 8. time)",
    ]
