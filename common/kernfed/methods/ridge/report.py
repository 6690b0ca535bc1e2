"""The report's section on how different clients are, by the second moments of their features."""

from __future__ import annotations

from kernfed.methods.finding import reading
from kernfed.methods.ridge.finding import DifferencesFinding
from kernfed.report.parts import Overview, Section, TableOf
from kernfed.wording import number

FAR = 3.0
"""Times the difference of chance from which on a client is called different."""
_FOUND = 0.05
"""Growth of a difference in the last trip above which it is told to be larger."""


def differences_section(finding: DifferencesFinding) -> Section:
    """Make the section."""
    return Section("How different the clients' features are", words(finding), table=_table(finding))


def differences_overview(finding: DifferencesFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), "how different the clients' features are", _table(finding))


def words(finding: DifferencesFinding) -> str:
    """What follows, in sentences."""
    found = finding.contraction
    parts = [
        f"Second moments of all have the norm {number(finding.norm)}.",
        f"With the ridge {number(finding.ridge)} a step of the paper multiplies the error by {number(found)} or more "
        f"at worst, and Theorem 1 says by {number(finding.upsilon)} at most.",
    ]
    if found >= 1.0:
        parts.append('So that step diverges; step = "auto" cannot.')
    elif finding.upsilon < 1.0:
        parts.append("So each round of it helps.")
    if finding.rows_enough is not None:
        parts.append(
            f"For clients of one law Theorem 3 promises that it converges from {finding.rows_enough:.3g} rows a client."
        )
    if finding.growth > _FOUND:
        parts.append(
            f"The last trip still raised a difference by {finding.growth:.0%}: differences are larger than these."
        )
    return " ".join(parts)


def _table(finding: DifferencesFinding) -> TableOf:
    order = sorted(finding.clients, key=lambda c: (-c.times, c.client))
    rows = [
        (c.client, f"{c.rows:,}", number(c.difference), number(c.by_chance), f"{c.times:.2g}", number(c.upsilon))
        for c in order
    ]
    return TableOf(["client", "rows", "|C - C_j|", "by chance, about", "times", "part of Υ"], rows)


SECTIONS = {DifferencesFinding.name: reading(DifferencesFinding, differences_section)}
OVERVIEWS = {DifferencesFinding.name: reading(DifferencesFinding, differences_overview)}
