"""When a consensus moves away, and which predictions no targets make plausible."""

from __future__ import annotations

import numpy as np

from kernfed.methods.distill.growth import diverges, scale_of
from kernfed.methods.distill.scales import implausible


def test_growth_is_told_from_a_long_way() -> None:
    """Steps that grow far from the beginning diverge; even steps, or growth near the beginning, do not."""
    growing = [2.0**t for t in range(12)]
    assert diverges(growing, 4000.0, 10.0)
    assert not diverges(growing, 900.0, 10.0)
    assert not diverges([5.0] * 400, 2000.0, 1.0)
    assert diverges([5.0], 2e6, 1.0)
    assert diverges([], float("nan"), 1.0)
    assert not diverges([1.0, 2.0], 5.0, 0.0)


def test_the_scale_is_the_largest_of_what_is_known() -> None:
    """The consensus around its mean, the clients around it, and the targets' deviation."""
    v = np.array([[99.0], [101.0]])
    assert scale_of(v, [v, v], None) == 1.0
    assert scale_of(v, [v - 3.0, v + 3.0], None) == 3.0
    assert scale_of(v, [v], np.array([7.0])) == 7.0


def test_no_targets_make_such_predictions_plausible() -> None:
    """A thousand deviations off is not taken; where targets do not vary nothing is said."""
    assert implausible(np.array([[105.0], [1e5]]), np.array([105.0]), np.array([6.0]))
    assert not implausible(np.array([[105.0], [500.0]]), np.array([105.0]), np.array([6.0]))
    assert not implausible(np.array([[1e5]]), np.array([105.0]), np.array([0.0]))
