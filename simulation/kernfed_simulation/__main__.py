"""`kernfed-simulate`: a whole federation in one process, with the pooled reference beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernfed.cli.output import JsonOption, common_options, log_to_stderr, print_json, print_note, print_table, run_app
from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, JobEvent, Scores
from kernfed.jobs.client_file import PartitionFile
from kernfed.jobs.job_file import JobFile, load_job, named_files
from kernfed.maths.tasks import TASKS

if TYPE_CHECKING:
    from kernfed_client.data.local_job import LocalJob

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_MODELS = ("local", "global", "personal", "central")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernfed {version('kernfed')}")
        raise typer.Exit


@app.command()
def simulate_command(
    job: Annotated[Path, typer.Argument(help="Job file.", metavar="JOB.toml")],
    data: Annotated[Path | None, typer.Option(help="CSV, Parquet or NPZ file whose rows are dealt out.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="With --data: iid, quantity:ALPHA, dirichlet:ALPHA or column:NAME.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="With --data: number of clients (not with column:NAME).")] = None,
    client_file: Annotated[list[Path] | None, typer.Option(help="A client's file; repeat for each client.")] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the job's seed.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for model, metrics and report.")] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE,VALUE,... of [method]; repeat for more keys: the job at every combination."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder of --out if it exists.")] = False,
    as_json: JsonOption = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Run a job on a federation in this one process, and on all rows pooled, which a real federation cannot.

    Steps and workflows are those of a real federation: the same job on the same data gives the same model.
    """
    common_options(debug=debug)
    log_to_stderr()
    parsed, text = load_job(job)
    if seed is not None:
        parsed = parsed.model_copy(update={"seed": seed})
    if out is not None and out.exists() and not force:
        raise ConfigError(f"--out {out} exists; give a new folder, or --force to replace it")

    from kernfed.jobs.named_files import attach_files
    from kernfed_simulation.run import simulate

    if sweep:
        _sweep(parsed, sweep, data, partition, clients, client_file, out=out, quiet=as_json)
        return

    with tempfile.TemporaryDirectory(prefix="kernfed-simulate-") as temporary:
        state = Path(temporary)
        parsed, jobs = _open(parsed, data, partition, clients, client_file, state)
        attached, text, files = attach_files(parsed, text, job.parent)
        parsed = parsed.model_copy(update={"files": attached.files})
        done = simulate(parsed, jobs, text=text, files=files, out=out, listen=_Progress(parsed, quiet=as_json))
        if out is not None:
            _keep_own_models(state, out)
            if parsed.report:
                _write_report(out)

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
                "out": str(out) if out else None,
            }
        )
    elif done.final.clients:
        _print_scores(parsed, done.final.clients, done.final.pooled)
    if not as_json and out is not None:
        print_note(f"results: {out}")
    if done.error is not None:
        raise done.error


def _open(
    job: JobFile,
    data: Path | None,
    partition: str | None,
    clients: int | None,
    client_file: list[Path] | None,
    state: Path,
) -> tuple[JobFile, dict[str, LocalJob]]:
    """The clients that the options describe, and the job as it is run on them."""
    from kernfed_simulation.federation import from_client_files, from_data_file
    from kernfed_simulation.partition import Scheme, parse_partitioning

    if client_file and not (data or partition or clients):
        return job, from_client_files(client_file, state)
    if data and partition and not client_file:
        partitioning = parse_partitioning(partition)
        by_column = partitioning.scheme is Scheme.COLUMN
        if by_column == (clients is not None):
            raise ConfigError("--clients: " + ("leave it out, the column decides" if by_column else "say how many"))
        if not by_column and job.cohort.clients is not None:
            job = job.model_copy(update={"cohort": job.cohort.model_copy(update={"clients": None})})
        if clients is not None and clients < 1:
            raise ConfigError(f"--clients is {clients}; give at least 1")
        return job, from_data_file(PartitionFile(path=data), partitioning, clients, job, state)
    raise ConfigError("give either --data with --partition, or a --client-file for each client")


