"""`kernfed predict`: a model on new rows, on this machine alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer

from kernfed import files
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.tasks import TASKS
from kernfed.models.network_model import load_predictor


class Predictor(Protocol):
    """A model that can predict rows: a job's global model, or one that a client keeps to itself."""

    @property
    def task(self) -> LearningTask:
        """The task that was learned."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns that it needs."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Binary: negative, positive; empty for regression."""
        ...

    def predict_scores(self, rows: pd.DataFrame, *, device: str = "cpu") -> npt.NDArray[np.float64]:
        """Scores, (n, C); see `kernfed.models.global_model.GlobalModel.predict_scores`."""
        ...


def predict(
    model: Annotated[Path, typer.Option(help="Folder with model.safetensors and model.json.")],
    data: Annotated[Path, typer.Option(help="CSV file with a header; columns in any order, more than needed is fine.")],
    out: Annotated[Path, typer.Option(help="CSV file to write: all columns of the data, and the predictions.")],
    delimiter: Annotated[str, typer.Option(help="Between the fields of a row.")] = ",",
    encoding: Annotated[str, typer.Option(help="Of the data file.")] = "utf-8-sig",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1 …")] = "cpu",
) -> None:
    """Predict the target of each row of a CSV file.

    The file written has every column of the data as it was, then `prediction`, and `score` (or one `score_CLASS` per
    class): least-squares fits of 0/1 targets, of which the largest decides; they are not probabilities.
    """
    num_rows = write_predictions(
        load_predictor(model), data, out, delimiter=delimiter, encoding=encoding, device=device
    )
    typer.echo(f"{out}: {num_rows} rows predicted")


def write_predictions(
    model: Predictor, data: Path, out: Path, *, delimiter: str = ",", encoding: str = "utf-8-sig", device: str = "cpu"
) -> int:
    """Write a CSV file with its predictions, whole or not at all; returns the number of rows.

    Raises:
        DataError: The rows do not fit the model.
        ConfigError: The file cannot be written, or the device is not there.
    """
    rows = read_rows(data, delimiter=delimiter, encoding=encoding)
    result = predict_rows(model, rows, data, device=device)
    try:
        with files.Part(out) as part:
            result.to_csv(part.file, mode="wb", index=False, sep=delimiter, lineterminator="\n")
            part.keep(durable=False)  # the same rows give it again
    except OSError as err:
        raise ConfigError(f"{out}: cannot be written: {err.strerror}") from err
    return len(result)


def read_rows(path: Path, *, delimiter: str = ",", encoding: str = "utf-8-sig") -> pd.DataFrame:
    """Read a CSV file as text, so that codes such as 007 go out as they came in.

    Raises:
        DataError: The file is missing, empty, or not a table; names the file and the line.
    """
    if len(delimiter) != 1:
        raise ConfigError(f"--delimiter is {delimiter!r}, want one character")
    try:
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, None)
            if not header:
                raise DataError(f"{path}: empty; it needs a header row with the column names")
            twice = sorted({name for name in header if header.count(name) > 1})
            if twice:
                raise DataError(f"{path}: column {twice[0]!r} is there twice; name each column once")
            records = []
            for record in reader:
                if not record:
                    continue
                if len(record) != len(header):
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(record)} fields, the header has {len(header)}; "
                        "quote fields that hold the delimiter"
                    )
                records.append(record)
    except (OSError, LookupError) as err:
        raise DataError(f"{path}: cannot be read: {getattr(err, 'strerror', None) or err}") from err
    except UnicodeDecodeError as err:
        raise DataError(f"{path}: not {encoding}: {err.reason} at byte {err.start}; give --encoding") from err
    except csv.Error as err:
        raise DataError(f"{path}: not a CSV file: {err}; check --delimiter and quotes") from err
    return pd.DataFrame(records, columns=pd.Index(header), dtype=str)


def predict_rows(model: Predictor, rows: pd.DataFrame, source: Path, *, device: str = "cpu") -> pd.DataFrame:
    """Rows with their predictions and scores.

    Args:
        model: The model.
        rows: As `read_rows` gives them.
        source: Where they come from, for messages.
        device: Where to compute.

    Raises:
        DataError: A column is missing or in the way, or a value is not a number; names file, column and row.
    """
    task = TASKS[model.task]
    names = task.score_names(model.classes)
    taken = [name for name in ("prediction", *names) if name in rows.columns]
    if taken:
        raise DataError(f"{source}: column {taken[0]!r} is in the way of the predictions; rename it")
    numbers = _numbers(model, rows, source)
    try:
        scores = model.predict_scores(numbers, device=device)
    except (RuntimeError, AssertionError) as err:  # what torch raises for a device that is not there
        raise ConfigError(f"--device {device}: cannot be used: {str(err).splitlines()[0]}") from err
    added = {"prediction": task.predictions(scores, model.classes).tolist()}
    added |= {name: list(scores[:, i]) for i, name in enumerate(names)}
    return pd.concat([rows, pd.DataFrame(added, index=rows.index)], axis=1)


def _numbers(model: Predictor, rows: pd.DataFrame, source: Path) -> pd.DataFrame:
    missing = [name for name in model.feature_names if name not in rows.columns]
    if missing:
        raise DataError(
            f"{source}: column {missing[0]!r} is missing"
            + (f" (and {len(missing) - 1} more: {', '.join(missing[1:6])})" if len(missing) > 1 else "")
            + f"; the model needs {', '.join(model.feature_names)}"
        )
    if rows.empty:
        raise DataError(f"{source}: no rows below the header; there is nothing to predict")
    columns = {}
    for name in model.feature_names:
        values = pd.to_numeric(rows[name].str.strip(), errors="coerce").to_numpy(dtype=np.float64)
        wrong = ~np.isfinite(values)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "is empty" if not rows[name].iloc[row].strip() else "is not a finite number"
            raise DataError(
                f"{source}: column {name!r}, row {row + 1} below the header: the value {what}; correct it, or leave "
                "the row out"
            )
        columns[name] = values
    return pd.DataFrame(columns)
