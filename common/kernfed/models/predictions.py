"""A model's predictions for the rows of a CSV or Parquet file, written beside what the file holds."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernfed import files
from kernfed.arrays import Flags, Floats
from kernfed.columns.expand import expand
from kernfed.columns.plan import columns_of
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import MissingRule
from kernfed.jobs.client_file import PartitionFile, format_by_suffix
from kernfed.maths.tasks import TASKS
from kernfed.models.base import Model
from kernfed.models.coverage import Covering, check_coverage
from kernfed.tables import outside
from kernfed.tables.raw_table import RawTable, Source, TextTable
from kernfed.tables.read import gaps, read_with_text
from kernfed.tables.typed_cells import cell_readers

STANDARD = Path("-")
"""Standard input, or output."""


class Missing(enum.StrEnum):
    """What becomes of a row that lacks a value."""

    REFUSE = "refuse"
    """Nothing is predicted."""
    BLANK = "blank"
    """The row stays, without a prediction."""
    SKIP = "skip"
    """The row is left out; a column tells which line of the data each row is."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    num_rows: int
    """Rows that were predicted."""
    num_without: int
    """Rows that were not."""
    why: tuple[str, ...]
    """What these lack, a line per column and kind, each with the first row."""


def write_predictions(
    model: Model,
    data: Path,
    out: Path,
    *,
    delimiter: str = ",",
    encoding: str = "utf-8",
    device: str = "cpu",
    missing: Missing | None = None,
    coverage: float | None = None,
) -> Written:
    """Write a CSV file with its predictions, whole or not at all.

    Args:
        model: Predicts.
        data: CSV or Parquet file; `-`: CSV from standard input.
        out: CSV file; `-`: standard output.
        delimiter: Of the CSV files.
        encoding: Of the data.
        device: Where to compute.
        missing: What becomes of rows with gaps; None: as in the model's job, whose dropped rows stay here, blank.
        coverage: Share of rows whose truth shall lie in what further columns tell; None: there are none.

    Raises:
        DataError: The rows do not fit the model, or none can be predicted; names file, column and line.
        ConfigError: The file cannot be written, the device is not there, or the model cannot tell such a coverage.
    """
    if coverage is not None:
        check_coverage(coverage)
    if len(delimiter) != 1:
        raise ConfigError(f"--delimiter is {delimiter!r}, want one character")
    source = _source(model, data, delimiter, encoding)
    rule = missing or (Missing.BLANK if model.job.get("missing") == MissingRule.DROP_ROWS else Missing.REFUSE)
    text, table = read_with_text(source)
    if model.columns:
        table = replace(table, may_lack=np.array([plan.fills for plan in model.columns], dtype=np.bool_))
    added = ["prediction", *TASKS[model.task].score_names(model.classes)]
    added += TASKS[model.task].range_names if coverage is not None else ()
    if rule is Missing.SKIP:
        added.append(table.row_word)
    if taken := [name for name in added if name in text.names]:
        source.refuse(f"column {taken[0]!r} is in the way of the predictions; rename it")
    if rule is Missing.REFUSE:
        gaps(source, table, "correct it, or set --missing blank or skip").raise_if_any()
    useless = table.useless
    why = tuple(gaps(source, table, "no prediction").lines())
    if useless.all():
        source.refuse("no row can be predicted:\n" + "\n".join(why))
    result = _predicted(model, text, table, device, ~useless, rule, coverage)
    try:
        if out == STANDARD:
            result.to_csv(sys.stdout.buffer, mode="wb", index=False, sep=delimiter, lineterminator="\n")
        else:
            with files.output(out) as file:
                result.to_csv(file, mode="wb", index=False, sep=delimiter, lineterminator="\n")
    except OSError as err:
        if out == STANDARD:
            raise
        raise ConfigError(f"{out}: cannot be written: {err.strerror}") from err
    return Written(int((~useless).sum()), int(useless.sum()), why)


def _source(model: Model, data: Path, delimiter: str, encoding: str) -> Source:
    options = {"path": "--data", "delimiter": "--delimiter", "encoding": "--encoding"}
    name = format_by_suffix(data)
    if name == "parquet" or name in outside.names():
        file = PartitionFile(path=data, format=name)
    else:
        path = Path("/dev/stdin") if data == STANDARD else data
        file = PartitionFile(path=path, format="csv", delimiter=delimiter, encoding=encoding)
    where = "standard input" if data == STANDARD else str(data)
    columns = columns_of(model.columns, model.feature_names)
    readers = cell_readers(model.columns, file, columns, options.get)
    return Source(file, where, columns, setting=options.get, readers=readers)


def _predicted(
    model: Model, text: TextTable, table: RawTable, device: str, useful: Flags, rule: Missing, coverage: float | None
) -> pd.DataFrame:
    """Rows as they were, with their predictions and scores; empty where there are none."""
    try:
        added = _columns(model, table.x[useful], device, coverage)
    except (RuntimeError, AssertionError) as err:  # what torch raises for a device that is not there
        raise ConfigError(f"--device {device}: cannot be used: {str(err).splitlines()[0]}") from err
    rows = pd.DataFrame(text.rows, columns=pd.Index(text.names), dtype=str)
    predicted = rows.index[np.flatnonzero(useful)]
    found = pd.concat([rows, pd.DataFrame(added, index=predicted, dtype=object)], axis=1)
    if rule is not Missing.SKIP:
        return found
    found.insert(0, table.row_word, table.row_numbers)
    return found.loc[predicted]


def _columns(model: Model, x: Floats, device: str, coverage: float | None) -> dict[str, list[Any]]:
    """What is told of rows whose columns are those of the model's table, (n, R)."""
    task, rows = TASKS[model.task], expand(model.columns, x)
    scores = model.predict_scores(rows, device=device)
    told: dict[str, list[Any]] = {"prediction": task.predictions(scores, model.classes).tolist()}
    told |= {name: list(scores[:, i]) for i, name in enumerate(task.score_names(model.classes))}
    if coverage is None:
        return told
    if not isinstance(model, Covering):
        raise ConfigError(
            "--coverage: the model of this job does not know its errors on rows that it had not seen; models that a "
            'job of method distill keeps at a client do, with keep = "blend" or "better"'
        )
    return told | task.ranges(scores, model.reach(rows, coverage, device=device), model.classes)