def _sweep(
    job: JobFile,
    sweep: list[str],
    data: Path | None,
    partition: str | None,
    clients: int | None,
    client_file: list[Path] | None,
    *,
    out: Path | None,
    quiet: bool,
) -> None:
    """The job at every combination of the sweep's values; a table, and files where `--out` names a folder."""
    from kernfed_simulation import sweep as sweeps
    from kernfed_simulation.run import Simulated, simulate

    if job.data is None or named_files(job):
        raise ConfigError(f"--sweep is for methods on data that name no file; {job.method.name} is none of them")
    metric = TASKS[job.data.task].main_metric
    runs = sweeps.combinations(job, [sweeps.parse_axis(text) for text in sweep])

    def run(chosen: JobFile) -> Simulated:
        with tempfile.TemporaryDirectory(prefix="kernfed-simulate-") as temporary:
            chosen, jobs = _open(chosen, data, partition, clients, client_file, Path(temporary))
            return simulate(chosen, jobs)

    def listen(outcome: sweeps.Outcome) -> None:
        if not quiet:
            words = ", ".join(f"{key} {value}" for key, value in outcome.settings.items())
            print_note(f"{words}: {outcome.error or _score(outcome.scores, metric)}")

    outcomes = sweeps.run_sweep(runs, run, metric, listen)
    if out is not None:
        sweeps.write(out, outcomes, metric)
    if quiet:
        print_json([sweeps.as_json(outcome) for outcome in outcomes])
        return
    columns, rows = sweeps.table(outcomes, metric)
    print_table(columns, rows, title=f"{job.name}: {metric} of the global model on test rows")
    if out is not None:
        print_note(f"results: {out}")


class _Progress:
    """One line per round on stderr."""

    def __init__(self, job: JobFile, *, quiet: bool) -> None:
        self._metric = TASKS[job.data.task].main_metric if job.data else ""
        self._quiet = quiet

    def __call__(self, event: JobEvent) -> None:
        if self._quiet:
            return
        if event.kind is EventKind.NOTE:
            print_note(event.message)
        elif event.kind is EventKind.CLIENT_FAILED:
            print_note(f"round {event.round_num}: {event.client} failed {event.step}: {event.text}")
        elif event.kind is EventKind.ROUND_CLOSED and event.metrics is not None:
            facts = [
                f"{model} {self._metric} {scores[self._metric]:.4f}"
                for model, scores in event.metrics.pooled.items()
                if self._metric in scores
            ]
            facts += [f"{name} {value:.6g}" for name, value in event.metrics.training.items()]
            print_note(f"round {event.round_num}: {', '.join(facts) or 'closed'}")


def _print_scores(job: JobFile, clients: Mapping[str, Mapping[str, Scores]], pooled: Mapping[str, Scores]) -> None:
    assert job.data is not None  # noqa: S101  # scores are of data
    metric = TASKS[job.data.task].main_metric
    models = [m for m in _MODELS if m in pooled]
    rows = [[name, *(_score(clients[name].get(m, {}), metric) for m in models)] for name in sorted(clients)]
    rows.append(["pooled", *(_score(pooled[m], metric) for m in models)])
    print_table(["client", *models], rows, title=f"{metric} on test rows")


def _score(scores: Scores, metric: str) -> str:
    return f"{scores[metric]:.4f}" if metric in scores else "-"


def _keep_own_models(state: Path, out: Path) -> None:
    """Models that clients keep to themselves: one folder a client."""
    for model in sorted(state.glob("*/model")):
        shutil.copytree(model, out / "clients" / model.parent.name)


def _write_report(out: Path) -> None:
    try:
        from kernfed.report.page import write_report
    except ImportError:
        print_note("report.html was not written: the plotting libraries are missing")
        return
    write_report(out)


def main() -> None:
    """Run the command; an error is one clear message on stderr and an exit code."""
    run_app(app)


if __name__ == "__main__":
    main()
