"""`kernfed job sweep`: a job at every combination of some keys' values, over the network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.operator_options import CoordinatorOption, IdentityOption, with_operator
from kernfed.cli.output import JsonOption, print_json
from kernfed.cli.sweep_options import RepeatsOption, SweepOption, ValidationOption
from kernfed.cli.sweep_text import print_outcome, print_sweep, sweep_json
from kernfed.errors import ConfigError, JobError
from kernfed.federation.events import EventKind, JobState, RoundMetrics
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.sweeps.grid import Outcome, Run, Trial, asked, best, delivered, measured_rows, trials
from kernfed.jobs.sweeps.section import load_swept
from kernfed.jobs.toml_text import toml_text
from kernfed.python.submitting import submit_job
from kernfed.wire.operator_client import OperatorClient


def sweep(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.")],
    axes: SweepOption = None,
    validation: ValidationOption = None,
    repeats: RepeatsOption = None,
    as_json: JsonOption = False,
    identity: IdentityOption = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Run a job at every combination of some keys' values, ranked on validation rows; then the best, on test rows.

    Each run is a job of its own, which `kernfed job list` shows. Ctrl-C leaves the one that runs as it is, and starts
    no more.
    """
    from kernfed.maths.tasks import TASKS  # noqa: PLC0415  # loads numpy, which other commands do without

    parsed, _, section = load_swept(job_file)
    swept = asked(section, axes or [], validation, repeats)
    if swept is None:
        raise ConfigError(f"{job_file}: no key to sweep; add --sweep KEY=VALUE,VALUE, or [sweep] to the job file")
    given, share, seeds = swept
    found = trials(parsed, given, validation=share, repeats=seeds)
    assert parsed.data is not None  # noqa: S101  # `trials` refuses a job without
    metric, rows = TASKS[parsed.data.task].main_metric, measured_rows(parsed, share)

    async def run_all(operator: OperatorClient) -> tuple[list[Outcome], int | None, Run | None]:
        outcomes = [await _outcome(operator, trial, job_file.parent, metric, quiet=as_json) for trial in found]
        place = best(outcomes, metric) if share else None
        final = None if place is None else await _run(operator, found[place].chosen, job_file.parent)
        return outcomes, place, final

    outcomes, place, final = with_operator(identity, coordinator, run_all)
    if as_json:
        print_json(sweep_json(outcomes, metric, rows, place, final))
    else:
        print_sweep(parsed.name, outcomes, metric, rows, place, final)
    if place is None and share:
        raise JobError("no combination succeeded; `kernfed job show` has each job's reason")


async def _outcome(operator: OperatorClient, trial: Trial, folder: Path, metric: str, *, quiet: bool) -> Outcome:
    outcome = Outcome(trial.settings, tuple([await _run(operator, job, folder) for job in trial.jobs]))
    if not quiet:
        print_outcome(outcome, metric)
    return outcome


async def _run(operator: OperatorClient, job: JobFile, folder: Path) -> Run:
    """Submit a job, and wait for its end."""
    started = time.monotonic()
    info = await submit_job(operator, job, toml_text(job.model_dump(mode="json", exclude_unset=True)), folder)
    metrics = RoundMetrics()
    async for update in operator.watch(info.job_id):
        info = update.job or info
        event = update.event.event if update.event else None
        if event is not None and event.kind is EventKind.ROUND_CLOSED and event.metrics is not None:
            metrics = metrics.merged(event.metrics)
    error = "" if info.state is JobState.SUCCEEDED else info.error_reason or info.state.value.upper()
    _, scores = delivered(metrics)
    return Run(scores, metrics.training, rounds=info.round_num, seconds=time.monotonic() - started, error=error)
