"""`kernfed-client check-data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, log_to_stderr, print_found
from kernfed.errors import ConfigError
from kernfed_client import check_data as checking
from kernfed_client import propose as proposing


def check_data(
    job: Annotated[
        Path | None,
        typer.Argument(help="Job file; without one the data section of one is proposed.", metavar="JOB.toml"),
    ] = None,
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    name: Annotated[str | None, typer.Option(help="This client's name; unset: from its identity.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, without a job; unset: default, or the only one.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict, without a job; unset: the last one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether the local data fit a job, without any network; what is printed stays here.

    Without a job, columns are looked at: their types, gaps, and those that are likely no features.
    """
    log_to_stderr()
    if job is None:
        asked = lambda: proposing.propose(config, dataset, target)  # noqa: E731
        print_found(asked, proposing.as_json, proposing.as_table, as_json=as_json)
        return
    if dataset is not None or target is not None:
        raise ConfigError("--dataset and --target are for a proposal; the job file says both, so leave them out")
    print_found(lambda: checking.check_data(job, config, name), checking.as_json, checking.as_table, as_json=as_json)
