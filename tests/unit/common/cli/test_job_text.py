"""Words and lines of `kernfed job`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kernfed.cli.job_text import client_table, duration_text, event_line, rounds_text, update_json
from kernfed.cli.operator_options import find_identity
from kernfed.cli.watching import Progress, plain_lines, render
from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, JobEvent, JobState, RoundMetrics
from kernfed.jobs.info import JobInfo, JobUpdate, NumberedEvent
from kernfed.wording import clean

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
METRICS = RoundMetrics(
    {"global": {"auc": 0.87654321, "accuracy": 0.8, "mse": 0.1}, "local": {"auc": 0.8}},
    {"va": {"global": {"auc": 0.7}, "local": {"accuracy": 0.5}}},
    {"relative_distance_bound": 1e-9},
)


def job(state: JobState = JobState.RUNNING, **changes: Any) -> JobInfo:
    facts = {"submitted_by": "ann", "submitted_at": NOW, "clients": ("a", "va"), "num_rounds": 9, "round_num": 2}
    return JobInfo("demo-abc234", "demo", "newton", state, **{**facts, **changes})


def event(kind: EventKind, sequence: int = 1, **facts: Any) -> NumberedEvent:
    return NumberedEvent(sequence, NOW, JobEvent(kind, **facts))


async def stream(*updates: JobUpdate) -> AsyncIterator[JobUpdate]:
    for update in updates:
        yield update


def said(numbered: NumberedEvent, num_rounds: int = 0) -> str:
    """The line of an event that has one."""
    line = event_line(numbered, num_rounds)
    assert line is not None
    return line


def test_events_in_a_line_each() -> None:
    """Failures name client and step; what is told in passing gets no line."""
    failed = event(EventKind.CLIENT_FAILED, client="va", step="newton.gradient", reason="X", message="holds NaN")
    line = said(failed)
    assert line.endswith("va failed newton.gradient: X: holds NaN")
    line = said(event(EventKind.ROUND_CLOSED, round_num=3, metrics=METRICS), 9)
    expected = "round 3/9  global auc 0.8765, accuracy 0.8 | local auc 0.8 | relative_distance_bound 1e-09"
    assert line.endswith(expected)
    assert event_line(event(EventKind.STEP_ASKED)) is None
    assert said(event(EventKind.WAITING)).endswith("no longer waiting")


async def test_a_client_that_is_away_has_one_line_until_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Two steps a round miss it; metrics say of how many clients they are, model by model."""
    missed = [event(EventKind.CLIENT_MISSING, client="va", step="s", round_num=i) for i in (1, 1, 2, 2, 3, 7, 7)]
    of_one = RoundMetrics({"global": {"auc": 0.8}, "local": {"auc": 0.7}}, {"a": {"global": {"auc": 0.8}}})
    closed = event(EventKind.ROUND_CLOSED, 9, round_num=7, metrics=of_one)
    ended = JobUpdate(event(EventKind.STATE, 10, message="succeeded"), job(JobState.SUCCEEDED))
    await plain_lines(stream(JobUpdate(job=job()), *map(JobUpdate, [*missed, closed]), ended))
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "va missed s" in line]) == 2
    assert lines[-2].endswith("round 7/9  global auc 0.8 (1 of 2 clients) | local auc 0.7")


def test_rounds_of_several_models_say_so() -> None:
    """A method that trains models in turn counts the rounds of all of them, in a list too."""
    assert rounds_text(job()) == "2/9"
    assert rounds_text(job(settings={"method": {"rounds": 9}})) == "2/9"
    in_turn = job(settings={"method": {"rounds": 3}, "data": {"target": "y"}}, job_toml="[method]")
    assert rounds_text(in_turn) == rounds_text(in_turn.in_list()) == "2/9 (3 models in turn, up to 3 rounds each)"
    assert (in_turn.in_list().job_toml, "data" in in_turn.in_list().settings) == ("", False)
    assert rounds_text(job(num_rounds=0)) == "2"


def test_a_job_that_is_done_lacks_no_round() -> None:
    """One that succeeded early, or without one of its models, does not look as if rounds were missing."""
    in_turn = {"settings": {"method": {"rounds": 3}}}
    assert rounds_text(job(JobState.SUCCEEDED, round_num=6, **in_turn)) == "6 (at most 9)"
    assert rounds_text(job(JobState.SUCCEEDED, round_num=9)) == "9/9"
    assert rounds_text(job(JobState.FAILED)) == "2/9"


def test_text_from_elsewhere_cannot_steer_the_terminal() -> None:
    """Escape sequences and carriage returns are made visible."""
    assert clean("\x1b[2Jgone\r\x9b1m") == "�[2Jgone��1m"
    assert "\x1b" not in said(event(EventKind.NOTE, message="\x1b]0;title\x07"))


