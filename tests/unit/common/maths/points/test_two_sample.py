"""Tests of `kernfed.two_sample`: the statistic, p-values under one law, and power under others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import kernfed
from kernfed.errors import ConfigError, DataError
from kernfed.maths.points.two_sample import two_sample
from kernfed_testing.limits import LIMIT_S


def by_formula(x: Any, y: Any, lengthscale: float) -> float:
    """The unbiased statistic, pair by pair."""

    def k(a: Any, b: Any) -> float:
        return float(np.exp(-np.square(a - b).sum() / (2 * lengthscale**2)))

    within = [
        sum(k(a, b) for i, a in enumerate(s) for j, b in enumerate(s) if i != j) / (len(s) * (len(s) - 1))
        for s in (x, y)
    ]
    return sum(within) - 2 * sum(k(a, b) for a in x for b in y) / (len(x) * len(y))


def test_the_statistic_is_that_of_the_formula() -> None:
    """Unequal sizes, two columns; one column may come without its axis."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(7, 2)), draw.normal(size=(5, 2)) + 1.0
    found = two_sample(x, y, lengthscale=0.7, num_permutations=10)
    assert found.statistic == pytest.approx(by_formula(x, y, 0.7), abs=1e-14)
    assert two_sample(x[:, 0], y[:, 0], num_permutations=9) == two_sample(x[:, :1], y[:, :1], num_permutations=9)


def test_the_p_value_counts_all_divisions_of_a_tiny_sample() -> None:
    """Of four rows there are six divisions; {0, 1} against {5, 6} and its mirror have the largest statistic: 1 in 3."""
    found = two_sample(np.array([0.0, 1.0]), np.array([5.0, 6.0]), num_permutations=5000, seed=3)
    assert found.p_value == pytest.approx(1 / 3, abs=0.03)
    assert found.lengthscale == pytest.approx(4.5)


def test_p_values_are_uniform_under_one_law() -> None:
    """Over 300 pairs of samples of one law, of unequal sizes, no level is exceeded beyond four standard errors."""
    draw = np.random.default_rng(7)
    found = np.array(
        [
            two_sample(draw.standard_t(3, size=(20, 2)), draw.standard_t(3, size=(12, 2)), num_permutations=99).p_value
            for _ in range(300)
        ]
    )
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        assert abs((found <= level).mean() - level) <= 4 * np.sqrt(level * (1 - level) / 300)


@pytest.mark.parametrize("change", ["mean", "scale", "dependence"])
def test_a_difference_of_the_laws_is_found(change: str) -> None:
    """A shift, another spread, and columns that depend on each other with the same margins."""
    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(150, 2)), draw.normal(size=(150, 2))
    if change == "dependence":
        y[:, 1] = 0.9 * y[:, 0] + np.sqrt(1 - 0.81) * y[:, 1]
    else:
        y = y + 0.6 if change == "mean" else 2.0 * y
    found = two_sample(x, y, num_permutations=199)
    assert found.p_value == 1 / 200
    assert found.statistic > 0


def test_it_depends_on_the_seed_and_not_on_the_order_of_rows() -> None:
    """The same seed, the same p-value; the lengthscale is of the rows, whichever sample they are in."""
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(700, 1)), draw.normal(size=(700, 1))
    first = two_sample(x, y, num_permutations=19, seed=1)
    assert two_sample(x, y, num_permutations=19, seed=1) == first
    assert two_sample(y, x[::-1], num_permutations=19, seed=1).lengthscale == first.lengthscale
    assert two_sample(x, y, num_permutations=19, seed=2).statistic == pytest.approx(first.statistic, abs=1e-3)


def test_equal_rows_tell_nothing() -> None:
    """All rows alike: every division is as good, and there is no lengthscale to find."""
    found = two_sample(np.ones((4, 2)), np.ones((5, 2)), num_permutations=20)
    assert (found.p_value, found.lengthscale) == (1.0, 1.0)
    assert found.statistic == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "settings", "error", "words"),
    [
        (np.ones((3, 2)), np.ones((3, 1)), {}, DataError, "x has 2 columns and y 1"),
        (np.ones((1, 2)), np.ones((3, 2)), {}, DataError, "x has 1 rows; a sample needs at least 2"),
        (np.ones((3, 2)), np.full((3, 2), np.nan), {}, DataError, "y holds NaN or infinity"),
        (np.ones((3, 2)), np.array([["1", "dead"]] * 3), {}, DataError, "y holds something that is no number"),
        (np.ones((3, 2, 1)), np.ones((3, 2)), {}, DataError, "x has shape"),
        (np.ones(3) + 1j, np.ones(3), {}, DataError, "x holds something that is no number"),
        (np.ones(3), np.ones(3), {"num_permutations": 0}, ConfigError, "give a whole number from 1 on"),
        (np.ones(3), np.ones(3), {"num_permutations": 1.5}, ConfigError, "give a whole number from 1 on"),
        (np.ones(3), np.ones(3), {"seed": 0.5}, ConfigError, "seed is 0.5; give a whole number"),
        (np.ones(3), np.ones(3), {"lengthscale": "wide"}, ConfigError, "give a number above 0"),
        (np.ones(3), np.ones(3), {"lengthscale": 0.0}, ConfigError, "give a number above 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    x: Any, y: Any, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Shapes, values and settings, each with what to give."""
    with pytest.raises(error, match=words):
        two_sample(x, y, **settings)


@pytest.mark.slow
def test_it_is_loaded_when_it_is_used() -> None:
    """`kernfed.two_sample` is the function, and `import kernfed` loads no numpy."""
    assert kernfed.two_sample is two_sample
    code = (
        "import sys, kernfed; assert 'numpy' not in sys.modules; kernfed.two_sample; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT_S)
