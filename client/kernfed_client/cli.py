"""The site administrator's commands: `kernfed-client`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import common_options, print_rich, run_app
from kernfed.errors import KernfedError
from kernfed_client import identity_commands

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run kernfed beside the data of one institution.",
)
app.callback()(common_options)
identity_commands.register(app)


@app.command("run")
def run_command(
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="auto, text or json.")] = "auto",
) -> None:
    """Connect to the coordinator and work for it until stopped; reconnects by itself."""
    from kernfed import event_loop, logs
    from kernfed.jobs.client_file import load_client_file
    from kernfed_client.app import serve

    logs.configure(log_level, log_format)
    event_loop.run(serve(load_client_file(config)))


@app.command("health")
def health_command(
    config: Annotated[Path, typer.Option(help="Client file, as for `run`.")] = Path("client.toml"),
) -> None:
    """Say whether the daemon on this machine runs and has a session: exit status 0 if so; for probes."""
    from kernfed.jobs.client_file import load_client_file
    from kernfed_client.daemon.health import check_health

    typer.echo(check_health(load_client_file(config).state))


@app.command("features")
def features_command(
    job: Annotated[Path, typer.Argument(help="Job file with data.backbone.", metavar="JOB.toml")],
    out: Annotated[Path, typer.Option(help="NPZ file to write: x, y and columns.")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    partition: Annotated[str, typer.Option(help="train or test, as the client file has them.")] = "train",
) -> None:
    """Write a partition's frozen features: to predict from, or for jobs without the backbone; they stay here."""
    from kernfed_client.data.backbone_data import write_features

    num_rows, num_columns = write_features(config, job, partition, out)
    typer.echo(f"{out}: {num_rows} rows of {num_columns} features")


@app.command("check-data")
def check_data_command(
    job: Annotated[Path, typer.Argument(help="Job file.", metavar="JOB.toml")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    name: Annotated[str | None, typer.Option(help="This client's name; unset: from its identity.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether the local data fit a job, without any network; what is printed stays here."""
    from kernfed_client import check_data

    try:
        report = check_data.check_data(job, config, name)
    except KernfedError as err:
        if as_json:
            typer.echo(json.dumps({"error": {"reason": err.reason, "message": str(err)}}, indent=2))
        raise
    if as_json:
        typer.echo(json.dumps(check_data.as_json(report), indent=2))
    else:
        print_rich(check_data.as_table(report))


@app.command("predict")
def predict_command(
    job: Annotated[str, typer.Option(help="Id of the job whose model this client keeps, or a unique beginning of it.")],
    data: Annotated[Path, typer.Option(help="CSV file with a header; columns in any order, more than needed is fine.")],
    out: Annotated[Path, typer.Option(help="CSV file to write: all columns of the data, and the predictions.")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    delimiter: Annotated[str, typer.Option(help="Between the fields of a row.")] = ",",
    encoding: Annotated[str, typer.Option(help="Of the data file.")] = "utf-8",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 …")] = "cpu",
) -> None:
    """Predict the rows of a CSV file with this client's own model of a job; nothing leaves this machine.

    The file written is like that of `kernfed predict`.
    """
    from kernfed_client import predict

    num_rows = predict.predict(config, job, data, out, delimiter=delimiter, encoding=encoding, device=device)
    typer.echo(f"{out}: {num_rows} rows predicted")


@app.command("audit")
def audit_command(
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    check_chain: Annotated[
        bool, typer.Option("--verify", help="Check that no line was changed or removed; exit status 3 if one was.")
    ] = False,
    job: Annotated[str | None, typer.Option(help="Only this job: its id, or the beginning of it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what left this site, by job and kind of information, in bytes and numbers; needs no network."""
    from kernfed_client.daemon import audit_report

    try:
        report = audit_report.audit(config, check_chain=check_chain, job=job)
    except KernfedError as err:
        if as_json:
            typer.echo(json.dumps({"error": {"reason": err.reason, "message": str(err)}}, indent=2))
        raise
    if as_json:
        typer.echo(json.dumps(audit_report.as_json(report), indent=2))
    else:
        print_rich(audit_report.as_table(report))


def main() -> None:
    """Run a command; an error is one clear message on stderr and an exit code, never a traceback."""
    run_app(app)
