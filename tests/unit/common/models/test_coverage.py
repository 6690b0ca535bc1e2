"""How far the truth may lie from a prediction, from rows that were kept apart."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.errors import ConfigError
from kernfed.models.coverage import reach


def test_as_many_rows_lie_within_as_are_asked_for() -> None:
    """Of draws of 19 rows of one law, a twentieth one lies within the 0.8-quantile with probability 16/20."""
    random = np.random.default_rng(5)
    draws = np.abs(random.standard_cauchy((4000, 20)))
    within = [draw[19] <= reach(draw[:19], np.ones(1), 0.8).within[0] for draw in draws]
    assert abs(np.mean(within) - 0.8) < 4 * (0.8 * 0.2 / 4000) ** 0.5  # four standard errors


def test_rows_of_which_more_is_expected_reach_further() -> None:
    """Distances are in units of what the model expects at a row."""
    found = reach(np.array([3.0, 1.0, 2.0]), np.array([1.0, 10.0]), 0.5)
    np.testing.assert_allclose(found.within, [2.0, 20.0])
    np.testing.assert_allclose(found.deviation, np.sqrt(14 / 3) * np.array([1.0, 10.0]))


def test_what_few_rows_cannot_tell_is_refused() -> None:
    """The error names the most that they tell, which they do tell; a share beyond 0 and 1 is none."""
    with pytest.raises(ConfigError, match=r"0\.9 cannot be told from 5 rows .* at most 0\.8333"):
        reach(np.arange(5.0), np.ones(1), 0.9)
    assert reach(np.arange(5.0), np.ones(1), 0.8333).within == [4.0]
    for wrong in (0.0, 1.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            reach(np.arange(5.0), np.ones(1), wrong)
