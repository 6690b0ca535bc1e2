"""The report's section on proportional hazards, and the overview of them at a terminal."""

from __future__ import annotations

import math

from kernfed.methods.finding import reading
from kernfed.methods.survival.cox_finding import CoxFinding
from kernfed.report.charts import Series, line_chart
from kernfed.report.coefficients import about_errors, cells_of
from kernfed.report.parts import Chart, Overview, Section, TableOf
from kernfed.wording import number, p_value

_DRAWN = 8
"""Clients in a picture."""


def cox_section(finding: CoxFinding) -> Section:
    """Make the section."""
    charts = [_chart(finding)] if finding.baselines else []
    return Section(f"What the time to the event depends on: {finding.target}", words(finding), charts, _table(finding))


def cox_overview(finding: CoxFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), f"hazard ratios; {words(finding)}", _table(finding), result=True)


def words(finding: CoxFinding) -> str:
    """How well it fits, in sentences."""
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
    return " ".join([*found, about_errors(finding.errors, finding.groups, "score residuals")])


def _table(finding: CoxFinding) -> TableOf:
    level = f"{100 * finding.confidence:g} %"
    columns = ["", "coefficient", "error", "z", "p", "hazard ratio", f"{level} from", "to"]
    rows = [
        [
            *cells_of(found),
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
    lines = [Series.stepped(client, baseline.times, baseline.hazard, 0.0) for client, baseline in shown[:_DRAWN]]
    note = "" if len(shown) <= _DRAWN else f"The first {_DRAWN} of {len(shown)} clients."
    return Chart(title, line_chart(title, "cumulative hazard", lines, x_label=finding.target), note)


SECTIONS = {CoxFinding.name: reading(CoxFinding, cox_section)}
OVERVIEWS = {CoxFinding.name: reading(CoxFinding, cox_overview)}
