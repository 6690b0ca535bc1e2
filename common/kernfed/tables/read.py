"""A file of a table, in whatever format, into the columns that a job uses."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import structlog

from kernfed import plugins
from kernfed.errors import KernfedError
from kernfed.jobs.client_file import format_by_suffix
from kernfed.tables import outside
from kernfed.tables.csv import read_csv, read_csv_with_text
from kernfed.tables.npz import read_npz
from kernfed.tables.parquet import read_arrow, read_arrow_with_text, read_parquet, read_parquet_with_text
from kernfed.tables.raw_table import Faults, RawTable, Source, TextTable
from kernfed.wording import listed

log = structlog.get_logger(__name__)

_READERS = {"csv": read_csv, "parquet": read_parquet, "npz": read_npz}


def read(source: Source, *, may_be_empty: bool = False) -> RawTable:
    """Read the columns that are wanted of a file, by its format, else by its suffix. Gaps and infinities are left in.

    Args:
        source: The file.
        may_be_empty: Whether a file that names its columns and has no row below is a table without rows.

    Raises:
        DataError: The file cannot be read or has no rows, or a cell is not a number; names file, column, row and
            remedy, and holds no content of cells.
    """
    with _readable(source):
        name = _format(source)
        if name == "images":
            source.refuse("is a folder of images, which only a job with data.backbone reads; name a file")
        _check_is_file(source)
        table = _READERS[name](source) if name in _READERS else read_arrow(source, _outside(source, name))
        return table if may_be_empty else _with_rows(source, table)


def read_with_text(source: Source) -> tuple[TextTable, RawTable]:
    """Read a file of any format but NPZ as text, and the wanted columns as numbers; gaps and infinities are left in.

    Raises:
        DataError: As of `read`.
    """
    with _readable(source):
        name = source.file.format or "csv"
        if name in outside.names():
            text, table = read_arrow_with_text(source, _outside(source, name))
        else:
            text, table = (read_parquet_with_text if name == "parquet" else read_csv_with_text)(source)
    return text, _with_rows(source, table)


def refuse_gaps(source: Source, table: RawTable, remedy: str) -> RawTable:
    """The table, where it has no gaps and no infinite values.

    Raises:
        DataError: Names file, columns, rows and the remedy for gaps.
    """
    gaps(source, table, remedy).raise_if_any()
    return table


def gaps(source: Source, table: RawTable, remedy: str) -> Faults:
    """The gaps and infinite values of a table, each with what to do, or what became of its row."""
    faults = Faults(source, table.row_word)
    faults.add_infinite(table)
    faults.add_gaps(table, remedy)
    return faults


@contextmanager
def _readable(source: Source) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        source.refuse("does not fit into this machine's memory; use fewer rows or a larger machine")
    except FileNotFoundError:
        source.refuse(f"no such file; correct {source.key('path')}")
    except OSError as err:
        source.refuse(f"cannot be read: {err.strerror or 'input/output error'}; check the file and its permissions")


def _with_rows(source: Source, table: RawTable) -> RawTable:
    if not len(table.row_numbers):
        source.refuse("has no rows; there must be at least one")
    return table


def _format(source: Source) -> str:
    if source.file.format is not None:
        return source.file.format
    found = format_by_suffix(source.file.path)
    if found is None:
        suffix, known = source.file.path.suffix.lower(), listed(["csv", "parquet", "npz", *outside.names()])
        source.refuse(f"suffix {suffix!r} tells no format; set {source.key('format')} to one of {known}")
    return found


def _check_is_file(source: Source) -> None:
    path = source.file.path
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        source.refuse(f"is a folder; name a file in {source.key('path')}")
    if not stat.S_ISREG(status.st_mode):
        source.refuse(f"is not a regular file; correct {source.key('path')}")
    if status.st_size == 0:
        source.refuse("is empty (0 bytes); write the data again")
    if not os.access(path, os.R_OK):
        source.refuse("permission denied; let the client's user read the file")


def _outside(source: Source, name: str) -> pa.Table:
    """A file by a format of a package from outside, as Arrow."""
    point = plugins.find(plugins.TABLES, name)
    if point is None:
        source.refuse(f"format {name!r} needs a package that is not installed here; {plugins.told()}")
    made = point.object(outside.TableFormat)
    try:
        found = made.read(source.file.path)
    except (KernfedError, OSError, MemoryError):
        raise
    except Exception as err:  # whatever a stranger's reader does
        log.exception("a table cannot be read", package=str(point.plugin), format=name)
        source.refuse(
            f"is no {name} file that package {point.plugin} can read ({type(err).__name__}: {err})",
            public=f"is no {name} file that package {point.plugin} can read",
        )
    if not isinstance(found, pa.Table):
        raise point.refuse(f"its reader gave {type(found).__name__} and no pyarrow.Table", "update or uninstall it")
    source.require_room(found.nbytes)
    return found.combine_chunks()
