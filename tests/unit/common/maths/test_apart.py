"""Whose targets are of another scale than all others'."""

from __future__ import annotations

import numpy as np

from kernfed.maths.apart import how_far


def test_another_unit_stands_out() -> None:
    """Targets in thousandths lie thousands of deviations off; of three clients the others do not."""
    moments = {name: (np.array([m]), np.array([d])) for name, m, d in (("a", 105, 6), ("b", 107e3, 6e3), ("c", 106, 7))}
    off = how_far(moments)
    assert off["b"] > 10_000
    assert max(off["a"], off["c"]) < 60
    assert how_far({"a": moments["a"]}) == {"a": 0.0}
