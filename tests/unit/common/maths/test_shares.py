"""Shares of a sum, and their cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.shares import capped, shares

weights = st.lists(st.sampled_from([0.0, 1.0, 3.0, 40.0, 41.0, 1e4, 2.0**52]), min_size=1, max_size=7)


@given(weights, st.sampled_from([0.05, 0.2, 0.25, 1 / 3, 0.4, 0.5, 0.75, 1.0]))
def test_no_share_is_above_the_cap_and_no_weight_is_raised(parts: list[float], most: float) -> None:
    """The largest are lowered to one level, the others stay; with too few parts for the cap all count alike."""
    given_ = {str(i): part for i, part in enumerate(parts)}
    found = capped(given_, most)
    num = sum(part > 0 for part in parts)
    assert all(found[name] <= part for name, part in given_.items())
    if num:
        assert max(shares(found).values()) <= max(most, 1 / num) * (1 + 1e-9)
    assert len({found[name] for name, part in given_.items() if found[name] < part}) <= 1


def test_water_filling_by_hand() -> None:
    """100, 100 and 2^52 capped at 0.4: c = 0.4 (c + 200), so c = 400/3; what is below the cap stays the same object."""
    found = capped({"a": 100.0, "b": 100.0, "m": 2.0**52}, 0.4)
    assert (found["a"], found["b"]) == (100.0, 100.0)
    assert found["m"] == pytest.approx(400 / 3)
    fair = {"a": 100.0, "b": 100.0}
    assert capped(fair, 0.5) is fair


def test_shares_of_nothing_are_none() -> None:
    """Weights of 0 have shares of 0."""
    assert shares({"a": 0.0, "b": 0.0}) == {"a": 0.0, "b": 0.0}
    assert shares({"a": 1.0, "b": 3.0}) == {"a": 0.25, "b": 0.75}
