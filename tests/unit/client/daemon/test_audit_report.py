"""`kernfed-client audit`: sums of the log by job and kind, and the first line that breaks the chain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kernfed.errors import ConfigError, DataError, UnknownJobError
from kernfed.federation.messages.base import Kind
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed_client.cli import app
from kernfed_client.daemon.audit import AuditLog
from kernfed_client.daemon.audit_chain import verify
from kernfed_client.daemon.audit_report import audit, summarise
from kernfed_testing.forked import run_module


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A client file whose state holds a log of two jobs."""
    config = tmp_path / "client.toml"
    config.write_text('device = "cpu"\n')
    log = AuditLog(tmp_path / "state" / "audit.jsonl")
    entries: list[tuple[str, str, tuple[Kind, ...], int]] = [
        ("job-a", "data.describe", (Kind.SUMMARY,), 0),
        ("job-a", "newton.gradient", (Kind.GRADIENT,), 20),
        ("job-b", "probe.echo", (), 5),
        ("job-a", "newton.gradient", (Kind.GRADIENT,), 20),
        ("job-a", "newton.step", (Kind.GRADIENT,), 2),
    ]
    for job, step, kinds, size in entries:
        log.record(
            job_id=job,
            task_id=f"{job}/1/{step}",
            step=step,
            operator="ann",
            submission="5e41" * 16,
            revocations=None,
            kinds=kinds,
            request=EchoRequest(values=np.ones(2)),
            request_sha256=b"\xab" * 32,
            reply=Echo(num_rows=1, values=np.ones(size)),
            header=b"head",
            body=[],
            num_bytes=8 * size + 4,
            num_numbers=size,
        )
    log.close()
    return config


def test_sums_by_job_and_kind(client: Path) -> None:
    """Bytes, numbers and replies add up per job and kind, in the order in which jobs came."""
    report = audit(client, check_chain=True)
    assert report.verified
    assert [job.job for job in report.jobs] == ["job-a", "job-b"]
    parts = [(p.kinds, p.steps, p.replies, p.bytes, p.numbers) for p in report.jobs[0].parts]
    assert parts == [
        (["summary"], ["data.describe"], 1, 4, 0),
        (["gradient"], ["newton.gradient", "newton.step"], 3, 348, 42),
    ]
    assert (report.jobs[0].replies, report.jobs[0].bytes, report.jobs[0].numbers) == (4, 352, 42)
    assert report.jobs[1].parts[0].kinds == []


def test_one_job(client: Path) -> None:
    """A job is found by a beginning of its id, and one of which nothing left is an error."""
    assert [job.job for job in audit(client, job="job-b").jobs] == ["job-b"]
    with pytest.raises(UnknownJobError, match="nothing left in a job 'nope'"):
        audit(client, job="nope")


def test_no_log(tmp_path: Path) -> None:
    """A client that never ran has no log, which is not the same as a log without lines."""
    (tmp_path / "client.toml").write_text("")
    with pytest.raises(ConfigError, match="no audit log"):
        audit(tmp_path / "client.toml")


@pytest.mark.parametrize("line", ["[1]", "7", "{}", '{"job": 3}', "[" * 100_000, "\x00"])
def test_lines_that_are_no_entries(client: Path, line: str) -> None:
    """Whatever stands in the file is counted, never a crash; the chain check refuses what no power loss leaves."""
    path = client.parent / "state" / "audit.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, line + "\n", *rest]))
    report = summarise(path)
    assert (report.num_lines, report.num_unreadable) == (6, 1)
    with pytest.raises(DataError, match=r"line [23]"):
        verify(path)


def test_commands(client: Path) -> None:
    """The commands print a table or JSON; the digest of the last line is part of both."""
    run = CliRunner()
    told = run.invoke(app, ["audit", "--config", str(client), "--verify"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert "gradient" in told.stdout
    assert "348" in told.stdout
    assert "every line follows" in told.stdout
    report = json.loads(run.invoke(app, ["audit", "--config", str(client), "--json"]).stdout)
    assert report["last_sha256"] in told.stdout.replace("\n", "")
    assert report["verified"] is False
    assert report["jobs"][0]["parts"][1]["numbers"] == 42


def test_broken_chain_names_the_line(client: Path) -> None:
    """A changed log ends the command with status 3 and the line."""
    path = client.parent / "state" / "audit.jsonl"
    path.write_text(path.read_text().replace('"numbers":5', '"numbers":4'))
    done = run_module("kernfed_client", "audit", "--verify", "--json", "--config", client)
    assert done.returncode == 3
    assert "line 4 does not follow from the one before" in done.stderr
    assert json.loads(done.stdout)["error"]["reason"] == "INVALID_DATA"


def test_refusals_are_counted_and_shown(client: Path) -> None:
    """What was refused is counted by job and step, shown with its reason, and is no reply; the chain holds."""
    log = AuditLog(client.parent / "state" / "audit.jsonl")
    for i in range(3):
        log.refused(
            job_id="job-c",
            task_id=f"job-c/{i}/fedavg.local_update",
            step="fedavg.local_update",
            operator="eve",
            submission=None,
            method="dkrr",
            request_sha256=b"",
            reason="REFUSED_BY_POLICY",
            message="belongs to other methods\x1b[2J",
        )
    log.close()
    report = audit(client, check_chain=True, job="job-c")
    [job] = report.jobs
    assert (job.operators, job.replies, job.refused, job.parts) == (["eve (not proven)"], 0, 3, [])
    assert (job.refusals[0].step, job.refusals[0].method) == ("fedavg.local_update", "dkrr")
    told = CliRunner().invoke(app, ["audit", "--config", str(client)], env={"COLUMNS": "200"}).stdout
    assert "what was refused" in told
    assert "belongs to other methods" in told
    assert "\x1b" not in told
    assert "3 tasks were refused by the policy" in told


def test_decisions_are_shown_and_are_no_replies(client: Path) -> None:
    """What people decided stands in the report with the user's name, and counts as nothing that left."""
    log = AuditLog(client.parent / "state" / "audit.jsonl")
    log.decided(
        job_id="job-d",
        operator="ann",
        submission="5a",
        method="dkrr",
        plan="0f",
        word="refuse",
        why="no vote\x1b[2J",
        user="kim",
        decided_at="2026-11-30T10:00:00+00:00",
    )
    log.close()
    [job] = audit(client, check_chain=True, job="job-d").jobs
    assert (job.operators, job.replies, job.refused, job.parts) == (["ann"], 0, 0, [])
    assert [(said.decision, said.user) for said in job.decisions] == [("refuse", "kim")]
    told = CliRunner().invoke(app, ["audit", "--config", str(client)], env={"COLUMNS": "200"}).stdout
    assert "what was decided here" in told
    assert "kim" in told
    assert "\x1b" not in told
