"""Centres of k-means, of rows and of embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.methods.personalise.columns.centres import Centres, Waves, of_embedding, of_rows, telling

PLACES = np.array([[-0.5, 0.3], [0.4, 0.5], [0.2, -0.6]])


def groups(num: int, width: float = 0.1) -> Floats:
    """Rows around three places, half of them around the first."""
    random = np.random.default_rng(5)
    label = np.array([0, 0, 1, 2])[np.arange(num) % 4]
    rows: Floats = PLACES[label] + width * random.normal(size=(num, 2))
    return rows


def waves(num: int = 300) -> Waves:
    random = np.random.default_rng(6)
    return Waves(random.normal(size=(num, 2)), random.uniform(0.0, 2.0 * np.pi, num))


def test_centres_of_rows_are_means_of_their_groups() -> None:
    """No row is nearer to another centre, shares count rows, and the error is that of the nearest centre."""
    rows = groups(80)
    found = of_rows(rows, 3, rng.stream(1, "test"))
    label = np.array([0, 0, 1, 2])[np.arange(80) % 4]
    for j, share in ((0, 0.5), (1, 0.25), (2, 0.25)):
        mean = rows[label == j].mean(axis=0)
        near = int(np.square(found.places - mean).sum(axis=1).argmin())
        np.testing.assert_allclose(found.places[near], mean, atol=1e-12)
        assert found.shares[near] == pytest.approx(share)
    assert found.squared_error(PLACES) < 3 * 0.01
    assert found.squared_error(rows[:0]) == 0.0


def test_centres_of_fewer_rows_than_centres_are_the_rows() -> None:
    """Some centres are the same, and have no share."""
    rows = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    found = of_rows(rows, 4, rng.stream(1, "test"))
    assert found.squared_error(rows) == 0.0
    assert sorted(found.shares) == pytest.approx([0.0, 0.0, 1 / 3, 2 / 3])


def test_an_embedding_has_the_centres_of_its_rows() -> None:
    """Without a row, whatever the beginning is: two centres begin at one place here."""
    rows, drawn = groups(2000), waves()
    points = np.random.default_rng(7).normal(size=(100, 2)) * 0.5
    embedding = drawn.features(rows).mean(axis=0)
    first = telling(embedding, drawn, points, 3, 0.01)
    found = of_embedding(embedding, drawn, [np.array([[0.0, 0.0], [0.0, 0.0], [0.1, 0.1]]), first], 0.01)
    best = of_rows(rows, 3, rng.stream(1, "test"))
    np.testing.assert_allclose(found.places[0], best.places[0], atol=0.02)
    np.testing.assert_allclose(found.shares, [0.5, 0.25, 0.25], atol=0.02)
    assert found.squared_error(rows) < 1.02 * best.squared_error(rows)


def test_groups_that_have_a_width_have_the_features_of_many_rows() -> None:
    """Hoeffding: with probability 1 - 1e-6 none of 300 means of 20,000 draws is further off than this."""
    drawn, num = waves(), 20_000
    rows = PLACES[:1] + 0.3 * np.random.default_rng(8).normal(size=(num, 2))
    apart = np.abs(drawn.features(rows).mean(axis=0) - drawn.features(PLACES[:1], 0.09)[0]).max()
    assert apart < np.sqrt(2.0 / 300) * np.sqrt(2.0 * np.log(2 * 300 / 1e-6) / num)


def test_the_nearest_centre_counts() -> None:
    """Of two centres that are as far, either."""
    found = Centres(np.array([[0.0], [2.0]]), np.array([0.5, 0.5]))
    assert found.squared_error(np.array([[1.0], [3.0], [-1.0]])) == 3.0
