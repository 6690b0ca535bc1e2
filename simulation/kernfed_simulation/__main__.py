"""`kernfed-simulate`: a whole federation on one machine, with the pooled reference beside it."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import DebugOption, JsonOption, VersionOption, common_options, log_to_stderr, run_app
from kernfed.cli.sweep_options import RepeatsOption, SweepOption, ValidationOption
from kernfed.errors import ConfigError


class Engine(enum.StrEnum):
    """Where the clients of a simulation compute."""

    ONE = "one"
    PROCESSES = "processes"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def simulate_command(
    job: Annotated[Path, typer.Argument(help="Job file.", metavar="JOB.toml")],
    data: Annotated[Path | None, typer.Option(help="CSV, Parquet or NPZ file whose rows are dealt out.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="With --data: iid, quantity:ALPHA, dirichlet:ALPHA or column:NAME.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="With --data: number of clients (not with column:NAME).")] = None,
    group: Annotated[
        str | None, typer.Option(help="With --data: column whose rows of equal value, as a patient's, belong together.")
    ] = None,
    client_file: Annotated[list[Path] | None, typer.Option(help="A client's file; repeat for each client.")] = None,
    networks: Annotated[
        Path | None, typer.Option(help="Client file whose section networks.NAME all clients have, for jobs with one.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the job's seed.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for model, metrics and report.")] = None,
    sweep: SweepOption = None,
    validation: ValidationOption = None,
    repeats: RepeatsOption = None,
    engine: Annotated[
        Engine, typer.Option(help="Where the clients compute: in this process, or in processes that share them.")
    ] = Engine.ONE,
    workers: Annotated[
        int | None, typer.Option(help="With --engine processes: how many; unset: one a CPU.", min=1, max=256)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder of --out if it exists.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
    show_version: VersionOption = False,
) -> None:
    """Run a job on a federation on this one machine, and on all rows pooled, which a real federation cannot.

    Steps and workflows are those of a real federation: the same job on the same data gives the same model.
    """
    common_options(debug=debug)
    log_to_stderr()
    from kernfed.jobs.sweeps.grid import asked  # noqa: PLC0415  # loads the rooms, whose errors are to be told
    from kernfed.jobs.sweeps.section import load_swept  # noqa: PLC0415

    parsed, text, section = load_swept(job)
    swept = asked(section, sweep or [], validation, repeats)
    if seed is not None:
        parsed = parsed.model_copy(update={"seed": seed})
    if out is not None and out.exists() and not force:
        raise ConfigError(f"--out {out} exists; give a new folder, or --force to replace it")
    if workers is not None and engine is not Engine.PROCESSES:
        raise ConfigError("--workers is for --engine processes; add that, or leave it out")
    if swept and engine is not Engine.ONE:
        raise ConfigError("--sweep runs its jobs in one process; leave --engine out, or run a job at a time")
    processes = 0 if engine is Engine.ONE else workers or os.cpu_count() or 1
    from kernfed_simulation import command  # noqa: PLC0415  # loads torch and every method, which help does without

    clients_of = command.ClientOptions(data, partition, clients, group, client_file, networks)
    of_jobs = command.Sweep(*swept) if swept else None
    command.run(parsed, text, job.parent, clients_of, sweep=of_jobs, out=out, as_json=as_json, workers=processes)


def main() -> None:
    """Run the command; an error is one clear message on stderr and an exit code."""
    run_app(app)


if __name__ == "__main__":
    main()
