"""What `kernfed-simulate` does with its options; loads torch and every method."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernfed.cli.glances import print_overview
from kernfed.cli.output import print_json, print_note, print_table
from kernfed.cli.sweep_text import print_outcome, print_sweep, sweep_json
from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, Scores
from kernfed.jobs.client_file import PartitionFile, load_client_file
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.named_files import attach_files
from kernfed.jobs.sweeps.grid import Axis, Outcome, best, measured_rows, trials
from kernfed.maths.tasks import TASKS, shown_metrics
from kernfed.methods.registry import method_of
from kernfed.report.sections import at_a_glance
from kernfed_client.data.local_job import LocalJob
from kernfed_simulation import sweep as sweeps
from kernfed_simulation.federation import from_client_files, from_data_file, with_networks
from kernfed_simulation.partition import Scheme, parse_partitioning
from kernfed_simulation.progress import Progress
from kernfed_simulation.run import Simulated, simulate


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options that describe the clients."""

    data: Path | None
    partition: str | None
    clients: int | None
    group: str | None
    client_file: list[Path] | None
    networks: Path | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What describes a sweep, as of `kernfed.jobs.sweeps.grid.asked`."""

    axes: list[Axis]
    validation: float
    repeats: int


_MODELS = ("local", "global", "personal", "central")


def run(
    parsed: JobFile,
    text: str,
    folder: Path,
    options: ClientOptions,
    *,
    sweep: Sweep | None,
    out: Path | None,
    as_json: bool,
    workers: int = 0,
) -> None:
    """Run a job, or a sweep of it, and print what came of it.

    The job comes with the text and the folder of its file; all else is an option of the command.
    """
    if sweep:
        _sweep(parsed, sweep, options, out=out, quiet=as_json)
        return

    with tempfile.TemporaryDirectory(prefix="kernfed-simulate-") as temporary:
        state = Path(temporary)
        parsed, jobs = _open(parsed, options, state)
        attached, text, files = attach_files(parsed, text, folder)
        parsed = parsed.model_copy(update={"files": attached.files})
        done = simulate(parsed, jobs, text=text, files=files, out=out, listen=Progress(quiet=as_json), workers=workers)
        if out is not None:
            _keep_own_models(state, out)
            if parsed.report:
                _write_report(out)

    told = {e.event.message: e.event.finding for e in done.events if e.event.kind is EventKind.FINDING}
    if as_json:
        print_json(
            {
                "job": parsed.name,
                "method": parsed.method.name,
                "state": done.info.state.value,
                "error": str(done.error) if done.error else None,
                "rounds": done.info.round_num,
                "pooled": done.final.pooled,
                "clients": done.final.clients,
                "training": done.final.training,
                **{overview.key: overview.value for overview in at_a_glance(told)},
                "out": str(out) if out else None,
            }
        )
    else:
        if done.final.clients:
            _print_scores(parsed, done.final.clients, done.final.pooled)
        leaves_model = method_of(parsed.method).leaves_model
        for overview in at_a_glance(told):
            if overview.result or not leaves_model:
                print_overview(overview)
    if not as_json and out is not None:
        print_note(f"results: {out}")
    if done.error is not None:
        raise done.error


def _open(job: JobFile, options: ClientOptions, state: Path) -> tuple[JobFile, dict[str, LocalJob]]:
    """The clients that the options describe, and the job as it is run on them."""
    job, jobs = _opened(job, options, state)
    if options.networks is not None:
        with_networks(jobs, load_client_file(options.networks).networks)
    return job, jobs


def _opened(job: JobFile, options: ClientOptions, state: Path) -> tuple[JobFile, dict[str, LocalJob]]:
    data, partition, clients, client_file = options.data, options.partition, options.clients, options.client_file
    dealing = {"--partition": partition, "--clients": clients, "--group": options.group}
    if client_file:
        if unfit := [name for name, value in {"--data": data, **dealing}.items() if value is not None]:
            raise ConfigError(f"{unfit[0]} is not for --client-file, whose files name the rows; leave one of them out")
        return job, from_client_files(client_file, state)
    if data is None:
        given = next((f"{name} needs --data: " for name, value in dealing.items() if value is not None), "")
        raise ConfigError(f"{given}give either --data with --partition, or a --client-file for each client")
    if partition is None:
        raise ConfigError(
            f"--data {data}: say with --partition how its rows are dealt out, e.g. --partition iid --clients 4"
        )
    partitioning = parse_partitioning(partition)
    by_column = partitioning.scheme is Scheme.COLUMN
    if by_column == (clients is not None):
        raise ConfigError("--clients: " + ("leave it out, the column decides" if by_column else "say how many"))
    if not by_column and job.cohort.clients is not None:
        job = job.model_copy(update={"cohort": job.cohort.model_copy(update={"clients": None})})
    if clients is not None and clients < 1:
        raise ConfigError(f"--clients is {clients}; give at least 1")
    return job, from_data_file(PartitionFile(path=data), partitioning, clients, job, state, options.group)


def _sweep(
    job: JobFile,
    sweep: Sweep,
    options: ClientOptions,
    *,
    out: Path | None,
    quiet: bool,
) -> None:
    """The job at every combination of the sweep's values, and the best of them as the file says; tables and files."""
    found = trials(job, sweep.axes, validation=sweep.validation, repeats=sweep.repeats)
    assert job.data is not None  # noqa: S101  # `trials` refuses a job without
    metric, rows = TASKS[job.data.task].main_metric, measured_rows(job, sweep.validation)

    def run(chosen: JobFile) -> Simulated:
        with tempfile.TemporaryDirectory(prefix="kernfed-simulate-") as temporary:
            chosen, jobs = _open(chosen, options, Path(temporary))
            return simulate(chosen, jobs)

    def listen(outcome: Outcome) -> None:
        if not quiet:
            print_outcome(outcome, metric)

    outcomes = sweeps.run_sweep(found, run, metric, listen)
    place = best(outcomes, metric) if sweep.validation else None
    final = None if place is None else sweeps.run_once(found[place].chosen, run, metric)
    told = sweep_json(outcomes, metric, rows, place, final)
    if out is not None:
        sweeps.write(out, told, outcomes, metric, rows)
    if quiet:
        print_json(told)
        return
    print_sweep(job.name, outcomes, metric, rows, place, final)
    if out is not None:
        print_note(f"results: {out}")


def _print_scores(job: JobFile, clients: Mapping[str, Mapping[str, Scores]], pooled: Mapping[str, Scores]) -> None:
    assert job.data is not None  # noqa: S101  # scores are of data
    models = [m for m in _MODELS if m in pooled]
    for metric in shown_metrics(job.data.task, {name for m in models for name in pooled[m]}):
        rows = [[name, *(_score(clients[name].get(m, {}), metric) for m in models)] for name in sorted(clients)]
        rows.append(["pooled", *(_score(pooled[m], metric) for m in models)])
        print_table(
            ["client", *models],
            rows,
            title=f"{metric} {method_of(job.method).measured_on(job.data.validation_fraction)}",
        )


def _score(scores: Scores, metric: str) -> str:
    return f"{scores[metric]:.4f}" if metric in scores else "-"


def _keep_own_models(state: Path, out: Path) -> None:
    """Models that clients keep to themselves: one folder a client."""
    for model in sorted(state.glob("*/model")):
        shutil.copytree(model, out / "clients" / model.parent.name)


def _write_report(out: Path) -> None:
    try:
        from kernfed.report.page import write_report  # noqa: PLC0415  # where the plotting libraries are installed
    except ImportError:
        print_note("report.html was not written: the plotting libraries are missing")
        return
    write_report(out)
