"""What embeddings promise: effective dimension, expected errors, the theorem's bound, and tests of pairs of clients."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.ledger import Ledger
from kernfed.federation.messages.base import Stated
from kernfed.maths.points.two_sample import two_sample
from kernfed.methods.personalise.embedding_messages import ClientEmbedding, EmbedRequest
from kernfed.methods.personalise.embeddings import View, embed, squared_distances
from kernfed.methods.personalise.gains import Spread, gain_of, probabilities_alike, spread_of, theorem_constant


def cosines(rows: Floats, seed: int = 0, many: int = 300) -> Floats:
    """Random cosines of a Gaussian kernel of lengthscale sqrt(2 d), (n, many)."""
    draw, d = np.random.default_rng(seed), rows.shape[1]
    omega = draw.normal(size=(d, many)) / np.sqrt(2.0 * d)
    found: Floats = np.sqrt(2.0 / many) * np.cos(rows @ omega + draw.uniform(0, 2 * np.pi, many))
    return found


@pytest.mark.parametrize("shape", [(5, 3), (40, 7), (7, 40), (400, 350), (350, 900)])
def test_the_largest_eigenvalue_is_that_of_the_covariance(shape: tuple[int, int]) -> None:
    """By whichever of the two matrices is small, and by iteration where both are large."""
    phi = np.random.default_rng(3).normal(size=shape) * np.linspace(0.2, 2.0, shape[1])
    covariance = np.cov(phi.T)
    assert spread_of(phi).largest == pytest.approx(float(np.linalg.eigvalsh(covariance)[-1]), rel=1e-8)


def test_the_square_of_the_covariance_is_estimated_without_bias() -> None:
    """Its mean over all samples of 5 of 8 rows is the estimate from the 8, as of every estimate without bias."""
    rows = np.random.default_rng(4).normal(size=(8, 3)) * np.array([3.0, 1.0, 0.5])
    samples = [spread_of(rows[list(some)]).square for some in itertools.combinations(range(8), 5)]
    whole = spread_of(rows).square
    assert min(samples) > 0  # none was cut off there
    assert float(np.mean(samples)) == pytest.approx(whole, rel=1e-10)
    many = np.random.default_rng(5).normal(size=(4000, 3)) * np.array([1.0, 2.0, 3.0])
    assert spread_of(many).square == pytest.approx(1 + 16 + 81, rel=0.1)


def test_few_rows_tell_no_square() -> None:
    """Of three rows it has no unbiased estimate; of one nothing is known."""
    phi = np.random.default_rng(6).normal(size=(3, 4))
    assert spread_of(phi).square == 0 < spread_of(phi).largest
    assert (spread_of(phi[:1]).largest, spread_of(phi[:1]).square) == (0.0, 0.0)


@pytest.mark.parametrize("shape", [(6, 4), (320, 310)])
def test_rows_that_are_all_the_same_do_not_vary(shape: tuple[int, int]) -> None:
    """Also where the largest eigenvalue would be found by iteration."""
    assert spread_of(np.full(shape, 0.25)) == Spread(0.0, 0.0)


def test_rows_that_vary_more_than_all_others_count() -> None:
    """Squares of a covariance differ by the fourth power of the scales, and are held to each client's own trace."""
    one, none = np.ones(3), np.zeros(3)
    asked = EmbedRequest(
        view=View.X,
        features=make_spec(Kernel.LINEAR, FeatureForm.COSINE, 3, 1.0, 0, 1),
        mean=none,
        deviation=one,
        target_mean=none[:1],
        target_deviation=one[:1],
        intercept=False,
        noise_factor=0.0,
        seed=1,
    )
    replies = {}
    for client, scale in zip("abc", (1.0, 1.0, 40.0), strict=True):
        phi = scale * np.random.default_rng(ord(client)).normal(size=(40, 3))
        found, spread = embed(phi), spread_of(phi)
        replies[client] = ClientEmbedding(
            num_rows=40, mean=found.mean, trace=found.trace, largest=spread.largest, square=spread.square
        )
    assert not Ledger().outliers(asked, replies)
    assert not [why for reply in replies.values() for why in reply.contradictions(Stated(40))]
    assert list(replace(replies["a"], square=replies["c"].square).contradictions(Stated(40)))


def test_alone_promises_the_error_of_its_own_rows() -> None:
    """Weight 1 on itself: the estimate of the mixture's error is Tr Σ/n, as for the client alone."""
    parts = [embed(cosines(np.random.default_rng(i).normal(size=(10 + i, 3)))) for i in range(3)]
    means, traces = np.array([p.mean for p in parts]), np.array([p.trace for p in parts])
    rows, distances = np.array([10.0, 11, 12]), np.sqrt(squared_distances(means))
    gain = gain_of(1, np.array([0.0, 1, 0]), means, traces, rows, 0.25, distances)
    assert gain.mixed == pytest.approx(gain.alone) == pytest.approx(traces[1] / 11)
    assert gain.effective_dimension == pytest.approx(traces[1] / 0.25)
    untold = gain_of(1, np.array([0.0, 1, 0]), means, traces, rows, 0.0, distances)
    assert (untold.effective_dimension, untold.bound, untold.nearest) == (0.0, 0.0, 0)


