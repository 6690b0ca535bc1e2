"""Feature columns of typed columns: what the job says, and nothing of few rows that hangs on what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.columns.expand import expand
from kernfed.columns.plan import (
    ColumnKind,
    ColumnPlan,
    DatePart,
    MissingRule,
    UnknownRule,
    as_asked,
    fault,
    feature_names,
    without_coefficient,
)

GAP = math.nan


def plan(kind: ColumnKind = ColumnKind.NUMBER, **facts: Any) -> ColumnPlan:
    """A settled plan of column a."""
    return ColumnPlan(**{"name": "a", "kind": kind, "missing": MissingRule.REFUSE, "settled": True, **facts})


def column(of: ColumnPlan, values: list[float], least: int = 1) -> list[list[float]]:
    """Feature columns of one column, each as a list."""
    made: Floats = expand([of], np.array(values).reshape(-1, 1), least)
    return [list(map(float, values)) for values in made.T]


SEX = plan(ColumnKind.CATEGORY, levels=("f", "m"))


def test_a_category_has_a_column_for_each_level_and_a_gap_stays_one() -> None:
    """The place of a level is the column with the 1."""
    assert SEX.names == ("a=f", "a=m")
    assert column(SEX, [0, 1, 1]) == [[1, 0, 0], [0, 1, 1]]
    assert np.isnan(expand([SEX], np.array([[GAP]]))).all()


def test_levels_beyond_those_of_the_job_are_other_or_missing() -> None:
    """Unknown levels have places behind the known ones, and go where the rule says."""
    other = replace(SEX, unknown=UnknownRule.OTHER)
    assert other.names == ("a=f", "a=m", "a=other")
    assert column(other, [0, 3, 4])[2] == [0, 1, 1]
    missing = replace(SEX, unknown=UnknownRule.MISSING, missing=MissingRule.INDICATOR)
    assert missing.names == ("a=f", "a=m", "a=missing")
    assert column(missing, [2, 3, 1])[2] == [1, 1, 0]
    named = replace(other, levels=("f", "other"))
    assert named.names == ("a=f", "a=other")
    assert column(named, [5, 0, 1]) == [[0, 1, 0], [1, 0, 1]]


def test_gaps_of_numbers_take_the_mean_and_are_told_beside() -> None:
    """An indicator has a column of its own."""
    assert column(plan(missing=MissingRule.MEAN, fill=2.5), [1, GAP]) == [[1, 2.5]]
    assert column(plan(missing=MissingRule.INDICATOR, fill=2.5), [1, GAP]) == [[1, 2.5], [0, 1]]


def test_numbers_are_clipped_and_then_transformed() -> None:
    """log(1 + x) is of the clipped number."""
    assert column(plan(clip=(0.0, 9.0), log1p=True), [-5, 3, 99])[0] == pytest.approx(np.log([1, 4, 10]))


def test_a_rank_is_the_share_of_rows_below_and_beyond_the_ends_the_last_one() -> None:
    """Between quantiles it is interpolated; a number that several quantiles have is in their middle."""
    of = plan(rank=True, knots=(0.0, 1.0, 1.0, 2.0), missing=MissingRule.MEAN, fill=0.5)
    assert column(of, [-9, 0, 0.5, 1, 2, 99, GAP])[0] == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2, 7 / 8, 7 / 8, 0.5])


def test_quantiles_of_few_rows_tell_nothing_of_them() -> None:
    """Sums of ranks stand for groups of rows, whatever the quantiles are: two steps about one row say the same."""
    values = [float(v) for v in range(10)]
    steps = [plan(rank=True, knots=(at, at + 0.1)) for at in (5.4, 6.4)]
    one, other = (column(of, values, least=3)[0] for of in steps)
    assert one == other == [0.25] * 6 + [0.75] * 4
    assert column(steps[0], values)[0] != column(steps[1], values)[0]
    assert column(steps[0], [3, 1, 2], least=3) == column(steps[0], [2, 3, 1], least=3)


def test_a_date_has_columns_of_its_month_and_of_its_weekday() -> None:
    """The day that is 0 may be any; a moment is of its day; a gap has no month, and a column beside it."""
    parts = (DatePart.WEEKDAY, DatePart.DAYS, DatePart.MONTH)
    of = plan(ColumnKind.DATE, since="2020-02-28", parts=parts, missing=MissingRule.INDICATOR, fill=7.0)
    assert (of.names[0], of.names[1], of.names[8], of.names[-1]) == ("a", "a=monday", "a=january", "a=missing")
    made = dict(zip(of.names, column(of, [0.0, 1.9, 2.0, -60.0, GAP]), strict=True))
    assert made["a"] == [0.0, 1.9, 2.0, -60.0, 7.0]
    assert made["a=friday"] == [1, 0, 0, 0, 0]  # 28 February 2020
    assert made["a=saturday"] == [0, 1, 0, 0, 0]
    assert made["a=sunday"] == [0, 0, 1, 0, 0]
    assert made["a=monday"] == [0, 0, 0, 1, 0]  # 30 December 2019
    assert made["a=february"] == [1, 1, 0, 0, 0]
    assert made["a=march"] == [0, 0, 1, 0, 0]
    assert made["a=december"] == [0, 0, 0, 1, 0]
    assert made["a=missing"] == [0, 0, 0, 0, 1]
    assert fault([of], of.names) == ""
    alone = plan(ColumnKind.DATE, since="2020-02-28", parts=(DatePart.MONTH,))
    assert np.isnan(expand([alone], np.array([[GAP]]))).all()
    assert column(alone, [0, 0, 2], least=2)[1:3] == [[1, 1, 0], [0, 0, 0]]


def test_statistics_compare_months_with_the_first_that_a_row_has() -> None:
    """Months of no row have no coefficient, nor has the first of the others, nor a category's first level."""
    month = plan(ColumnKind.DATE, since="2020-01-01", parts=(DatePart.MONTH,))
    plans = [replace(SEX, name="s"), month]
    names = feature_names(plans)
    mean = [float(name in ("s=f", "s=m", "a=march", "a=may")) for name in names]
    without = without_coefficient(plans, names, mean)
    assert set(names) - without == {"s=m", "a=may"}


