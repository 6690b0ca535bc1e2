"""The losses of two models on rows kept apart, as a client tells them."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed_client.methods.reweight.choice_steps import mean_square


def error(square: float, differences: Floats) -> float:
    """The standard error that the coordinator makes of it."""
    return float(np.sqrt((square - differences.mean() ** 2) / len(differences)))


def test_copies_of_rows_make_a_difference_no_surer() -> None:
    """Each row four times: the standard error is that of the rows once, not half of it."""
    once = np.random.default_rng(0).normal(size=30)
    unit = np.arange(30)
    plain = error(mean_square(once, unit), once)
    assert plain == pytest.approx(once.std() / np.sqrt(30))
    four = np.repeat(once, 4)
    assert error(mean_square(four, np.repeat(unit, 4)), four) == pytest.approx(plain)
    assert error(mean_square(four, np.arange(120)), four) == pytest.approx(plain / 2)
