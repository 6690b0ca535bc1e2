"""`kernfed-client predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed_client import predict as predicting


def predict(
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
    num_rows = predicting.predict(config, job, data, out, delimiter=delimiter, encoding=encoding, device=device)
    typer.echo(f"{out}: {num_rows} rows predicted")
