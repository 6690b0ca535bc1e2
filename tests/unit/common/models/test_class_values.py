"""Tests of `kernfed.models.class_values`: the names of classes as a table has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.models.class_values import class_codes, class_values


@pytest.mark.parametrize(
    ("classes", "values"),
    [
        (("0", "1"), [0, 1]),
        (("10", "-2", "3"), [10, -2, 3]),
        (("0.5", "1"), [0.5, 1.0]),
        (("True", "False"), [True, False]),
        (("false", "true"), [False, True]),
        (("no", "1"), ["no", "1"]),
        (("01", "1"), ["01", "1"]),
        (("1e3", "1"), ["1e3", "1"]),
        (("inf", "nan"), ["inf", "nan"]),
        (("9" * 30, "1"), ["9" * 30, "1"]),
    ],
)
def test_names_become_what_a_table_of_them_holds(classes: tuple[str, ...], values: list[Any]) -> None:
    """Integers, numbers and booleans where all names are such and written plainly; else all stay text."""
    found = class_values(classes).tolist()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]
    assert class_values(classes, "text").tolist() == list(classes)


def test_values_may_be_given_in_any_order() -> None:
    """Each value goes to the class that is written like it."""
    assert class_values(("0", "1"), [1.0, 0.0]).tolist() == [0.0, 1.0]
    assert class_values(("False", "True"), [True, False]).tolist() == [False, True]


@pytest.mark.parametrize("labels", ["txt", [0], [0, 2], [0, 0]])
def test_values_that_do_not_fit_are_refused(labels: Any) -> None:
    """The message names what was given."""
    with pytest.raises(ConfigError, match="give"):
        class_values(("0", "1"), labels)


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, 1],
        [1.0, 0.0, 1.0],
        ["1", "0", " 1 "],
        np.array([[1], [0], [1]]),
        pd.Series([1, 0, 1], dtype="Int64"),
        pd.Series(["1", "0", "1"], dtype="category"),
    ],
)
def test_a_target_is_read_whatever_its_type(values: Any) -> None:
    """Integers, numbers and text of the same classes are the same."""
    assert class_codes(values, ("0", "1")).tolist() == [1, 0, 1]


def test_a_value_of_no_class_is_none() -> None:
    """Gaps and strangers have no class; a column of strangers alone is refused, as is what is no column."""
    mixed: Any = [None, 7, float("nan"), True, "1"]
    assert class_codes(mixed, ("0", "1")).tolist() == [-1, -1, -1, -1, 1]
    assert class_codes([], ("0", "1")).tolist() == []
    with pytest.raises(DataError, match="no value of the target is one of the model's classes 0, 1"):
        class_codes(["yes", "no"], ("0", "1"))
    with pytest.raises(DataError, match="one value for each row"):
        class_codes(np.zeros((3, 2)), ("0", "1"))
