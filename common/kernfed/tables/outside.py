"""Formats of tables that packages from outside read: each gives a table of Arrow, checked as a Parquet file is.

A package names a `TableFormat` under an entry point of the group `kernfed.tables`; the entry point's name is the
format's, for `format` in client files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernfed import plugins

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format of files."""

    suffixes: tuple[str, ...]
    """Of its files, in small letters, e.g. `.xlsx`; those of kernfed's own formats stay theirs."""
    read: Callable[[Path], pa.Table]
    """A file as a table of Arrow, with all its columns, the rows in the file's order; null or NaN: no value."""


def format_of(suffix: str) -> str | None:
    """The format from outside whose files have a suffix; None: there is none.

    Raises:
        ConfigError: A package that brings formats cannot be loaded, or brings none; names it.
    """
    for point in plugins.points(plugins.TABLES):
        if suffix in point.object(TableFormat).suffixes:
            return point.name
    return None


def names() -> tuple[str, ...]:
    """The formats from outside that can be read here, sorted."""
    return tuple(sorted({point.name for point in plugins.points(plugins.TABLES)}))
