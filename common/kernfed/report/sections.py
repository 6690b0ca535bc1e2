"""The report's part on a method's own results: one entry per finding's name, each a function to a section.

A method adds its line to `SECTIONS` and keeps its rendering in a module of its own, `report_<method>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def _distillation(finding: Mapping[str, Any]) -> Section:
    from kernfed.methods.distill.report import distillation_section

    return distillation_section(finding)


def _personalise(finding: Mapping[str, Any]) -> Section:
    from kernfed.methods.personalise.report import personalise_section

    return personalise_section(finding)


def _online(finding: Mapping[str, Any]) -> Section:
    from kernfed.methods.online.report import online_section

    return online_section(finding)


def _reweight(finding: Mapping[str, Any]) -> Section:
    from kernfed.methods.reweight.report import reweight_section

    return reweight_section(finding)


def _head(finding: Mapping[str, Any]) -> Section:
    from kernfed.methods.heads.report import head_section

    return head_section(finding)


SECTIONS: dict[str, Callable[[Mapping[str, Any]], Section]] = {
    "distillation": _distillation,
    "head": _head,
    "online": _online,
    "personalise": _personalise,
    "reweight": _reweight,
}
"""Finding's name, as `Run.publish` gave it, to its section."""
