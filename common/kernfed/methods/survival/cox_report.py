"""The report's section on proportional hazards, and the overview of them at a terminal."""

from __future__ import annotations

import math

from kernfed.methods.finding import reading
from kernfed.methods.survival.cox_finding import Baseline, CoxFinding
from kernfed.report.charts import Series, line_chart
from kernfed.report.sections import Chart, Overview, Section, TableOf
from kernfed.wording import number, p_value

_DRAWN = 8
"""Clients in a picture."""


def cox_section(finding: CoxFinding) -> Section:
    """Make the section."""
    charts = [_chart(finding)] if finding.baselines else []
    return Section(f"What the time to the event depends on: {finding.target}", words(finding), charts, _table(finding))


def cox_overview(finding: CoxFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), f"hazard ratios; {words(finding)}", _table(finding))


def words(finding: CoxFinding) -> str:
    """How well it fits, in sentences."""
    errors = "Standard errors are the model's."
    if finding.groups is not None:
        errors = f"Standard errors are {finding.errors}: a sandwich of {finding.groups:,} score residuals."
    found = [
        f"{finding.rows:,} rows, {finding.deaths:,} events, ties by {finding.ties.capitalize()}'s rule, each client "
        f"with a baseline of its own: log-likelihood {number(finding.log_likelihood)}, AIC {number(finding.aic)}."
    ]
    if finding.likelihood_ratio is not None and finding.p_value is not None:
        found.append(
            f"Likelihood ratio {number(finding.likelihood_ratio)} with {len(finding.coefficients)} degrees of freedom, "
            f"p {p_value(finding.p_value, equal='= ')}."
        )
    if finding.concordance is not None:
        found.append(f"Concordance {finding.concordance:.3f} of {finding.pairs:,} pairs within clients.")
    return " ".join([*found, errors])


def _table(finding: CoxFinding) -> TableOf:
    level = f"{100 * finding.confidence:g} %"
    columns = ["", "coefficient", "error", "z", "p", "hazard ratio", f"{level} from", "to"]
    rows = [
        [
            found.name,
            number(found.estimate),
            number(found.error),
            f"{found.statistic:.2f}",
            p_value(found.p_value),
            *(number(_exp(value)) for value in (found.estimate, found.low, found.high)),
        ]
        for found in finding.coefficients
    ]
    return TableOf(columns, rows)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _chart(finding: CoxFinding) -> Chart:
    title = f"Cumulative baseline hazard over {finding.target}"
    shown = list(finding.baselines.items())
    lines = [Series(client, *_steps(baseline)) for client, baseline in shown[:_DRAWN]]
    note = "" if len(shown) <= _DRAWN else f"The first {_DRAWN} of {len(shown)} clients."
    return Chart(title, line_chart(title, "cumulative hazard", lines, x_label=finding.target), note)


def _steps(baseline: Baseline) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Corners of the curve: level up to each time, then up."""
    times, values = [min(0.0, *baseline.times)], [0.0]
    for time, hazard in zip(baseline.times, baseline.hazard, strict=True):
        times += [time, time]
        values += [values[-1], hazard]
    return tuple(times), tuple(values)


SECTIONS = {CoxFinding.name: reading(CoxFinding, cox_section)}
OVERVIEWS = {CoxFinding.name: reading(CoxFinding, cox_overview)}
