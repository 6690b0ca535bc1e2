"""The report's part on a method's own results: one entry per finding's name, each a function to a section.

A room's module `report` has them in `SECTIONS`, and in `OVERVIEWS` what a terminal shows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernfed.methods import rooms
from kernfed.methods.choice import ChoiceFinding, Tried
from kernfed.methods.ending import Comparison, EndFinding
from kernfed.methods.finding import reading
from kernfed.methods.scores import ScoresFinding
from kernfed.methods.shares import SharesFinding, percent
from kernfed.metric_names import METRICS
from kernfed.report.parts import Overview, Section, TableOf
from kernfed.report.scores import scores_overview, scores_section
from kernfed.wording import listed, number

_NAMED = 12
"""Clients that a cell names."""
_SHARES = 100
"""Clients in the table of shares, those of the most weight."""
_TRIED = 60
"""Ridges and lengthscales in the table of a choice, those of the least error."""


def sections() -> Mapping[str, Callable[[Mapping[str, Any]], Section]]:
    """A finding's name, as `Run.publish` gave it, to the function that makes a section of it."""
    of_methods = rooms.merged("kernfed.methods", "report", "SECTIONS")
    shared = {
        EndFinding.name: reading(EndFinding, end_section),
        SharesFinding.name: reading(SharesFinding, shares_section),
        ChoiceFinding.name: reading(ChoiceFinding, choice_section),
        ScoresFinding.name: reading(ScoresFinding, scores_section),
    }
    return {**shared, **of_methods}


def overviews() -> Mapping[str, Callable[[Mapping[str, Any]], Overview]]:
    """A finding's name to the function that makes the overview of it for `kernfed job show`."""
    of_methods = {
        name: make
        for m in rooms.modules("kernfed.methods", "report")
        for name, make in getattr(m, "OVERVIEWS", {}).items()
    }
    shared = {
        EndFinding.name: reading(EndFinding, end_overview),
        SharesFinding.name: reading(SharesFinding, shares_overview),
        ChoiceFinding.name: reading(ChoiceFinding, choice_overview),
        ScoresFinding.name: reading(ScoresFinding, scores_overview),
    }
    return {**shared, **of_methods}


def at_a_glance(findings: Mapping[str, Any]) -> list[Overview]:
    """The overviews of a job's findings, by name as in `findings.json`, but those that have nothing to tell."""
    found = [make(findings[name]) for name, make in overviews().items() if name in findings]
    return [overview for overview in found if overview.table.rows]


def end_section(finding: EndFinding) -> Section:
    """Make the section."""
    return Section("How the job ended", finding.words[:1].upper() + finding.words[1:] + ".", table=_table(finding))


def end_overview(finding: EndFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), "how the job ended", _table(finding))


def _table(finding: EndFinding) -> TableOf:
    return TableOf(["", ""], [list(row) for row in _rows(finding)])


def _rows(finding: EndFinding) -> Iterator[tuple[str, str]]:
    yield "arrived", {True: "yes", False: "no", None: "not known, or nothing to arrive at"}[finding.arrived]
    if finding.distance is not None:
        yield finding.measure, number(finding.distance)
    for found in finding.comparisons:
        pair = f"{found.model} against {found.called}, {METRICS.get(found.metric, found.metric)}"
        if found.pooled is not None and found.pooled_against is not None:
            yield f"{pair}, over all measured rows", f"{number(found.pooled)} against {number(found.pooled_against)}"
        yield f"{pair}, clients", _clients(found)


def _clients(found: Comparison) -> str:
    level = found.num_clients - found.num_better - len(found.worse)
    text = f"better at {found.num_better}, level at {level}, worse at {len(found.worse)}"
    losers = [f"{w.client} ({number(w.value)} against {number(w.against)})" for w in found.worse]
    return f"{text}: {listed(losers, _NAMED, more=' and {left} more')}" if losers else text


def shares_section(finding: SharesFinding) -> Section:
    """Make the section."""
    text = f"Clients count by {finding.by}." if finding.by else "The method forms no mean over clients."
    if len(finding.clients) > _SHARES:
        text += f" The {_SHARES} of the most weight, of {len(finding.clients)}."
    return Section("Who stands behind the result", text, table=_shares(finding))


def shares_overview(finding: SharesFinding) -> Overview:
    """Make the overview."""
    by = f", by {finding.by}" if finding.by else ""
    return Overview(
        finding.name, finding.to_json(), f"rows of each client, and its share of the weight{by}", _shares(finding)
    )


def _shares(finding: SharesFinding) -> TableOf:
    order = sorted(finding.clients, key=lambda c: (-(c.share or 0.0), -c.rows, c.client))
    rows = [
        (c.client, f"{c.rows:,}", "" if c.share is None else percent(c.share) + _capped(c.uncapped))
        for c in order[:_SHARES]
    ]
    return TableOf(["client", "rows", "share of the weight"], rows)


def _capped(uncapped: float | None) -> str:
    return "" if uncapped is None else f" (cohort.max_share; else {percent(uncapped)})"


def choice_section(finding: ChoiceFinding) -> Section:
    """Make the section."""
    text = finding.words[:1].upper() + finding.words[1:] + ". Test rows had no say."
    return Section("How ridge and lengthscale were chosen", text, table=_curve(finding))


def choice_overview(finding: ChoiceFinding) -> Overview:
    """Make the overview."""
    return Overview(finding.name, finding.to_json(), "mean squared error on training rows kept apart", _curve(finding))


def _curve(finding: ChoiceFinding) -> TableOf:
    least = sorted(finding.tried, key=lambda t: (t.error is None, t.error or 0.0))[:_TRIED]
    shown = [tried for tried in finding.tried if tried in least]
    scaled = any(tried.lengthscale is not None for tried in shown)
    head = ["lengthscale"] * scaled + ["ridge", "error", "standard error"]
    return TableOf(head, [_tried(finding, tried, scaled=scaled) for tried in shown])


def _tried(finding: ChoiceFinding, tried: Tried, *, scaled: bool) -> list[str]:
    taken = finding.ridge in (None, tried.ridge) and tried.lengthscale == finding.lengthscale
    star = "*" if taken and len(finding.tried) > 1 else ""
    length = [number(tried.lengthscale or 0.0)] if scaled else []
    error = "not reached" if tried.error is None else number(tried.error) + star
    spread = "" if tried.standard_error is None else number(tried.standard_error)
    return [*length, number(tried.ridge), error, spread]
