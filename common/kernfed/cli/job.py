"""`kernfed job`: submit, follow and cancel jobs, and take away what they leave."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from kernfed.artifact_names import FINDINGS, JOB_JSON
from kernfed.cli.glances import print_overview
from kernfed.cli.job_sweep import sweep
from kernfed.cli.job_text import (
    client_table,
    duration_text,
    event_line,
    job_facts,
    last_metrics,
    rounds_text,
    rows_behind,
    signed_text,
)
from kernfed.cli.operator_options import CoordinatorOption, IdentityOption, with_operator
from kernfed.cli.output import JsonOption, new_app, print_folded, print_json, print_note, print_table
from kernfed.cli.watching import show_job
from kernfed.errors import ConfigError, JobCancelledError, JobError
from kernfed.federation.events import EventKind, JobState
from kernfed.jobs.comparison import compare_jobs
from kernfed.jobs.info import JobInfo, NumberedEvent
from kernfed.jobs.job_file import load_job, parse_job
from kernfed.methods.registry import METHODS
from kernfed.metric_names import METRICS as METRIC_NAMES
from kernfed.python.submitting import submit_job
from kernfed.report.sections import at_a_glance
from kernfed.wire.operator_client import OperatorClient
from kernfed.wording import clean, flat

app = new_app("Submit jobs, watch them, and fetch what they leave.")
app.command()(sweep)

JobId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Job id, a beginning of it that no other job shares, or a name: its newest job."),
]


@app.command()
def submit(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.")],
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job to its end.")] = False,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Check a job file, upload the files that it names, and queue it."""
    parsed, plain = load_job(job_file)
    job = with_operator(identity, coordinator, lambda operator: submit_job(operator, parsed, plain, job_file.parent))
    if watch:
        if not as_json:
            print_note(f"submitted {job.job_id}")
        _watch(job.job_id, as_json, identity, coordinator)
    elif as_json:
        print_json(asdict(job))
    else:
        typer.echo(job.job_id)
        print_note(f"queued; follow it with: kernfed job watch {job.job_id}")