def test_what_is_promised_is_the_error_on_the_mean() -> None:
    """Clients of one law with equal weights: promised and true squared error agree over draws, below that alone."""
    truth = cosines(np.random.default_rng(99).normal(size=(20_000, 3))).mean(axis=0)
    promised, true = [], []
    for i in range(200):
        parts = [embed(cosines(np.random.default_rng((i, k)).normal(size=(12, 3)))) for k in range(4)]
        means, traces = np.array([p.mean for p in parts]), np.array([p.trace for p in parts])
        weights = np.full(4, 0.25)
        promised.append(gain_of(0, weights, means, traces, np.full(4, 12.0), 0.0, np.zeros((4, 4))).mixed)
        true.append(float(np.square(weights @ means - truth).sum()))
    error = float(np.std(promised)) / np.sqrt(200) + float(np.std(true)) / np.sqrt(200)
    assert abs(float(np.mean(promised)) - float(np.mean(true))) < 3 * error
    assert float(np.mean(true)) < 0.4 * float(traces[0]) / 12


def test_the_bound_takes_the_clients_that_are_near() -> None:
    """Equation (14) by hand over all sets of the nearest; a far client is in no best set."""
    rows, traces = np.array([20.0, 200, 200, 5000]), np.array([0.8, 0.8, 0.8, 0.8])
    distances = np.array([[0, 0.01, 0.02, 0.9], [0.01, 0, 0, 0], [0.02, 0, 0, 0], [0.9, 0, 0, 0]])
    gain = gain_of(0, np.array([1.0, 0, 0, 0]), np.zeros((4, 2)), traces, rows, 0.1, distances)
    u, by_hand = theorem_constant(4, 20), []
    assert u == pytest.approx(2 * np.log(80))
    for size in range(1, 5):
        n, far = rows[:size].sum(), distances[0, :size].max()
        second = u / np.sqrt(20) * max(np.sqrt((size - 1) / n), 1 / np.sqrt(20))
        by_hand.append(far**2 + (0.8 + 2 * far) / n + second * max(0.8 / np.sqrt(8), u / np.sqrt(20)))
    assert gain.bound == pytest.approx(min(by_hand))
    assert gain.nearest == int(np.argmin(by_hand)) + 1 < 4


def pair(first: Floats, second: Floats) -> float:
    """The p-value of two samples."""
    phi = [cosines(first), cosines(second)]
    parts, squares = [embed(p) for p in phi], np.array([spread_of(p).square for p in phi])
    means, traces = np.array([p.mean for p in parts]), np.array([p.trace for p in parts])
    found = probabilities_alike(means, traces, squares, np.array([len(first), len(second)], dtype=np.float64))
    assert found[0, 1] == found[1, 0]
    return float(found[0, 1])


def test_p_values_hold_under_one_law_and_find_two() -> None:
    """At 5 and 20 percent about as many of 400 pairs of one law are called different; a shift of 0.9 is found."""
    draw = np.random.default_rng(7)
    null = np.array([pair(draw.normal(size=(12, 2)), draw.normal(size=(30, 2))) for _ in range(400)])
    for level in (0.05, 0.2):
        assert abs(float((null < level).mean()) - level) < 3.5 * np.sqrt(level * (1 - level) / 400)
    shifted = [pair(draw.normal(size=(12, 2)), draw.normal(size=(30, 2)) + 0.9) for _ in range(50)]
    assert float(np.mean(np.array(shifted) < 0.05)) > 0.7


def test_p_values_are_near_those_of_permutations() -> None:
    """The test that sees the rows of both clients, with the kernel that the cosines stand for, says about the same."""
    draw = np.random.default_rng(8)
    apart = []
    for i in range(12):
        first, second = draw.normal(size=(25, 2)), draw.normal(size=(25, 2)) + 0.1 * i
        exact = two_sample(first, second, lengthscale=2.0, num_permutations=499, seed=i)
        apart.append(abs(exact.p_value - pair(first, second)))
    assert max(apart) < 0.15


def test_pairs_with_a_client_that_does_not_tell_are_not_known() -> None:
    """NaN beside 1 on the diagonal."""
    found = probabilities_alike(np.eye(3), np.full(3, 0.5), np.array([0.1, 0.0, 0.1]), np.full(3, 9.0))
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1, 2])
    assert (found.diagonal() == 1.0).all()
    assert 0 <= found[0, 2] <= 1
