"""The report's section on statistics of columns, and the overview of them at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from kernfed.methods.describe.finding import ColumnFacts, DescribeFinding
from kernfed.methods.describe.table import ALL
from kernfed.methods.finding import reading
from kernfed.report.charts import MAX_BARS, bar_chart, heat_map
from kernfed.report.parts import Chart, Overview, Section, TableOf
from kernfed.wording import listed, number

_CHARTS = 12
"""Histograms in a report: those of the first columns."""
_ROWS = 500
"""Lines of the table in a report."""
_NAMED = 4
"""Values of a column that a cell names."""
_STRONG = 0.3
"""Size of a correlation from which on a sentence names it."""


def describe_section(finding: DescribeFinding) -> Section:
    """Make the section."""
    clients = ((ALL, finding.pooled), *finding.clients.items())
    rows = [row for j in range(len(finding.pooled)) for who, facts in clients for row in [(who, facts[j])]]
    return Section("What the columns hold", words(finding), list(_charts(finding)), _table(finding, rows[:_ROWS]))


def describe_overview(finding: DescribeFinding) -> Overview:
    """Make the overview: the rows of all clients."""
    table = _table(finding, [(ALL, facts) for facts in finding.pooled])
    return Overview(finding.name, finding.to_json(), "statistics of the columns over all clients' rows", table)


def words(finding: DescribeFinding) -> str:
    """What there is to know beside the table, in sentences."""
    parts = [
        "Smallest and greatest are means of as many rows as each client's policy asks for; quantiles and histograms "
        "are made of means of such groups of neighbours. describe.json and describe.csv have all numbers."
    ]
    if strong := sorted(_strong(finding), key=lambda found: -abs(found[2])):
        told = listed([f"{a} and {b} {r:+.2f}" for a, b, r in strong], 8, more=", ...")
        parts.append(f"The strongest correlations: {told}.")
    return " ".join(parts)


def _strong(finding: DescribeFinding) -> Iterator[tuple[str, str, float]]:
    for j, name in enumerate(finding.correlated):
        for k in range(j):
            if abs(finding.correlations[j][k]) >= _STRONG:
                yield finding.correlated[k], name, finding.correlations[j][k]


def _table(finding: DescribeFinding, rows: Sequence[tuple[str, ColumnFacts]]) -> TableOf:
    middle = [f"{100 * level:g} %" for level in finding.levels]
    columns = ["column", "rows of", "rows", "gaps", "mean", "deviation", "smallest", *middle, "greatest", "values"]
    return TableOf(columns, [_line(who, facts, len(middle)) for who, facts in rows])


def _line(who: str, facts: ColumnFacts, num_quantiles: int) -> list[str]:
    quantiles = [number(q) for q in facts.quantiles] or [""] * num_quantiles
    often = sorted(facts.values.items(), key=lambda item: -item[1])
    return [
        facts.column,
        who,
        f"{facts.rows:,}",
        "" if facts.gaps is None else f"{facts.gaps:,}",
        _number(facts.mean),
        _number(facts.deviation),
        _number(facts.smallest),
        *quantiles,
        _number(facts.greatest),
        listed([f"{value}: {count:,}" for value, count in often], _NAMED, more=", ..."),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _charts(finding: DescribeFinding) -> Iterator[Chart]:
    for facts in finding.pooled[:_CHARTS]:
        title = f"{facts.column}: rows by value" if facts.values else f"{facts.column}: rows by cell"
        names = list(facts.values) or [f"{number(a)} to {number(b)}" for a, b in pairwise(facts.edges)]
        counts = [float(n) for n in (facts.values.values() or facts.histogram)]
        note = "" if len(names) <= MAX_BARS else f"The first {MAX_BARS} of {len(names)}."
        yield Chart(title, bar_chart(title, "rows", names[:MAX_BARS], {"rows": counts[:MAX_BARS]}), note)
    if 2 <= len(finding.correlated) <= MAX_BARS:
        title = "Correlations of columns, their sizes"
        sizes = np.abs(np.array(finding.correlations))
        yield Chart(title, heat_map(title, finding.correlated, sizes, "size of the correlation", limit=1.0))


SECTIONS = {DescribeFinding.name: reading(DescribeFinding, describe_section)}
OVERVIEWS = {DescribeFinding.name: reading(DescribeFinding, describe_overview)}
