"""NPZ archives into tables: `x` (rows, columns), `y` (rows,) and, optionally, `columns`. Nothing is ever unpickled.

NaN means that there is no value; infinity is a fault.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.tables.cells import label_text, merge_labels, read_distinct, read_numbers
from kernfed.tables.columns import locate_columns, locate_own
from kernfed.tables.raw_table import Faults, RawTable, Source
from kernfed.tables.records import RecordDigests, group_words


def read_npz(source: Source) -> RawTable:
    """Read the columns that the job uses; row numbers count from 1. The target is `y`, whatever the job calls it.

    Raises:
        DataError: Names file, array or column, and remedy.
    """
    file = source.file
    with file.path.open("rb") as opened:
        try:
            archive = np.load(opened, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError):
            remedy = source.remedy("write it with numpy.savez", ", or correct {}", "format")
            source.refuse(f"is not an NPZ archive; {remedy}")
        if not isinstance(archive, np.lib.npyio.NpzFile):
            source.refuse("is a single array; write x and y into one archive with numpy.savez")
        with archive:
            own = source.group in archive.files
            wanted = (file.x_key, "columns", source.group, file.y_key if source.target is not None else None)
            require_room(source, archive, [name for name in wanted if name is not None])
            x = _array(source, archive, file.x_key, "x_key")
            y = None if source.target is None else _array(source, archive, file.y_key, "y_key")
            names = list(file.x_columns) if file.x_columns is not None else _names(source, archive)
            groups = _array(source, archive, source.group, "group") if source.group is not None and own else None
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        source.refuse(
            f"array {file.x_key!r} has shape {x.shape} and type {x.dtype}; store numbers of shape (rows, columns)"
        )
    if y is not None and (y.ndim != 1 or len(y) != len(x)):
        source.refuse(
            f"array {file.y_key!r} has shape {y.shape} but {file.x_key!r} has {len(x)} rows; "
            "store one target per row, shape (rows,)"
        )
    names = names or [f"x{i}" for i in range(x.shape[1])]
    if len(names) != x.shape[1]:
        source.refuse(
            f"{len(names)} column names for the {x.shape[1]} columns of {file.x_key!r}; "
            + source.remedy("correct the array `columns`", ", or {}", "x_columns")
        )
    places = locate_columns(source, names, source.features)
    faults = Faults(source, "row")
    columns = [_column(x[:, p], source, faults, name) for p, name in zip(places, source.features, strict=True)]
    values = np.stack(columns, axis=1) if columns else np.empty((len(x), 0))
    faults.raise_if_any()
    rows, records, group = np.arange(1, len(x) + 1), None, None
    if source.with_records:
        digests = RecordDigests(source)
        extra = [] if y is None or y.dtype.kind not in "biufU" else [(file.y_key, y)]
        extra += [] if groups is None or source.group is None else [(source.group, groups)]
        digests.add([*names, *(name for name, _ in extra)], [*x.T, *(column for _, column in extra)], len(x))
        records = digests.words
    if source.group is not None:
        found = x[:, locate_own(source, names, source.group, "group", "group")] if groups is None else groups
        group = numbered_groups(source, found, len(x))
    if y is None:
        return RawTable(values, None, None, (), rows, "row", records, group)
    if source.has_labels:
        return RawTable(values, None, *_labels(source, y), rows, "row", records, group)
    if y.dtype.kind not in "biuf":
        source.refuse(f"array {file.y_key!r} has type {y.dtype} where numbers are needed; store numbers")
    assert source.target is not None  # noqa: S101  # y is read for it
    targets = read_numbers(y, source, faults, source.target)
    faults.raise_if_any()
    return RawTable(values, targets, None, (), rows, "row", records, group)


def numbered_groups(source: Source, groups: Any, num_rows: int) -> Integers:
    """Number the groups of rows by an array that names them, (n,).

    Raises:
        DataError: It is none of names, or of other rows.
    """
    if groups.shape != (num_rows,) or groups.dtype.kind not in "biufU":
        source.refuse(
            f"array {source.group!r}, the group, has shape {groups.shape} and type {groups.dtype}; store numbers or "
            f"text of shape ({num_rows},)",
            public="its groups are no numbers or text, one for each row",
        )
    rows = np.arange(1, num_rows + 1)
    return group_words(source, groups.tolist(), rows - 1, rows, "row")


def require_room(source: Source, archive: Any, names: Iterable[str]) -> None:
    """Refuse an archive whose arrays of these names do not fit into memory; no more is unpacked than it states.

    Raises:
        DataError: States what they take.
    """
    members = {f"{name}.npy" for name in names}
    source.require_room(3 * sum(m.file_size for m in archive.zip.infolist() if m.filename in members))


def _array(source: Source, archive: Any, name: str, key: str) -> Any:
    if name not in archive.files:
        listed = ", ".join(archive.files[:12]) or "none"
        remedy = source.remedy("name it so", ", or correct {}", key)
        source.refuse(f"has no array {name!r} but {listed}; {remedy}")
    try:
        return archive[name]
    except ValueError:
        source.refuse(
            f"array {name!r} holds Python objects or is damaged, and is not read; "
            "store numbers or text, e.g. with .astype(float) or .astype(str)"
        )
    except (EOFError, zipfile.BadZipFile, zlib.error, OSError, RuntimeError):  # encrypted, or packed in another way
        source.refuse(f"array {name!r} is damaged; write the archive again")


def _names(source: Source, archive: Any) -> list[str]:
    if "columns" not in archive.files:
        return []
    names = _array(source, archive, "columns", "x_columns")
    if names.ndim != 1 or names.dtype.kind != "U":
        source.refuse("array 'columns' must be text of shape (columns,); write it with .astype(str)")
    return [str(name) for name in names]


def _column(values: Any, source: Source, faults: Faults, name: str) -> Floats:
    """A column as numbers, (n,), by its type where the job or the client file states one."""
    if name not in source.readers:
        return read_numbers(values, source, faults, name)
    different, codes = np.unique(values, return_inverse=True)
    return read_distinct(different.tolist(), codes.astype(np.int64).ravel(), source, faults, name)


def _labels(source: Source, y: Any) -> tuple[Integers, tuple[str, ...]]:
    if y.dtype.kind not in "biufUS":
        source.refuse(
            f"array {source.file.y_key!r} has type {y.dtype}, which cannot name classes; store text or integers"
        )
    distinct, codes = np.unique(y, return_inverse=True)
    values = [_label(source, value) for value in distinct.tolist()]
    return merge_labels(values, codes.astype(np.int64), source.file.missing)


def _label(source: Source, value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            source.refuse(f"array {source.file.y_key!r} holds bytes that are not UTF-8; store text")
    return label_text(value)
