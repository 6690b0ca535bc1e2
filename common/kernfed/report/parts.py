"""What the report and a terminal show of a finding: pictures, tables, and the sections that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


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
    result: bool = False
    """Whether people run the method for it, as for coefficients: a simulation prints it beside the model's scores."""
