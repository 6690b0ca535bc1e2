"""Whose targets are of another scale than all others'."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.apart import how_far


def test_another_unit_stands_out() -> None:
    """Targets in thousandths lie thousands of deviations off; of three clients the others do not."""
    moments = {name: (np.array([m]), np.array([d])) for name, m, d in (("a", 105, 6), ("b", 107e3, 6e3), ("c", 106, 7))}
    off = how_far(moments)
    assert off["b"] > 10_000
    assert max(off["a"], off["c"]) < 60
    assert how_far({"a": moments["a"]}) == {"a": 0.0}


@pytest.mark.parametrize(("mean", "deviation"), [(1000.0, 0.0), (1000.0, 1e-9), (-1000.0, 0.0)])
def test_hardly_any_deviation_makes_nobody_else_stand_out(mean: float, deviation: float) -> None:
    """Of three clients, one with a wrong constant as its targets is the one that is named, on either side."""
    numbers = {"a": (0.0, 1.0), "b": (5.0, 1.2), "c": (mean, deviation)}
    off = how_far({name: (np.array([m]), np.array([d])) for name, (m, d) in numbers.items()}, 300.0)
    assert off["c"] > 800
    assert max(off["a"], off["b"]) < 10