def test_the_columns_of_all_plans_stand_in_their_order() -> None:
    """Names and numbers agree."""
    plans = [SEX, plan(name="b", missing=MissingRule.INDICATOR)]
    assert feature_names(plans) == ("a=f", "a=m", "b", "b=missing")
    assert expand(plans, np.array([[1.0, 7.0]])).tolist() == [[0, 1, 7, 0]]


def test_a_level_of_few_rows_is_no_level_whatever_the_job_lists() -> None:
    """Two jobs that list other levels differ by no column of few rows: by that of b here, which 3 rows have."""
    names, rows = ("p", "q", "b"), [*"ppppp", *"qqqqq", *"bbb"]

    def made(levels: tuple[str, ...]) -> dict[str, list[float]]:
        known = {name: i for i, name in enumerate([*levels, "other", *(n for n in names if n not in levels)])}
        of = plan(ColumnKind.CATEGORY, levels=levels, unknown=UnknownRule.OTHER)
        return dict(zip(of.names, column(of, [known[row] for row in rows], least=5), strict=True))

    assert made(("p",))["a=other"] == made(("p", "q"))["a=q"] == [0] * 5 + [1] * 5 + [0] * 3
    assert made(names)["a=b"] == made(("p", "q"))["a=other"] == [0] * 13


