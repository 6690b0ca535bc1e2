"""Tests of `kernfed.methods.heads.ridge_path`: the grid of ridges that a search tries."""

from __future__ import annotations

import pytest

from kernfed.methods.heads.ridge_path import following


@pytest.mark.parametrize(
    ("ridge", "up", "missing", "curvature", "expected"),
    [
        (1e-3, False, 0.0, 0.1, 1e-4),
        (1e-3, False, 0.0, 0.0, 1e-4),
        (1e3, False, 0.0, 0.02, 1e-1),
        (1e-3, True, 0.0, 0.1, 1e-2),
        (1e-6, True, 0.05, 0.1, 0.01),
        (1e-6, True, 1e-2, 0.1, 1e-2),
        (1e-12, False, 0.0, 0.1, None),
        (1e6, True, 0.0, 0.1, None),
    ],
)
def test_the_next_ridge(ridge: float, up: bool, missing: float, curvature: float, expected: float | None) -> None:
    """A tenth or ten times the last one; further where the rows say that nothing is to be seen in between."""
    found = following(ridge, up=up, missing=missing, curvature=curvature)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-12))
