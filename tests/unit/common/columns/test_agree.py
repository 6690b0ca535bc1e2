"""Levels and means that clients agree on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.columns.agree import MAX_LEVELS, open_plans, settle
from kernfed.columns.expand import expand
from kernfed.columns.plan import (
    NUM_QUANTILES,
    ColumnFound,
    ColumnKind,
    ColumnPlan,
    MissingRule,
    UnknownRule,
    fault,
)
from kernfed.errors import DataError


def plan(name: str, kind: ColumnKind, **facts: Any) -> ColumnPlan:
    """An open plan."""
    return ColumnPlan(**{"name": name, "kind": kind, "missing": MissingRule.MEAN, **facts})


def levels(*names: str) -> ColumnFound:
    """Levels of a client."""
    return ColumnFound(levels=names, num_rows=0, mean=0.0, deviation=0.0)


def mean(num: int, value: float) -> ColumnFound:
    """A mean of a client."""
    return ColumnFound(levels=(), num_rows=num, mean=value, deviation=1.0)


WARD = plan("ward", ColumnKind.CATEGORY, unknown=UnknownRule.OTHER, missing=MissingRule.REFUSE)
AGE = plan("age", ColumnKind.NUMBER)


def test_levels_are_united_and_means_weighted_by_rows() -> None:
    """What is settled stays as it is; numbers are in their order."""
    done = plan("done", ColumnKind.DATE, since="2020-01-01", settled=True)
    agreed = settle([done, WARD, AGE], {"b": [levels("2", "10"), mean(10, 4.0)], "a": [levels("1"), mean(30, 8.0)]})
    assert agreed[0] == done
    assert agreed[1].levels == ("1", "2", "10")
    assert agreed[2].fill == 7.0
    assert open_plans(agreed) == ()


def test_weights_in_place_of_rows_count() -> None:
    """A cap on shares is one of means too; a client without rows has no say."""
    found = {"a": [mean(30, 8.0)], "b": [mean(10, 4.0)], "c": [mean(0, 1e9)]}
    assert settle([AGE], found, {"a": [10.0], "b": [10.0], "c": [0.0]})[0].fill == 6.0


def quantiles(values: Floats) -> ColumnFound:
    """What a client of these rows tells where single rows may be told of."""
    told = np.quantile(values, (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES)
    return ColumnFound(levels=(), num_rows=len(values), mean=0.0, deviation=1.0, quantiles=tuple(told.tolist()))


def test_a_median_and_ranks_are_those_of_the_rows_of_all() -> None:
    """Of clients that lie apart and have other numbers of rows; a median lies within a hundredth of the ranks."""
    random = np.random.default_rng(0)
    rows = {"a": random.normal(0, 1, 300), "b": np.exp(random.normal(1, 1, 90)), "c": np.full(40, 2.0)}
    everything = np.sort(np.concatenate(list(rows.values())))
    found = {client: [quantiles(values)] for client, values in rows.items()}
    median = settle([plan("age", ColumnKind.NUMBER, missing=MissingRule.MEDIAN)], found)[0].fill
    assert abs(np.searchsorted(everything, median) / len(everything) - 0.5) <= 0.011
    rank = settle([plan("age", ColumnKind.NUMBER, missing=MissingRule.REFUSE, rank=True)], found)[0]
    made = expand([rank], everything.reshape(-1, 1))[:, 0]
    apart = everything != 2.0  # those alike have the middle of their shares
    assert np.abs(made - (np.arange(len(everything)) + 0.5) / len(everything))[apart].max() < 0.015
    assert len(set(made[~apart])) == 1
    assert fault([rank]) == ""


def test_the_median_of_what_is_no_number_is_one_of_its_values() -> None:
    """Of truth values half of which are 1, the median is 0 or 1."""
    truth = plan("ok", ColumnKind.BOOLEAN, missing=MissingRule.MEDIAN)
    found = {"a": [quantiles(np.zeros(30))], "b": [quantiles(np.ones(29))]}
    assert settle([truth], found)[0].fill in (0.0, 1.0)


@pytest.mark.parametrize(
    ("plans", "found", "says"),
    [
        ([WARD], {"a": [levels("Male")], "b": [levels("male ")]}, "'Male' and 'male '"),
        ([WARD], {"a": [levels()]}, "no client has a level"),
        ([WARD], {"a": [levels(*map(str, range(MAX_LEVELS + 1)))]}, "looks like an identifier"),
        ([AGE], {"a": [mean(0, 0.0)]}, "no mean for gaps"),
        ([plan("age", ColumnKind.NUMBER, missing=MissingRule.MEDIAN)], {"a": [mean(0, 0.0)]}, "no median for gaps"),
        ([plan("age", ColumnKind.NUMBER, rank=True)], {"a": [mean(0, 0.0)]}, "no rank of its values"),
        ([WARD, plan("ward=x", ColumnKind.NUMBER, settled=True)], {"a": [levels("x")]}, "would be called 'ward=x'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    plans: list[ColumnPlan], found: dict[str, list[ColumnFound]], says: str
) -> None:
    """The message names the column and a remedy."""
    with pytest.raises(DataError, match=says):
        settle(plans, found)
