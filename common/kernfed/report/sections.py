"""The report's part on a method's own results: one entry per finding's name, each a function to a section.

A room's module `report` has them in `SECTIONS`, and in `OVERVIEWS` what a terminal shows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernfed.methods import rooms


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and its title."""

    title: str
    svg: str
    """Made by `kernfed.report.charts`; every text in it is escaped."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableOf:
    """Column names, and rows of text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report."""

    title: str
    text: str = ""
    charts: Sequence[Chart] = field(default_factory=tuple)
    table: TableOf | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """A part of a finding as `kernfed job show` tells it."""

    key: str
    """Of its JSON."""
    value: Any
    """As JSON."""
    title: str
    table: TableOf


def sections() -> Mapping[str, Callable[[Mapping[str, Any]], Section]]:
    """A finding's name, as `Run.publish` gave it, to the function that makes a section of it."""
    return rooms.merged("kernfed.methods", "report", "SECTIONS")


def overviews() -> Mapping[str, Callable[[Mapping[str, Any]], Overview]]:
    """A finding's name to the function that makes the overview of it for `kernfed job show`."""
    return {
        name: make
        for m in rooms.modules("kernfed.methods", "report")
        for name, make in getattr(m, "OVERVIEWS", {}).items()
    }