async def test_a_watch_says_at_once_what_the_job_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Whom it waits for, or who prepares; then each step before round 1, but no more than twenty lines of these."""
    asked = JobUpdate(event(EventKind.STEP_ASKED, 0, step="data.describe", message="2 clients"))
    ended = JobUpdate(event(EventKind.STATE, 10, message="succeeded"), job(JobState.SUCCEEDED))
    await plain_lines(stream(JobUpdate(job=job(round_num=0)), *[asked] * 30, ended))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "running, before round 1: a, va read and check their data, and agree"
    assert [line.split("  ", 1)[1] for line in lines[2:-1]] == [
        "before round 1: data.describe, asked of 2 clients"
    ] * 20
    await plain_lines(stream(JobUpdate(job=job(JobState.QUEUED, waiting_for="waiting: 1 of 2 clients")), ended))
    assert capsys.readouterr().out.splitlines()[1] == "queued, waiting: 1 of 2 clients"


async def test_piped_output_has_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Quiet rounds are thinned out, measured ones and the last are not."""
    quiet = [JobUpdate(event(EventKind.ROUND_CLOSED, i, round_num=i, metrics=RoundMetrics())) for i in range(1, 9)]
    ended = await plain_lines(
        stream(
            JobUpdate(job=job()),
            *quiet,
            JobUpdate(event(EventKind.ROUND_CLOSED, 9, round_num=9, metrics=METRICS)),
            JobUpdate(event(EventKind.STATE, 10, message="succeeded after round 9"), job(JobState.SUCCEEDED)),
        )
    )
    assert ended.state is JobState.SUCCEEDED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job demo-abc234 (newton), submitted by ann"
    assert len(lines) == 4
    assert "round 9/9  global auc 0.8765" in lines[2]
    assert lines[3].endswith("succeeded after round 9")


def test_the_live_display_shows_who_answered() -> None:
    """Round, step, answers, metrics, notes; markup in names is text."""
    from rich.console import Console

    progress = Progress()
    for update in (
        JobUpdate(job=job()),
        JobUpdate(event(EventKind.STEP_ASKED, 0, step="newton.gradient", message="2 clients")),
        JobUpdate(event(EventKind.CLIENT_ANSWERED, 0, step="newton.gradient", client="va")),
        JobUpdate(event(EventKind.NOTE, 4, message="[red]note[/red]")),
        JobUpdate(event(EventKind.ROUND_CLOSED, 5, round_num=3, metrics=METRICS)),
    ):
        progress.take(update)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(progress))
    console.file.close()
    text = console.export_text()
    for wanted in (
        "demo-abc234",
        "newton.gradient",
        "answered 1/2",
        "● va",
        "○ a",
        "3/9",
        "global  auc 0.8765",
        "[red]",
    ):
        assert wanted in text, wanted


def test_json_lines_hold_everything() -> None:
    """An update as JSON values."""
    value = update_json(JobUpdate(event(EventKind.ROUND_CLOSED, 7, round_num=3, metrics=METRICS), job()))
    assert value["event"]["sequence"] == 7
    assert value["event"]["metrics"]["clients"]["va"]["global"] == {"auc": 0.7}
    assert value["job"]["state"] == "running"


def test_the_table_sets_local_against_global() -> None:
    """Pooled numbers come last; what was not measured is empty."""
    columns, rows = client_table(METRICS)
    assert columns[:3] == ["client", "auc global", "auc local"]
    assert rows[0][:3] == ["va", "0.7", ""]
    assert rows[-1][:3] == ["(all rows)", "0.8765", "0.8"]


def test_small_words() -> None:
    """Settings and durations as a person reads them."""
    assert duration_text(job(started_at=NOW), NOW + timedelta(seconds=3725)) == "1 h 02 min"
    assert duration_text(job(started_at=NOW), NOW + timedelta(seconds=61)) == "1 min 01 s"
    assert duration_text(job(), NOW) == ""


def test_the_operators_identity_is_found_or_asked_for(tmp_path: Path) -> None:
    """One in ./pki is taken; several, or none, are a question to the caller."""
    home = tmp_path / "home"
    with pytest.raises(ConfigError, match="KERNFED_IDENTITY"):
        find_identity(None, tmp_path, home)
    (home / ".kernfed" / "operator").mkdir(parents=True)
    assert find_identity(None, tmp_path, home) == home / ".kernfed" / "operator"
    (tmp_path / "pki" / "operator-ann").mkdir(parents=True)
    assert find_identity(None, tmp_path, home) == tmp_path / "pki" / "operator-ann"
    (tmp_path / "pki" / "operator-bob").mkdir()
    with pytest.raises(ConfigError, match="several operators"):
        find_identity(None, tmp_path, home)
    assert find_identity(home, tmp_path, home) == home
