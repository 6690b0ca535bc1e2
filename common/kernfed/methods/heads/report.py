"""The report's section on a head: which solver and why, and what a round cost."""

from __future__ import annotations

from typing import Any

from kernfed.methods.finding import reading
from kernfed.methods.heads.finding import HeadFinding
from kernfed.report.charts import Series, line_chart
from kernfed.report.parts import Chart, Section, TableOf

_WORDS = {
    "method": "method",
    "loss": "loss",
    "features": "features, with the bias",
    "outputs": "outputs",
    "rows": "rows of the largest client",
    "ridge": "ridge",
    "step": "step",
    "solver": "solver of the clients' Newton systems",
    "reason": "why this solver",
    "damping": "damping at the start",
    "arrived": "arrived",
    "distance": "distance from rest",
}


def head_section(finding: HeadFinding) -> Section:
    """Make the section."""
    facts = {words: getattr(finding, key) for key, words in _WORDS.items()}
    rows = [[words, _text(value)] for words, value in facts.items() if value is not None]
    charts, course = [], finding.course
    if course is not None and len(course.rounds) > 1:
        title = f"{course.metric} by seconds"
        drawn = [Series("global", course.seconds, course.values)]
        svg = line_chart(title, course.metric, drawn, x_label="seconds")
        charts.append(Chart(title, svg, "Since the first round began, evaluation and waiting included."))
    return Section(
        title="Head on frozen features",
        text="A linear model on features that stay as they are; what each client sends is in the record of the job.",
        charts=charts,
        table=TableOf(["", ""], rows),
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


SECTIONS = {HeadFinding.name: reading(HeadFinding, head_section)}
