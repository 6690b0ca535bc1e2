"""`python -m kernfed_server` and the console script `kernfed-coordinator`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, common_options, new_app, print_json, print_table, run_app

app = new_app("Run a federation's coordinator.")
app.callback()(common_options)

_FILE = Path("coordinator.toml")


@app.command("run")
def run_command(
    config: Annotated[
        Path | None, typer.Option(help="Coordinator file; unset: coordinator.toml here, or all defaults.")
    ] = None,
    port_file: Annotated[Path | None, typer.Option(help="Write both ports into this file once they answer.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="auto, text or json.")] = "auto",
) -> None:
    """Serve clients and operators until stopped; jobs under way go on at the next start."""
    from kernfed import event_loop, logs
    from kernfed_server.app import serve
    from kernfed_server.config import load_coordinator_file
    from kernfed_server.trust.tls_log import handshake_failures_logged

    file = load_coordinator_file(config or (_FILE if _FILE.exists() else None))
    with handshake_failures_logged():
        logs.configure(log_level, log_format)
        event_loop.run(serve(file, port_file))


@app.command("health")
def health_command(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Enrolment host:port to ask. Default: that of the coordinator file, on loopback.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait in seconds.")] = 5,
) -> None:
    """Ask the coordinator on this machine whether it serves: exit status 0 if it does; for probes."""
    import asyncio

    from kernfed.cli.output import log_to_stderr
    from kernfed.wire.health import check_health
    from kernfed_server.config import load_coordinator_file, probe_address

    log_to_stderr()
    file = load_coordinator_file(config or (_FILE if _FILE.exists() else None))
    asyncio.run(check_health(address or probe_address(file), file.pki / "coordinator", timeout_s=timeout))
    typer.echo("serving")


@app.command("gc")
def gc_command(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    older_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Also the artifacts of jobs that have been over for so many days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what nothing refers to from the data folder; the coordinator may run meanwhile."""
    from kernfed_server.config import database_url, load_coordinator_file
    from kernfed_server.keeping import garbage

    file = load_coordinator_file(config or (_FILE if _FILE.exists() else None))
    found = garbage.find_garbage(database_url(file), file.data, older_than_days=older_than)
    if not dry_run:
        garbage.remove(found)
    total = sum(item.num_bytes for item in found)
    if as_json:
        items = [{"path": str(g.path), "what": g.what, "why": g.why, "bytes": g.num_bytes} for g in found]
        print_json({"removed": not dry_run, "bytes": total, "items": items})
        return
    if found:
        print_table(
            ["path", "what", "why", "MB"],
            [(g.path.relative_to(file.data), g.what, g.why, f"{g.num_bytes / 1e6:.2f}") for g in found],
        )
    typer.echo(f"{len(found)} {'would go' if dry_run else 'removed'}, {total / 1e6:.2f} MB")


@app.command("actions")
def actions_command(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    job: Annotated[str, typer.Option(help="Only this job: its id, or the beginning of it.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the last ones.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Say what operators did: who submitted and cancelled which job, and when."""
    import dataclasses

    from kernfed_server.config import database_url, load_coordinator_file
    from kernfed_server.keeping.actions import last_actions

    file = load_coordinator_file(config or (_FILE if _FILE.exists() else None))
    actions = last_actions(database_url(file), limit, job)
    if as_json:
        print_json([dataclasses.asdict(action) for action in actions])
    else:
        print_table(["time", "operator", "action", "job"], [(a.time, a.operator, a.action, a.job_id) for a in actions])


def main() -> None:
    """Run a command; an error is one clear message on stderr and an exit code, never a traceback."""
    # Failed handshakes are told by grpc alone, at its default level, which the other commands lower;
    # `handshake_failures_logged` turns its words into log lines.
    os.environ.setdefault("GRPC_VERBOSITY", "")
    run_app(app)


if __name__ == "__main__":
    main()
