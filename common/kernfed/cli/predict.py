"""`kernfed predict`: a model on new rows, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.models.network_model import load_predictor
from kernfed.models.predictions import write_predictions


def predict(
    model: Annotated[Path, typer.Option(help="Folder with model.safetensors and model.json.")],
    data: Annotated[Path, typer.Option(help="CSV file with a header; columns in any order, more than needed is fine.")],
    out: Annotated[Path, typer.Option(help="CSV file to write: all columns of the data, and the predictions.")],
    delimiter: Annotated[str, typer.Option(help="Between the fields of a row.")] = ",",
    encoding: Annotated[str, typer.Option(help="Of the data file.")] = "utf-8",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 …")] = "cpu",
) -> None:
    """Predict the target of each row of a CSV file.

    The file written has every column of the data as it was, then `prediction`, and `score` (or one `score_CLASS` per
    class): least-squares fits of 0/1 targets, of which the largest decides; they are not probabilities.
    """
    predictor = load_predictor(model)
    if note := predictor.job.get("note"):
        typer.echo(f"{model}: {note}", err=True)
    num_rows = write_predictions(predictor, data, out, delimiter=delimiter, encoding=encoding, device=device)
    typer.echo(f"{out}: {num_rows} rows predicted")
