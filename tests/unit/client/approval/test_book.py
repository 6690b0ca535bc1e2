"""The book of jobs and decisions, as commands and the daemon share it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernfed.errors import ConfigError, UnknownJobError
from kernfed_client.approval.book import MAX_DECISIONS, Book, Decided, Entry, State, Word, find, user_name

JOB = Entry("demo-aa", "demo", "dkrr", "ann", "5a", "0f", "", "2026-11-30T10:00:00+00:00", "", asks=True)


def test_words_outlast_the_process_and_change_the_state(tmp_path: Path) -> None:
    """Each word is on the disk with its user, and the last one of its pair counts."""
    book, states = Book(tmp_path), []
    book.note(JOB)
    for word in (None, Word.PAUSE, Word.APPROVE, Word.RESUME, Word.REFUSE, Word.APPROVE):
        if word is not None:
            book.decide(JOB, word, "because")
        states.append(JOB.state(Book(tmp_path).decided(JOB.job), known=False))
    assert states == [State.ASKS, State.ASKS, State.PAUSED, State.RUNS, State.REFUSED, State.RUNS]
    words = book.decided(JOB.job).words
    assert [said.number for said in words] == [1, 2, 3, 4, 5]
    assert {(said.user, said.why) for said in words} == {(user_name(), "because")}
    assert book.entries() == [JOB]


def test_a_word_is_about_one_submission(tmp_path: Path) -> None:
    """What was said of a job says nothing of another one with its id, which its operator signed otherwise."""
    book = Book(tmp_path)
    book.note(JOB)
    book.decide(JOB, Word.APPROVE, "")
    other = replace(JOB, submission="77")
    book.decide(other, Word.PAUSE, "")
    assert [said.word for said in book.decided(JOB.job).words] == [Word.PAUSE]
    assert book.decided(JOB.job).submission == "77"


def test_a_plan_is_remembered_until_a_job_of_it_is_refused(tmp_path: Path) -> None:
    """`remember` makes the plan known, and a refusal forgets it; a job that runs by it needs no word."""
    book = Book(tmp_path)
    book.note(JOB)
    assert not book.knows(JOB.plan)
    book.decide(JOB, Word.APPROVE, "", remember=True)
    assert book.knows(JOB.plan)
    assert not book.knows("")
    assert replace(JOB, job="demo-bb").state(Decided(), known=True) is State.RUNS
    book.decide(JOB, Word.REFUSE, "no more")
    assert not book.knows(JOB.plan)


def test_the_words_of_a_job_are_bounded(tmp_path: Path) -> None:
    """Of more words than anybody says, the last are kept, and their numbers go on."""
    book = Book(tmp_path)
    book.note(JOB)
    book.decide(JOB, Word.PAUSE, "")
    path = next((book.folder / "decided").iterdir())
    line = path.read_text()
    [said] = book.decided(JOB.job).words
    many = ",".join(line[line.index("[") + 1 : line.index("]")] for _ in range(MAX_DECISIONS))
    path.write_text(f"{line[: line.index('[') + 1]}{many}{line[line.index(']') :]}")
    book.decide(JOB, Word.RESUME, "")
    words = book.decided(JOB.job).words
    assert (len(words), words[-1].word, words[-1].number) == (MAX_DECISIONS, Word.RESUME, said.number + 1)


def test_files_of_others_end_in_one_sentence(tmp_path: Path) -> None:
    """A folder that cannot be written and a damaged decision name the folder and the remedy; other jobs are listed."""
    book = Book(tmp_path / "none")
    assert book.entries() == []
    with pytest.raises(ConfigError, match="run this command as the user of the daemon"):
        book.decide(JOB, Word.PAUSE, "")
    book = Book(tmp_path)
    book.note(JOB)
    (book.folder / "jobs" / "torn.json").write_text('{"job": ')
    assert book.entries() == [JOB]
    book.decide(JOB, Word.PAUSE, "")
    next((book.folder / "decided").iterdir()).write_text("{")
    with pytest.raises(ConfigError, match="remove it, and say again what becomes of demo-aa"):
        book.decided(JOB.job)


def test_a_person_names_a_job_by_id_beginning_or_name() -> None:
    """A whole id counts before a name, of which one job may be live, and before a beginning, which has to be unique."""
    jobs = [
        replace(JOB, job=job, name=name) for job, name in (("x-1", "x"), ("x-2", "x"), ("y-10", "y"), ("y-11", "z"))
    ]
    assert [find(jobs, text).job for text in ("x-1", "y-10", "z", "y")] == ["x-1", "y-10", "y-11", "y-10"]
    with pytest.raises(UnknownJobError, match="x-1, x-2; give more letters"):  # of another operator, it may be
        find(jobs, "x")
    over = [replace(entry, over="succeeded") for entry in jobs[:2]]
    assert find([jobs[0], over[1]], "x").job == "x-1"
    assert find(over, "x").job == "x-2"
    with pytest.raises(UnknownJobError, match="y-10, y-11; give more letters"):
        find(jobs, "y-1")
    with pytest.raises(UnknownJobError, match="no job 'q\ufffd' asked"):
        find(jobs, "q\x1b")
