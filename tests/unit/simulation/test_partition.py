"""Rows dealt out to clients: every row once, in the file's order, as uneven as asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernfed import rng
from kernfed.errors import ConfigError, DataError
from kernfed_simulation.partition import (
    Partitioning,
    Scheme,
    client_names,
    deal,
    deal_by_column,
    dirichlet,
    parse_partitioning,
)
from kernfed_testing.properties import examples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", Partitioning(Scheme.IID)),
        ("quantity:0.5", Partitioning(Scheme.QUANTITY, alpha=0.5)),
        ("dirichlet:2", Partitioning(Scheme.DIRICHLET, alpha=2.0)),
        ("column:site", Partitioning(Scheme.COLUMN, column="site")),
        ("column:a:b", Partitioning(Scheme.COLUMN, column="a:b")),
    ],
)
def test_schemes_are_read(text: str, expected: Partitioning) -> None:
    """A name, and after a colon its parameter."""
    assert parse_partitioning(text) == expected


@pytest.mark.parametrize(
    "text", ["", "iid:3", "random", "quantity", "quantity:0", "dirichlet:-1", "dirichlet:x", "column"]
)
def test_other_texts_are_refused_with_what_is_possible(text: str) -> None:
    """The error names the option and what to write."""
    with pytest.raises(ConfigError, match=r"--partition .*(use iid, quantity|give a number above 0)"):
        parse_partitioning(text)


@settings(max_examples=examples(40), deadline=None)
@given(
    scheme=st.sampled_from([Scheme.IID, Scheme.QUANTITY, Scheme.DIRICHLET]),
    alpha=st.floats(0.3, 50),
    num_clients=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_every_row_goes_to_one_client(scheme: Scheme, alpha: float, num_clients: int, seed: int) -> None:
    """Nothing is lost or doubled; rows stay in order; everyone has the fewest rows; the seed decides."""
    labels = [str(i % 3) for i in range(200)]
    partitioning = Partitioning(scheme, alpha=alpha)
    parts = deal(partitioning, 200, labels, num_clients, seed)
    assert list(parts) == client_names(num_clients)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(200))
    assert all((np.diff(rows) > 0).all() and len(rows) >= 4 for rows in parts.values())
    again = deal(partitioning, 200, labels, num_clients, seed)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)


def test_skew_is_of_the_kind_that_the_name_says() -> None:
    """iid: equal sizes and classes. quantity: sizes differ, classes do not. dirichlet: classes differ."""
    labels = np.array([str(i % 4) for i in range(4000)])

    def shares(scheme: Scheme, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        parts = deal(Partitioning(scheme, alpha=alpha), 4000, list(labels), 5, seed=3)
        sizes = np.array([len(rows) for rows in parts.values()])
        classes = np.array([[(labels[rows] == c).mean() for c in "0123"] for rows in parts.values()])
        return sizes, classes

    sizes, classes = shares(Scheme.IID, 1.0)
    assert (sizes == 800).all()
    # Hypergeometric: deviation at most sqrt(.25 * .75 / 800) = .0153 per share; 5 of them.
    assert np.abs(classes - 0.25).max() < 5 * 0.0153
    sizes, classes = shares(Scheme.QUANTITY, 1.0)
    assert sizes.max() > 1.5 * sizes.min()
    assert (np.abs(classes - 0.25).max(axis=1) < 5 * np.sqrt(0.25 * 0.75 / sizes)).all()
    sizes, classes = shares(Scheme.DIRICHLET, 0.1)
    assert classes.max(axis=1).min() > 0.4


def test_dirichlet_shares_have_the_right_mean_and_variance() -> None:
    """Sum 1; variance (K - 1)/(K²(K alpha + 1)), within 5 standard errors over 4000 draws."""
    for alpha in (0.3, 2.0):
        draws = np.array([dirichlet(rng.stream(i, "test"), alpha, 4) for i in range(4000)])
        assert np.allclose(draws.sum(axis=1), 1.0)
        variance = 3 / (16 * (4 * alpha + 1))
        assert np.abs(draws.mean(axis=0) - 0.25).max() < 5 * np.sqrt(variance / 4000)
        squares = np.square(draws - 0.25)
        assert (np.abs(squares.mean(axis=0) - variance) < 5 * squares.std(axis=0) / np.sqrt(4000)).all()
    assert dirichlet(rng.stream(0, "test"), 1e-320, 5).max() == 1.0


def test_what_cannot_be_dealt_is_refused() -> None:
    """Too few rows, no classes to skew, or a skew that leaves clients empty."""
    with pytest.raises(DataError, match="10 rows are too few for 5 clients"):
        deal(Partitioning(Scheme.IID), 10, None, 5, seed=0)
    with pytest.raises(ConfigError, match="task is regression"):
        deal(Partitioning(Scheme.DIRICHLET, alpha=1.0), 100, None, 5, seed=0)
    with pytest.raises(DataError, match="no draw in"):
        deal(Partitioning(Scheme.DIRICHLET, alpha=1e-4), 100, ["a"] * 100, 5, seed=0)


def test_columns_give_a_client_for_each_value() -> None:
    """Names are in lower case and fit for a client; values that give the same name are refused."""
    parts = deal_by_column(["Zürich", "Basel 2", "Zürich", "va"])
    assert {name: list(rows) for name, rows in parts.items()} == {"basel-2": [1], "va": [3], "z-rich": [0, 2]}
    with pytest.raises(DataError, match="two values of the column give the client name 'a'"):
        deal_by_column(["a", "A"])
    with pytest.raises(DataError, match="client name ''"):
        deal_by_column(["--"])
