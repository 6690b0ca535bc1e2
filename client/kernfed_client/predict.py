"""`kernfed-client predict`: this client's own model of a job on new rows, without any network."""

from __future__ import annotations

from pathlib import Path

from kernfed.jobs.client_file import load_client_file
from kernfed.models.predictions import Missing, Written, write_predictions
from kernfed_client.models.kept_models import find_kept_model, load_kept_model


def predict(
    config: Path,
    job: str,
    data: Path,
    out: Path,
    *,
    delimiter: str = ",",
    encoding: str = "utf-8",
    device: str = "cpu",
    missing: Missing | None = None,
) -> Written:
    """Predict the target of each row of a file with the model that a job left at this client.

    Args:
        config: Client file; says where the state folder is.
        job: Id of the job, or a unique beginning of it.
        data: CSV file with a header, or Parquet file.
        out: CSV file to write: all columns of the data, and the predictions.
        delimiter: Between the fields of a row.
        encoding: Of the data file.
        device: Where to compute.
        missing: What becomes of rows with gaps; None: as in the job.

    Returns:
        What was written.

    Raises:
        UnknownJobError: No model of such a job is kept here.
        DataError: The rows do not fit the model.
    """
    model = load_kept_model(find_kept_model(load_client_file(config).state, job))
    return write_predictions(model, data, out, delimiter=delimiter, encoding=encoding, device=device, missing=missing)
