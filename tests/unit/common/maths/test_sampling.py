"""`kernfed.maths.sampling`."""

from hypothesis import given
from hypothesis import strategies as st

from kernfed.maths.sampling import sample_clients

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
