"""What is told of how different clients are."""

from __future__ import annotations

from dataclasses import replace

from kernfed.methods.ridge.finding import DifferenceOfClient, DifferencesFinding
from kernfed.methods.ridge.report import differences_overview, differences_section, words
from kernfed_testing.findings import written

FINDING = DifferencesFinding(
    ridge=0.01,
    norm=0.4,
    upsilon=12.0,
    contraction=0.3,
    growth=0.001,
    rows_enough=78188.0,
    clients=(
        DifferenceOfClient(client="ant", rows=300, share=0.5, difference=0.02, by_chance=0.025, upsilon=3.0),
        DifferenceOfClient(client="bee", rows=300, share=0.5, difference=0.1, by_chance=0.025, upsilon=9.0),
    ),
)


def test_the_finding_is_read_back() -> None:
    """Its keys stand in their order, and one that is not known is left out."""
    assert [key for key, _ in written(FINDING)] == [
        "ridge",
        "norm",
        "upsilon",
        "contraction",
        "growth",
        "rows_enough",
        "clients",
    ]
    assert "rows_enough" not in dict(written(replace(FINDING, rows_enough=None)))


def test_who_is_different_stands_first() -> None:
    """The table begins with the client that is the farthest beyond chance; a terminal shows the same table."""
    table = differences_section(FINDING).table
    assert table is not None
    assert [row[0] for row in table.rows] == ["bee", "ant"]
    assert [row[4] for row in table.rows] == ["4", "0.8"]
    assert differences_overview(FINDING).table == table


def test_words_say_what_follows() -> None:
    """Of a step that diverges, of one that converges, and of numbers that are not found yet."""
    assert "multiplies the error by 0.3 or more at worst, and Theorem 1 says by 12 at most" in words(FINDING)
    assert "diverges" not in words(FINDING)
    assert "from 7.82e+04 rows a client" in words(FINDING)
    assert 'So that step diverges; step = "auto" cannot.' in words(replace(FINDING, contraction=1.5))
    assert "So each round of it helps." in words(replace(FINDING, upsilon=0.5))
    assert "raised a difference by 20%" in words(replace(FINDING, growth=0.2))
