"""Tests of `kernfed.methods.heads.report`: the report's section on a head."""

from __future__ import annotations

from kernfed.methods.heads.finding import HeadFinding
from kernfed.methods.heads.report import head_section

FACTS = {
    "method": "newton",
    "loss": "softmax",
    "solver": "cg",
    "reason": "more than may be used",
    "damping": 0.012345678,
}


def test_the_section_explains_the_solver_and_draws_the_course() -> None:
    """Facts in words, and a metric by seconds."""
    course = {"metric": "accuracy", "rounds": [1, 2], "seconds": [0.5, 1.5], "values": [0.4, 0.8]}
    section = head_section(HeadFinding.from_json({**FACTS, "course": course}))
    assert section.table is not None
    rows = {name: value for name, value, *_ in section.table.rows}
    assert rows["why this solver"] == "more than may be used"
    assert rows["damping at the start"] == "0.0123457"
    (chart,) = section.charts
    assert chart.title == "accuracy by seconds"
    assert "seconds</text>" in chart.svg


def test_a_run_without_measured_rounds_has_no_chart() -> None:
    """The table stands alone."""
    assert not head_section(HeadFinding.from_json(FACTS)).charts
