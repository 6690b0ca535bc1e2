"""Tests of `kernfed.rng`: bits, distributions, streams."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kernfed import rng
from kernfed.rng import natural_logarithm, normal_quantile, stream


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()


PINNED = {
    "words": "56ad3f90198d86dd5ec1be9c6027679f73483bebe59e44b4aeca4f6c6e688d43",
    "uniform": "d16b85483f16940b25578c9df287ae512eae8dee7f92df911f1875af0f2831d4",
    "normal": "9b2b2e8301305b9da87c8a131f28112174bec322db22f0e7b123838937d68a9d",
    "inverse_chi": "e6e10de9c731c03cc53e530ad6b7bf19c16006e5f5c83478ff14d48e8c5ab09c",
    "permutation": "bcc05125431c26722501d66566201584593a97d65700ca68e37870d08d6d95fd",
    "integers": "3641706577602540c11c303dd652910aac882ca615af14b36b277c82f360a9c6",
}
"""SHA-256 of first draws: federations whose ends run different releases rely on these bits."""


def first_draws() -> dict[str, np.ndarray]:
    return {
        "words": stream(20, "pinned", "words").words(1000),
        "uniform": stream(20, "pinned", "uniform").uniform(1000),
        "normal": stream(20, "pinned", "normal").normal(300, 400),
        "inverse_chi": stream(20, "pinned", "chi").inverse_chi(1000, 3),
        "permutation": stream(20, "pinned", "permutation").permutation(1000),
        "integers": stream(20, "pinned", "integers").integers(1000, 1000),
    }


@pytest.mark.parametrize("name", PINNED)
def test_first_draws_keep_their_bits(name: str) -> None:
    """Draws have the same bits on every platform and with every library version."""
    assert digest(first_draws()[name]) == PINNED[name]


def test_philox_words_are_those_of_the_published_generator() -> None:
    """Raw words equal Philox4x64-10 computed from its definition with Python integers."""
    key = int.from_bytes(hashlib.sha256(b"5/1:a").digest()[:16], "little")
    keys = [key & (2**64 - 1), key >> 64]
    counter = [1, 0, 0, 0]  # numpy counts before it draws
    for _ in range(10):
        low0, high0 = divmod(0xD2E7470EE14C6C93 * counter[0], 2**64)[::-1]
        low1, high1 = divmod(0xCA5A826395121157 * counter[2], 2**64)[::-1]
        counter = [high1 ^ counter[1] ^ keys[0], low1, high0 ^ counter[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B97F4A7C15) % 2**64, (keys[1] + 0xBB67AE8584CAA73B) % 2**64]
    assert stream(5, "a").words(4).tolist() == counter


def test_names_separate_streams() -> None:
    """Streams of different seeds or paths differ, also where the joined names are equal."""
    paths = [("",), ("ab", "c"), ("a", "bc"), ("abc",)]
    streams = [stream(1), stream(2), stream(-1), *(stream(1, *names) for names in paths)]
    assert len({s.words(1)[0] for s in streams}) == len(streams)


def test_draws_do_not_depend_on_how_they_are_split() -> None:
    """Two draws of a stream are the halves of one draw."""
    whole = stream(3).normal(100_000)
    halves = stream(3)
    assert np.array_equal(np.concatenate([halves.normal(1), halves.normal(99_999)]), whole)


def test_logarithm_is_right_to_the_last_bits() -> None:
    """The own logarithm agrees with the library's to 4 units in the last place."""
    x = np.concatenate([stream(1).uniform(20_000), 2.0 ** -np.arange(1, 60), 1e300 * stream(2).uniform(100)])
    want = np.log(x)
    assert np.max(np.abs(natural_logarithm(x) - want) / np.abs(want)) < 4 * 2.0**-52


def test_normal_quantile_agrees_with_scipy() -> None:
    """AS241 claims about 16 digits; an independent implementation agrees to 4e-15, tails included."""
    p = np.concatenate([stream(4).uniform(20_000), 2.0 ** -np.arange(1, 54), 1 - 2.0 ** -np.arange(1, 53)])
    want = special.ndtri(p)
    assert np.max(np.abs(normal_quantile(p) - want) / np.maximum(np.abs(want), 1e-2)) < 4e-15


