"""`kernfed-client features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed_client.data.reading.backbone_data import write_features


def features(
    job: Annotated[Path, typer.Argument(help="Job file with data.backbone.", metavar="JOB.toml")],
    out: Annotated[Path, typer.Option(help="NPZ file to write: x, y and columns.")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    partition: Annotated[str, typer.Option(help="train or test, as the client file has them.")] = "train",
) -> None:
    """Write a partition's frozen features: to predict from, or for jobs without the backbone; they stay here."""
    num_rows, num_columns = write_features(config, job, partition, out)
    typer.echo(f"{out}: {num_rows} rows of {num_columns} features")
