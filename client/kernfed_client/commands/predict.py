"""`kernfed-client predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.models.predict import (
    DataOption,
    DelimiterOption,
    DeviceOption,
    EncodingOption,
    MissingOption,
    OutOption,
    tell_written,
)
from kernfed.jobs.client_file import load_client_file
from kernfed.models.predictions import write_predictions
from kernfed_client.models.kept_models import find_kept_model, load_kept_model


def predict(
    job: Annotated[str, typer.Option(help="Id of the job whose model this client keeps, or a unique beginning of it.")],
    data: DataOption,
    out: OutOption,
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    missing: MissingOption = None,
    delimiter: DelimiterOption = ",",
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "cpu",
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of rows, such as 0.9, whose truth shall lie between lower and upper, or among the plausible "
            "classes; for models of method distill."
        ),
    ] = None,
) -> None:
    """Predict the rows of a file with this client's own model of a job; nothing leaves this machine.

    The file written is like that of `kernfed predict`. With --coverage, numbers have the columns deviation, lower and
    upper too, and classes the column plausible.
    """
    model = load_kept_model(find_kept_model(load_client_file(config).state, job))
    written = write_predictions(
        model, data, out, delimiter=delimiter, encoding=encoding, device=device, missing=missing, coverage=coverage
    )
    tell_written(out, written)