@app.command()
def sign(
    job_id: JobId,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without showing the job's text and asking.")] = False,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Sign a job of yours that came without a signature, e.g. from a former release; it then goes on."""
    job = with_operator(identity, coordinator, lambda operator: operator.get(job_id))
    if not yes and not job.submission_sha256:  # one that is signed needs no reading to be refused
        print_note(f"{job.job_id}, submitted by {clean(job.submitted_by)}; its text at the coordinator:\n")
        print_note("\n".join(f"  {clean(line)}" for line in job.job_toml.splitlines()) + "\n")
        typer.confirm("Sign this job?", abort=True, err=True)
    signed = with_operator(identity, coordinator, lambda operator: operator.sign(job))
    if as_json:
        print_json(asdict(signed))
    else:
        typer.echo(f"{signed.job_id}: signed {signed_text(signed)}")


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many, newest first.")] = 50,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """List jobs, newest first."""
    page = with_operator(identity, coordinator, lambda operator: operator.list_jobs(limit))
    if as_json:
        print_json([asdict(job) for job in page.jobs])
        return
    now = datetime.now(UTC)
    rows = [
        [
            job.job_id,
            job.method,
            job.state.value,
            rounds_text(job),
            job.submitted_at.astimezone(),
            duration_text(job, now),
            clean(job.waiting_for or job.error_reason),
        ]
        for job in page.jobs
    ]
    print_table(["job", "method", "state", "round", "submitted", "took", ""], rows)
    if page.next_page_token:
        print_note(f"there are older jobs than these {len(rows)}: --limit shows more")


@app.command()
def show(
    job_id: JobId,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Show a job: state, cohort, metrics per client, results, notes and failures; then its settings, with defaults."""
    job, events = with_operator(identity, coordinator, lambda operator: _history(operator, job_id))
    findings, kept = _left(job, identity, coordinator)
    told_at_a_glance = at_a_glance(findings)
    settings, release = dict(job.settings or kept), ""
    if not settings:  # a coordinator of before says what was submitted, and no defaults
        settings = parse_job(job.job_toml, f"file of job {job.job_id}", accepted=True).plan()
        release = f"; defaults as of kernfed {version('kernfed')}, which is this command's release"
    metrics, behind = last_metrics(events), rows_behind(events)
    told = [e for e in events if e.event.kind in (EventKind.NOTE, EventKind.CLIENT_FAILED, EventKind.CLIENT_MISSING)]
    if as_json:
        failures = [e for e in told if e.event.kind is not EventKind.NOTE]
        everything = {
            **asdict(job),
            "settings": settings,
            "metrics": asdict(metrics),
            "rows_behind": behind,
            "notes": [e.event.message for e in told if e.event.kind is EventKind.NOTE],
            "failures": [{**asdict(e.event), "kind": e.event.kind.value, "metrics": None} for e in failures],
            **{overview.key: overview.value for overview in told_at_a_glance},
        }
        print_json(everything)
        return
    print_folded(f"{'job':<10} ", job.job_id)
    for key, value in job_facts(job, events, behind, datetime.now(UTC)):
        print_folded(f"{key:<10} ", value)
    columns, rows = client_table(metrics)
    if rows:
        typer.echo("")
        measured = METHODS[job.method].measured_on((settings.get("data") or {}).get("validation_fraction", 0.0))
        print_table(columns, rows, title=f"last metrics, {measured}")
    for overview in told_at_a_glance:
        print_overview(overview)
    if told:
        typer.echo("\nnotes and failures")
        for numbered in told[-50:]:
            print_folded("  ", event_line(numbered) or "")
    lines, named = list(flat(settings, "not set")), _named_keys(job)
    width = max(len(key) for key, _ in lines)
    for title, wanted in (("settings of the job file", True), (f"settings by default{release}", False)):
        typer.echo(f"\n{title}")
        for key, value in lines:
            if (key in named) is wanted:
                print_folded(f"  {key:<{width}}  ", clean(value))


@app.command()
def compare(
    job_ids: Annotated[
        list[str], typer.Argument(metavar="ID ID...", help="Jobs, as in other commands; compared with the first.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Metric, e.g. auc; may be given again. Default: the main ones.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", help="Model of each job. Default: personal, else global, else local.")
    ] = "",
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Compare the scores of jobs that are over: at each client, and their mean differences with standard errors."""

    async def use(operator: OperatorClient) -> list[tuple[str, dict[str, Any]]]:
        jobs = [await operator.get(job_id) for job_id in job_ids]
        return [(job.job_id, (await _kept(operator, job.job_id, [FINDINGS])).get(FINDINGS, {})) for job in jobs]

    found = compare_jobs(with_operator(identity, coordinator, use), metric or (), model)
    if as_json:
        print_json(found.to_json())
        return
    for number, of in enumerate(found.metrics):
        if number:
            typer.echo("")
        columns, rows = found.table(of)
        print_table(
            [clean(c) for c in columns], [[clean(c) for c in row] for row in rows], title=METRIC_NAMES[of.metric]
        )
    typer.echo("")
    typer.echo(clean(str(found)))


@app.command()
def watch(
    job_id: JobId,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Follow a job to its end; exit status 5 where it fails. Ctrl-C leaves the job running."""
    _watch(job_id, as_json, identity, coordinator)


@app.command()
def cancel(
    job_id: JobId,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Stop a job; what it has reached is kept. A name stands for the one job of that name that is not over."""
    job = with_operator(identity, coordinator, lambda operator: operator.cancel(job_id))
    if as_json:
        print_json(asdict(job))
    else:
        typer.echo(f"{job.job_id}: {job.state}")


@app.command()
def artifacts(
    job_id: JobId,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """List the files that a job left."""
    found = with_operator(identity, coordinator, lambda operator: operator.artifacts(job_id))
    if as_json:
        print_json([asdict(artifact) for artifact in found])
    else:
        print_table(["name", "bytes", "sha256"], [[clean(a.name), a.size, a.sha256] for a in found])


@app.command()
def fetch(
    job_id: JobId,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Artifacts; default: all.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder. Default: one named after the job.")] = None,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Copy a job's artifacts here; their SHA-256 is checked."""

    async def use(operator: OperatorClient) -> list[Path]:
        job = await operator.get(job_id)
        return await operator.fetch(job.job_id, out or Path(job.job_id), names or ())

    paths = with_operator(identity, coordinator, use)
    if as_json:
        print_json([str(path) for path in paths])
    else:
        for path in paths:
            typer.echo(str(path))


def _watch(job_id: str, as_json: bool, identity: Path | None, coordinator: str | None) -> None:
    try:
        job = with_operator(identity, coordinator, lambda operator: show_job(operator, job_id, as_json=as_json))
    except KeyboardInterrupt:
        print_note(
            f"the job goes on; watch it again with: kernfed job watch {job_id}, stop it with: kernfed job cancel"
        )
        raise typer.Exit(130) from None
    if job.state is JobState.FAILED:
        raise JobError(f"job {job.job_id} failed: {job.error_reason}: {clean(job.error_message)}")
    if job.state is JobState.CANCELLED:
        raise JobCancelledError(f"job {job.job_id} was cancelled")


async def _history(operator: OperatorClient, job_id: str) -> tuple[JobInfo, list[NumberedEvent]]:
    """A job and its events so far, without waiting for more."""
    job = await operator.get(job_id)
    return job, await operator.events(job.job_id)


def _left(job: JobInfo, identity: Path | None, coordinator: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A finished job's findings, and the settings with defaults in its record where the coordinator says none."""
    if not job.state.finished:
        return {}, {}
    wanted = [FINDINGS] if job.settings else [FINDINGS, JOB_JSON]
    found = with_operator(identity, coordinator, lambda operator: _kept(operator, job.job_id, wanted))
    return found.get(FINDINGS, {}), found.get(JOB_JSON, {}).get("settings", {})


async def _kept(operator: OperatorClient, job_id: str, wanted: list[str]) -> dict[str, Any]:
    """Content of those of some JSON artifacts that a job left, by name."""
    there = {a.name for a in await operator.artifacts(job_id)}.intersection(wanted)
    if not there:
        return {}
    with tempfile.TemporaryDirectory(prefix="kernfed-show-") as folder:
        paths = await operator.fetch(job_id, Path(folder), sorted(there))
        return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def _named_keys(job: JobInfo) -> set[str]:
    """Keys that stand in a job's file, dotted; none where this release cannot read it."""
    try:
        parsed = parse_job(job.job_toml, f"file of job {job.job_id}", accepted=True)
    except ConfigError:
        return set()
    return {key for key, _ in flat(parsed.model_dump(mode="json", exclude_unset=True))}
