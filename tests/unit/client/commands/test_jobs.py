"""`kernfed-client jobs` as an administrator types it in a second terminal."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernfed.errors import ConfigError, JobError, UnknownJobError
from kernfed_client.approval.book import Book, Entry
from kernfed_client.cli import app

TEXT = """name = "demo"
[method]
name = "dkrr"
[data]
task = "regression"
target = "y"
features = ["age"]
"""
SINCE = "2026-11-30T10:00:00+00:00"
JOB = Entry("demo-aa", "demo", "dkrr", "ann", "5a", "0f", TEXT, SINCE, SINCE, asks=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "client.toml").write_text('[policy]\napprove = "known"\n')
    Book(tmp_path / "state").note(JOB)
    return tmp_path / "client.toml"


def run(config: Path, *arguments: str) -> Result:
    more = ("--config", str(config))
    return CliRunner().invoke(app, ["jobs", *arguments, *more], env={"COLUMNS": "160"})


def found(config: Path, *arguments: str) -> Any:
    done = run(config, *arguments, "--json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_jobs_are_listed_shown_and_decided_on(config: Path) -> None:
    """The list leads to the plan, and words change the state, each with the name of who said it."""
    told = run(config).stdout
    assert "demo-aa" in told
    assert "`kernfed-client jobs show demo-aa` says what it would send" in told
    told = run(config, "show", "demo").stdout
    for part in ("ann", "asks", "ridge.local_solve", "model_update", "the coordinator learns"):
        assert part in told
    assert [step["step"] for step in found(config, "show", "demo")["what_leaves"]["steps"] if step["surely"]]
    assert "demo-aa: runs; it is in the audit log" in run(config, "approve", "demo-a", "--remember").stdout
    assert found(config, "pause", "demo", "--why", "night")["state"] == "paused"
    assert found(config, "resume", "demo")["state"] == "runs"
    [job] = found(config)
    assert (job["known"], [said["decision"] for said in job["said"]]) == (True, ["approve", "pause", "resume"])
    assert found(config, "refuse", "demo", "--why", "no vote")["known"] is False
    assert "refuse by" in run(config, "show", "demo").stdout


def test_a_job_without_a_signature_and_one_of_another_release(config: Path) -> None:
    """What cannot be told is said so, and texts of peers steer no terminal."""
    book = Book(config.parent / "state")
    book.note(replace(JOB, job="old\x1b[2J-bb", name="old", submission="", plan="", job_toml=""))
    book.note(replace(JOB, job="new-cc", name="new", job_toml='name = "new"\n[method]\nname = "unheard-of"\n'))
    told = run(config).stdout + run(config, "show", "old").stdout + run(config, "show", "new").stdout
    assert "\x1b" not in told
    assert "ann (not proven)" in told
    assert told.count("what it would send is not known") == 2
    assert "unheard-of" in told


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("show", "other"), UnknownJobError, "no job 'other' asked this client for anything"),
        (("resume", "demo"), JobError, "is not paused"),
        (("pause", "done"), JobError, "is over"),
        (("refuse", "demo", "--why", "two\nlines"), ConfigError, "one line of at most 200 characters"),
        (("approve", "unsigned", "--remember"), JobError, "no plan to remember"),
    ],
)
def test_words_that_mean_nothing_end_in_one_sentence(
    config: Path, arguments: tuple[str, ...], error: type[Exception], words: str
) -> None:
    """A word on no job, on one that is over or not paused, and a reason of two lines change nothing."""
    book = Book(config.parent / "state")
    book.note(replace(JOB, job="done-bb", name="done", over=SINCE))
    book.note(replace(JOB, job="unsigned-cc", name="unsigned", plan="", submission=""))
    done = run(config, *arguments)
    assert isinstance(done.exception, error)
    assert words in str(done.exception)
    assert not (book.folder / "decided").exists()


def test_a_folder_of_another_user_names_the_remedy(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who may not read the state folder is told whose command it is."""

    def denied(_path: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    assert "run this command as the user of the daemon" in str(run(config).exception)