def test_normals_have_normal_moments() -> None:
    """Mean and mean square of N normals are within the two-sided bound at delta = 1e-9.

    The mean is N(0, 1/N): |mean| <= sqrt(2 log(2/delta)/N). The sum of squares is chi-square: Laurent & Massart
    (2000), Lemma 1, give |mean square - 1| <= 2 sqrt(log(2/delta)/N) + 2 log(2/delta)/N.
    """
    n, delta = 1_000_000, 1e-9
    z = stream(6, "moments").normal(n)
    log = math.log(2 / delta)
    assert abs(z.mean()) <= math.sqrt(2 * log / n)
    assert abs(np.square(z).mean() - 1) <= 2 * math.sqrt(log / n) + 2 * log / n


@pytest.mark.parametrize(("name", "cdf"), [("uniform", lambda x: x), ("normal", special.ndtr)])
def test_draws_have_their_distribution(name: str, cdf: object) -> None:
    """The empirical distribution is within the Dvoretzky-Kiefer-Wolfowitz bound at delta = 1e-9."""
    n, delta = 200_000, 1e-9
    values = np.sort(cdf(getattr(stream(7, name), name)(n)))  # type: ignore[operator]  # a distribution function
    bound = math.sqrt(math.log(2 / delta) / (2 * n))
    grid = np.arange(1, n + 1) / n
    assert max(np.abs(grid - values).max(), np.abs(grid - 1 / n - values).max()) <= bound


@pytest.mark.parametrize("degrees", [1, 3, 5])
def test_inverse_chi_makes_student_t(degrees: int) -> None:
    """A normal times an inverse chi is Student-t: Dvoretzky-Kiefer-Wolfowitz at delta = 1e-9."""
    n, delta = 100_000, 1e-9
    t = stream(8, "z").normal(n) * stream(8, "chi").inverse_chi(n, degrees)
    values = np.sort(special.stdtr(degrees, t))
    assert np.abs(np.arange(1, n + 1) / n - values).max() <= math.sqrt(math.log(2 / delta) / (2 * n)) + 1 / n


def test_uniforms_never_reach_the_ends() -> None:
    """The extreme words give the smallest and largest uniforms, which are inside (0, 1) and have finite quantiles."""
    from kernfed.rng import _uniform_from_words

    u = _uniform_from_words(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert u.tolist() == [2.0**-53, 1 - 2.0**-53]
    assert np.isfinite(normal_quantile(u)).all()


@given(st.integers(0, 200), st.integers(0, 2**63 - 1))
def test_permutation_holds_each_index_once(size: int, seed: int) -> None:
    """A permutation of n is 0 … n-1 in some order."""
    assert np.sort(stream(seed).permutation(size)).tolist() == list(range(size))


def test_permutations_are_uniform() -> None:
    """All 24 orders of 4 come equally often: Hoeffding over the orders at delta = 1e-9."""
    n, delta = 20_000, 1e-9
    s = stream(9)
    orders = [tuple(s.permutation(4)) for _ in range(n)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert np.abs(counts / n - 1 / 24).max() <= math.sqrt(math.log(2 * 24 / delta) / (2 * n))


@given(st.integers(1, 2**63), st.integers(0, 50), st.integers(0, 2**63 - 1))
def test_integers_stay_in_range(bound: int, size: int, seed: int) -> None:
    """Integers lie in 0 … bound-1, for every bound."""
    drawn = stream(seed).integers(bound, size)
    assert drawn.shape == (size,)
    assert all(0 <= value < bound for value in drawn.tolist())


def test_integers_are_uniform_where_a_remainder_is_not() -> None:
    """With bound 3 * 2^61 a plain remainder favours small values by 1.5; Hoeffding at delta = 1e-9 finds none of it."""
    n, delta = 100_000, 1e-9
    share = (stream(10).integers(3 * 2**61, n) < 2**61).mean()
    assert abs(share - 1 / 3) <= math.sqrt(math.log(2 / delta) / (2 * n))


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1])
def test_integers_refuse_a_bad_bound(bound: int) -> None:
    """A bound outside 1 … 2^63 is an error."""
    with pytest.raises(ValueError, match="bound"):
        stream(1).integers(bound, 1)


def test_a_seed_of_names_is_the_first_integer_of_their_stream() -> None:
    """Seeds of clients and rounds stay what they were: models' bits depend on them."""
    assert rng.seed(7, "batches", "a") == int(rng.stream(7, "batches", "a").integers(2**63, 1)[0])
    assert rng.seed(7, "learner", "a", bound=2**31 - 1) == int(rng.stream(7, "learner", "a").integers(2**31 - 1, 1)[0])
    assert rng.seed(7, "batches", "a") != rng.seed(7, "batches", "b")
