"""The report's section on a head: which solver and why, and what a round cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernfed.report.charts import Series, line_chart
from kernfed.report.sections import Chart, Section, TableOf

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
}


def head_section(finding: Mapping[str, Any]) -> Section:
    """Make the section.

    Args:
        finding: As the workflow publishes it: facts by name, and in `course` lists of `rounds`, `seconds` since the
            first round began, and `accuracy` (or another main metric, named by `metric`) on all test rows.
    """
    rows = [[words, _text(finding[key])] for key, words in _WORDS.items() if key in finding]
    course: Mapping[str, Any] = finding.get("course", {})
    charts = []
    if len(course.get("rounds", ())) > 1:
        metric = str(course["metric"])
        title = f"{metric} by seconds"
        seconds = tuple(float(s) for s in course["seconds"])
        svg = line_chart(title, metric, [Series("global", seconds, tuple(course["values"]))], x_label="seconds")
        charts.append(Chart(title, svg, "Since the first round began, evaluation and waiting included."))
    return Section(
        title="Head on frozen features",
        text="A linear model on features that stay as they are; what each client sends is in the record of the job.",
        charts=charts,
        table=TableOf(["", ""], rows),
    )


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


SECTIONS = {"head": head_section}
