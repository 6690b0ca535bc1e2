"""Tests of `kernfed.jobs.toml_text`: what is written is read again."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import ConfigError
from kernfed.jobs.toml_text import toml_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_tables_come_back(tables: dict[str, Any]) -> None:
    """Keys and texts of all signs, numbers, lists, and tables in each other."""
    assert tomllib.loads(toml_text(tables)) == tables


def test_it_reads_like_a_file_by_hand() -> None:
    """Keys of the top come first, each table has its heading, and what is unset is left out."""
    tables = {
        "name": "x",
        "method": {"name": "newton", "ridge": 1e-3},
        "seed": 3,
        "cohort": None,
        "data": {"ranges": {}},
    }
    want = 'name = "x"\nseed = 3\n\n[method]\nname = "newton"\nridge = 0.001\n\n[data.ranges]\n'
    assert toml_text(tables) == want


def test_what_no_file_holds_is_refused() -> None:
    """The message names the key."""
    with pytest.raises(ConfigError, match=r"method\.ridge: a value of type complex cannot stand in a job file"):
        toml_text({"method": {"ridge": 1j}})
