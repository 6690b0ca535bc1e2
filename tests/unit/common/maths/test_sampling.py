"""`kernfed.maths.sampling`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.sampling import inclusion_probabilities, sample_clients

NAMES = [f"c{i}" for i in range(10)]


@given(st.floats(0.01, 1.0), st.integers(0, 2**40), st.integers(0, 1000))
def test_a_sample_has_the_asked_share_and_does_not_depend_on_order(fraction: float, seed: int, round_num: int) -> None:
    """The same names are drawn whatever the order in which clients are given."""
    drawn = sample_clients(NAMES, fraction, seed, round_num)
    assert drawn == sample_clients(NAMES[::-1], fraction, seed, round_num)
    assert list(drawn) == sorted(set(drawn))
    assert fraction * 10 <= len(drawn) + 1e-9 < fraction * 10 + 1.0001


def test_rounds_draw_anew() -> None:
    """Over many rounds every client takes part, each about as often."""
    counts = dict.fromkeys(NAMES, 0)
    for round_num in range(500):
        for name in sample_clients(NAMES, 0.3, 7, round_num):
            counts[name] += 1
    # Hoeffding for 500 draws with probability .3: within 500 * sqrt(log(2 * 10 / 1e-9) / 1000) = 77 of 150.
    assert all(abs(count - 150) <= 77 for count in counts.values())


def test_clients_of_larger_weight_are_drawn_more_often() -> None:
    """As often as their probabilities say, the same number in every round, whatever the order of clients."""
    weights = {"c0": 0.2, "c1": 0.5, "c2": 30.0}
    expected = inclusion_probabilities([weights.get(name, 1.0) for name in NAMES], 4)
    assert float(expected.sum()) == pytest.approx(4.0)
    assert expected[2] == 1.0
    assert expected[0] / expected[3] == pytest.approx(0.2)
    counts = dict.fromkeys(NAMES, 0)
    for round_num in range(2000):
        drawn = sample_clients(NAMES, 0.4, 7, round_num, weights)
        assert len(drawn) == 4
        assert drawn == sample_clients(NAMES[::-1], 0.4, 7, round_num, weights)
        for name in drawn:
            counts[name] += 1
    # Hoeffding for 2,000 draws: within 2000 sqrt(log(2 * 10 / 1e-9) / 4000) = 154 of what is expected.
    assert all(abs(counts[name] - 2000 * p) <= 154 for name, p in zip(NAMES, expected, strict=True))
    assert counts["c2"] == 2000


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12), st.integers(0, 2**40), st.data())
def test_any_weights_give_as_many(weights: list[float], seed: int, data: st.DataObject) -> None:
    """No rounding of their sum loses or doubles a client."""
    names = [f"c{i}" for i in range(len(weights))]
    count = data.draw(st.integers(1, len(names)))
    drawn = sample_clients(names, count / len(names), seed, 3, dict(zip(names, weights, strict=True)))
    assert len(set(drawn)) == len(drawn) == count