def test_a_rare_level_of_an_ordinal_takes_the_place_of_the_most_frequent() -> None:
    """Its own place is of no consequence."""
    rows = ["lo"] * 5 + ["mid"] * 2 + ["hi"] * 4
    for order in (["lo", "mid", "hi"], ["mid", "lo", "hi"]):
        of = plan(ColumnKind.ORDINAL, levels=tuple(order))
        found = column(of, [order.index(row) for row in rows], least=3)[0]
        assert found == [order.index(row if row != "mid" else "lo") for row in rows]


def test_a_limit_moves_a_multiple_of_rows() -> None:
    """Two limits with one row between them move the same rows, so that their sums do not tell it."""
    values = [float(v) for v in range(10)]

    def moved(high: float) -> int:
        return sum(v == high for v in column(plan(clip=(-1.0, high)), values, least=3)[0])

    assert moved(6.5) == 3
    assert moved(5.5) == moved(4.5) == 6
    assert column(plan(clip=(-1.0, 5.5)), values)[0] == [*values[:6], 5.5, 5.5, 5.5, 5.5]


def test_gaps_of_few_rows_take_the_mean_of_the_others_whatever_is_agreed_on() -> None:
    """Neither the fill nor the indicator tells how many they are."""
    values = [1.0, 2.0, 3.0, GAP]
    found = [column(plan(missing=MissingRule.INDICATOR, fill=fill), values, least=2) for fill in (0.0, 1e9)]
    assert found[0] == found[1] == [[1, 2, 3, 2], [0, 0, 0, 0]]
    assert column(plan(missing=MissingRule.MEAN, fill=9.0), [*values, GAP], least=2)[0] == [1, 2, 3, 9, 9]


def test_agreed_plans_are_those_of_the_job_but_for_what_is_agreed_on() -> None:
    """Levels and fills that the job leaves open may be any; nothing else."""
    ranks = plan(name="c", rank=True, fill=0.5, settled=False)
    asked = (plan(ColumnKind.CATEGORY, settled=False), plan(name="b", missing=MissingRule.MEAN, settled=False), ranks)
    agreed = (
        replace(asked[0], levels=("x",), settled=True),
        replace(asked[1], fill=3.0, settled=True),
        replace(ranks, knots=(1.0, 2.0), settled=True),
    )
    assert as_asked(agreed, asked) == asked
    assert as_asked((replace(agreed[0], least_rows=7), *agreed[1:]), asked) != asked
    assert as_asked((SEX,), (replace(SEX, levels=("f",)),)) != (replace(SEX, levels=("f",)),)
    assert as_asked((*agreed, SEX), asked) != asked


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (plan(clip=(1.0,)), "no range"),
        (plan(levels=("x",)), "no place"),
        (plan(ColumnKind.CATEGORY), "lacks them"),
        (plan(ColumnKind.ORDINAL, levels=("x", "x")), "twice"),
        (plan(ColumnKind.ORDINAL, levels=("x", "y"), unknown=UnknownRule.OTHER), "others would go"),
        (plan(ColumnKind.DATE, since="2020-13-01"), "no day"),
        (plan(ColumnKind.BOOLEAN, log1p=True), "no numbers"),
        (plan(ColumnKind.BOOLEAN, rank=True, knots=(1.0,)), "no numbers"),
        (plan(log1p=True, rank=True, knots=(1.0,)), "twice"),
        (plan(rank=True), "quantiles"),
        (plan(knots=(1.0, 2.0)), "no place"),
        (plan(rank=True, knots=(2.0, 1.0)), "order"),
        (plan(parts=(DatePart.MONTH,)), "no date"),
    ],
)
def test_plans_that_no_job_file_makes_are_told(wrong: ColumnPlan, says: str) -> None:
    """A client refuses them of a coordinator."""
    assert says in fault([wrong])


def test_plans_make_the_features_that_are_asked_for() -> None:
    """A schema whose features are others is told, and a column that stands twice."""
    assert fault([SEX], ("a=f", "a=m")) == ""
    assert "do not make" in fault([SEX], ("a=f",))
    assert "stands twice" in fault([SEX, plan()])
