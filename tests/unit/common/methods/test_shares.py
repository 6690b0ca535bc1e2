"""Who stands behind a result: the finding, what is noted of it, and how people see it."""

from __future__ import annotations

import pytest

from kernfed.methods.shares import ALIKE, ClientShare, SharesFinding, outweighing
from kernfed.report.sections import overviews, sections


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"a": 0.34, "b": 0.33, "c": 0.33}, []),
        ({"a": 0.51, "b": 0.25, "c": 0.24}, ["a"]),
        ({"a": 0.9, "b": 0.1}, []),
        ({"a": 0.95, "b": 0.05}, ["a"]),
        ({"m": 0.36, **{f"c{i:02}": 0.032 for i in range(20)}}, ["m"]),
        ({"a": 1.0}, []),
    ],
)
def test_who_outweighs_the_others(parts: dict[str, float], named: list[str]) -> None:
    """More than half with three clients or more, or more than ten times the median of the others."""
    assert outweighing(parts) == named


def test_notes_name_the_client_and_what_to_do() -> None:
    """A share above the limit, a cap that acts, and rows that own the scales where means go by something else."""
    three = (ClientShare("a", 1, 0.1), ClientShare("b", 1, 0.1), ClientShare("m", 99, 0.8))
    (note,) = SharesFinding("training rows", three).notes()
    assert note.startswith("m has 80 % of the weight, by training rows")
    assert note.endswith("check the rows that it states, or give cohort.max_share")
    (note,) = SharesFinding("training rows", three).notes(may_cap=False)
    assert note.endswith("the result is mostly its own; check that this is meant")
    capped = (ClientShare("a", 60, 0.3), ClientShare("b", 60, 0.3), ClientShare("m", 2**52, 0.4, 1.0))
    (note,) = SharesFinding("training rows", capped).notes()
    assert note == "cohort.max_share acts on the weights by training rows: m counts 40 %, and not 100 %"
    alike = tuple(ClientShare(c, n, 1 / 3) for c, n in (("a", 60), ("b", 60), ("m", 2**52)))
    (note,) = SharesFinding(ALIKE, alike).notes()
    assert note.startswith("m states 100 % of the training rows: the scales and means that all agree on")


def test_page_and_terminal_show_rows_and_shares() -> None:
    """The report and `kernfed job show` have a line for each client, the most weight first; JSON has all."""
    finding = SharesFinding("training rows", (ClientShare("a", 60, 0.25), ClientShare("b", 1800, 0.75, 0.97)))
    section = sections()["shares"](finding.to_json())
    assert section.table is not None
    assert [list(row) for row in section.table.rows] == [
        ["b", "1,800", "75 % (cohort.max_share; else 97 %)"],
        ["a", "60", "25 %"],
    ]
    overview = overviews()["shares"](finding.to_json())
    assert overview.table.rows == section.table.rows
    assert overview.value["clients"][1] == {"client": "b", "rows": 1800, "share": 0.75, "uncapped": 0.97}
    assert SharesFinding.from_json(overview.value) == finding
