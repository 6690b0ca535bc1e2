"""What is worth a look in a job's rows, for people at the site: `check-data` and the daemon's log tell it, no message.

The coordinator learns of few rows nothing but that there are such, if that; here are the columns, classes, values and
places in the file that a site needs to put them right.
"""

from __future__ import annotations

import numpy as np

from kernfed.federation.messages.data import DataSchema
from kernfed.maths.clipping import clip_rows
from kernfed.wording import listed
from kernfed_client.data.guards.far_rows import far_notes
from kernfed_client.data.reading.partitions import LocalData

_DEALT_ANEW = (
    "other rows are held out than in the last job on these columns, though most rows are the same, so metrics of the "
    "two are not of the same rows: a column of the file has other values since, as the time of an export, or other "
    "rows have gaps; leave such a column out of the file, or give a test partition, or a `group`"
)
_MAX_COLUMNS = 40
"""That get a note of a kind."""


def site_notes(data: LocalData, schema: DataSchema) -> list[str]:
    """Points about rows that are allowed but worth a look, for people at the site alone."""
    num = data.num_dropped_rows
    gaps = [f"{num} rows have gaps and are left out" if num > 1 else "one row has gaps and is left out"]
    own = [*data.notes, *(gaps if num else []), *_joined_notes(data), *([_DEALT_ANEW] if data.dealt_anew else [])]
    return [*own, *_outside_notes(data, schema), *_far_notes(data, schema)]


def _joined_notes(data: LocalData) -> list[str]:
    """Which columns, and which jobs, make batches large."""
    whole = (
        f"batches and folds, if the job has any, are of whole blocks of rows, and the largest has {data.block_rows:,}"
    )
    names = listed([repr(name) for name in data.joined_columns], more=" and {left} more")
    notes = []
    if data.joined_columns:
        notes.append(f"{whole}: of smaller ones, fewer rows than policy.min_rows would stand out in column {names}")
    if data.dealt_larger:
        notes.append(
            f"{whole}: earlier jobs took these rows in other sets, by ranges, gaps or test fractions, and smaller ones "
            "would tell with theirs about fewer rows than policy.min_rows; a job on the rows of an earlier one has the "
            "blocks of that one"
        )
    return notes


def _outside_notes(data: LocalData, schema: DataSchema) -> list[str]:
    """One note per range of the job that leaves rows out: those outside, and as many more as the policy asks for."""
    return [
        f"column {r.column!r}: {n} {'row is' if n == 1 else 'rows are'} left out, for the job takes values from "
        f"{r.low:g} to {r.high:g} alone"
        for r, n in zip(schema.ranges, data.outside_rows, strict=False)
        if n
    ][:_MAX_COLUMNS]


def _far_notes(data: LocalData, schema: DataSchema) -> list[str]:
    """One note per column in which training rows stand far out, with the values; the target too."""
    train = data.train
    names = [*schema.features, schema.target][: train.x.shape[1] + (train.y is not None)]
    columns = train.x if train.y is None else np.column_stack([train.x, train.y])
    return list(far_notes(columns, clip_rows(columns)[0], names, train.row_numbers))
