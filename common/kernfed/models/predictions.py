"""A model's predictions for the rows of a CSV file, written beside what the file holds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from kernfed import files
from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.jobs.client_file import PartitionFile
from kernfed.maths.tasks import TASKS
from kernfed.models.base import Model
from kernfed.tables.csv import TextTable
from kernfed.tables.raw_table import Source
from kernfed.tables.read import read_with_text, refuse_gaps


def write_predictions(
    model: Model, data: Path, out: Path, *, delimiter: str = ",", encoding: str = "utf-8", device: str = "cpu"
) -> int:
    """Write a CSV file with its predictions, whole or not at all; returns the number of rows.

    Raises:
        DataError: The rows do not fit the model; names file, column and line.
        ConfigError: The file cannot be written, or the device is not there.
    """
    if len(delimiter) != 1:
        raise ConfigError(f"--delimiter is {delimiter!r}, want one character")
    file = PartitionFile(path=data, format="csv", delimiter=delimiter, encoding=encoding)
    options = {"path": "--data", "delimiter": "--delimiter", "encoding": "--encoding"}
    source = Source(file, str(data), model.feature_names, setting=options.get)
    text, table = read_with_text(source)
    added = ("prediction", *TASKS[model.task].score_names(model.classes))
    if taken := [name for name in added if name in text.names]:
        source.refuse(f"column {taken[0]!r} is in the way of the predictions; rename it")
    refuse_gaps(source, table, "correct it or leave the row out")
    result = _predicted(model, text, table.x, device)
    try:
        with files.Part(out) as part:
            result.to_csv(part.file, mode="wb", index=False, sep=delimiter, lineterminator="\n")
            part.keep(durable=False)  # the same rows give it again
    except OSError as err:
        raise ConfigError(f"{out}: cannot be written: {err.strerror}") from err
    return len(result)


def _predicted(model: Model, text: TextTable, x: Floats, device: str) -> pd.DataFrame:
    """Rows as they were, with their predictions and scores."""
    task = TASKS[model.task]
    try:
        scores = model.predict_scores(pd.DataFrame(x, columns=pd.Index(model.feature_names)), device=device)
    except (RuntimeError, AssertionError) as err:  # what torch raises for a device that is not there
        raise ConfigError(f"--device {device}: cannot be used: {str(err).splitlines()[0]}") from err
    rows = pd.DataFrame(text.rows, columns=pd.Index(text.names), dtype=str)
    added = {"prediction": task.predictions(scores, model.classes).tolist()}
    added |= {name: list(scores[:, i]) for i, name in enumerate(task.score_names(model.classes))}
    return pd.concat([rows, pd.DataFrame(added, index=rows.index)], axis=1)
