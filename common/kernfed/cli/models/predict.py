"""`kernfed predict`: a model on new rows, on this machine alone; and the options that it shares with the client's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.jobs.client_file import load_client_file
from kernfed.models.network_model import load_predictor
from kernfed.models.predictions import STANDARD, Missing, Written, write_predictions

DataOption = Annotated[
    Path,
    typer.Option(
        help="CSV file with a header, or Parquet file; columns in any order, more than needed is fine. -: CSV from "
        "standard input."
    ),
]
OutOption = Annotated[
    Path, typer.Option(help="CSV file to write: all columns of the data, and the predictions. -: standard output.")
]
DelimiterOption = Annotated[str, typer.Option(help="Between the fields of a row of a CSV file.")]
EncodingOption = Annotated[str, typer.Option(help="Of a CSV file.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 …")]
MissingOption = Annotated[
    Missing | None,
    typer.Option(
        help="Rows with gaps: refuse the file; blank: keep them without a prediction; skip: leave them out, with a "
        "column that tells each row's line. Default: as the model's job, blank where that dropped such rows."
    ),
]

NetworksOption = Annotated[
    Path | None,
    typer.Option(help="Client file whose section networks.NAME is the module of a model that is a network of its own."),
]


def predict(
    model: Annotated[Path, typer.Option(help="Folder with model.safetensors and model.json.")],
    data: DataOption,
    out: OutOption,
    missing: MissingOption = None,
    delimiter: DelimiterOption = ",",
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "cpu",
    networks: NetworksOption = None,
) -> None:
    """Predict the target of each row of a CSV or Parquet file.

    The file written has every column of the data as it was, then `prediction`, and `score` (or one `score_CLASS` per
    class): least-squares fits of 0/1 targets, of which the largest decides; they are not probabilities.
    """
    predictor = load_predictor(model, None if networks is None else load_client_file(networks).networks)
    if note := predictor.job.get("note"):
        typer.echo(f"{model}: {note}", err=True)
    tell_written(
        out,
        write_predictions(predictor, data, out, delimiter=delimiter, encoding=encoding, device=device, missing=missing),
    )


def tell_written(out: Path, written: Written) -> None:
    """Say how many rows were predicted, and which were not, beside the output where that goes to standard output."""
    if written.num_without:
        num_rows = written.num_rows + written.num_without
        typer.echo(f"{written.num_without:,} of {num_rows:,} rows have no prediction:", err=True)
        for line in written.why:
            typer.echo(f"  {line}", err=True)
    typer.echo(f"{out}: {written.num_rows:,} rows predicted", err=out == STANDARD)
