"""The report's section on curves of survival, and the overview of them at a terminal."""

from __future__ import annotations

from kernfed.methods.finding import reading
from kernfed.methods.survival.finding import Curve, KaplanMeierFinding, LogRank
from kernfed.report.charts import Series, line_chart
from kernfed.report.parts import Chart, Overview, Section, TableOf
from kernfed.wording import number, p_value

_DRAWN = 8
"""Groups in a picture; the table has them all."""


def curves_section(finding: KaplanMeierFinding) -> Section:
    """Make the section."""
    return Section(f"How long until the event: {finding.target}", words(finding), [_chart(finding)], _table(finding))


def curves_overview(finding: KaplanMeierFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), f"survival; {words(finding)}", _table(finding))


def words(finding: KaplanMeierFinding) -> str:
    """What the curves say beside the table, in sentences."""
    parts = [f"Means count no more than {number(finding.horizon)} of each time. kaplan-meier.csv has the curves."]
    tests = (
        (finding.log_rank, f"Log-rank test of {finding.by}"),
        (finding.log_rank_by_site, "within sites, that is, where sites may differ"),
    )
    parts += [f"{what}: {_tested(test)}." for test, what in tests if test is not None]
    return " ".join(part[0].upper() + part[1:] for part in parts)


def _tested(test: LogRank) -> str:
    p = p_value(test.p_value, equal="= ")
    return f"chi-squared {number(test.statistic)} with {test.freedom} degrees of freedom, p {p}"


def _chart(finding: KaplanMeierFinding) -> Chart:
    title = f"Survival over {finding.target}"
    curves = finding.curves[1:] or finding.curves
    lines = [Series.stepped(curve.group, curve.times, curve.survival, 1.0) for curve in curves[:_DRAWN]]
    note = "" if len(curves) <= _DRAWN else f"The first {_DRAWN} of {len(curves)} groups."
    return Chart(title, line_chart(title, "share without the event", lines, x_label=finding.target), note)


def _table(finding: KaplanMeierFinding) -> TableOf:
    level = f"{100 * finding.confidence:g} %"
    columns = [finding.by or "rows of", "rows", "events", "expected", "median", f"{level} from", "to", "mean", "error"]
    expected: list[float | None] = [None] * len(finding.curves)
    if finding.log_rank is not None:
        expected[1:] = finding.log_rank.expected
    rows = [_line(curve, events) for curve, events in zip(finding.curves, expected, strict=True)]
    return TableOf(columns, rows)


def _line(curve: Curve, expected: float | None) -> list[str]:
    found = (expected, curve.median, curve.median_low, curve.median_high)
    told = ["" if value is None else number(value) for value in found]
    means = [number(curve.restricted_mean), number(curve.restricted_error)]
    return [curve.group, f"{curve.rows:,}", f"{curve.deaths:,}", *told, *means]


SECTIONS = {KaplanMeierFinding.name: reading(KaplanMeierFinding, curves_section)}
OVERVIEWS = {KaplanMeierFinding.name: reading(KaplanMeierFinding, curves_overview)}
