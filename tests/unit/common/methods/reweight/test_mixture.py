"""Ratios to the mixture of all clients' training rows, against rows that are pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError, InvalidReplyError, InvalidTensorError
from kernfed.federation.messages.base import validate
from kernfed.maths.triangles import pack
from kernfed.methods.reweight.mixture import (
    FACTORS,
    LEAST_EFFECTIVE,
    NUM_FOLDS,
    RIDGES,
    MixtureRatio,
    Sums,
    check,
    class_ratios,
    fit,
    mean_range,
)
from kernfed.methods.reweight.mixture_messages import ClassCounts


def phi(x: Any, scale: float, num: int = 60) -> Any:
    """The constant and cosine features of a Gaussian kernel, (n, num + 1)."""
    random = np.random.default_rng(7)
    omega, phase = random.normal(size=(x.shape[1], num)) / scale, random.uniform(0, 2 * np.pi, num)
    return np.hstack([np.ones((len(x), 1)), np.sqrt(2 / num) * np.cos(x @ omega + phase)])


def sums(train: Any, test: Any, scale: float, folds: int = NUM_FOLDS) -> Sums:
    """Sums of a client whose rows are dealt to folds by turns."""
    z, zt = phi(train, scale), phi(test, scale)
    parts = [(z[np.arange(len(z)) % folds == f], zt[np.arange(len(zt)) % folds == f]) for f in range(NUM_FOLDS)]
    return Sums(
        np.array([len(a) for a, _ in parts]),
        np.stack([pack(a.T @ a) for a, _ in parts]),
        np.array([len(b) for _, b in parts]),
        np.stack([b.sum(axis=0) for _, b in parts]),
    )


def fitted(clients: dict[str, tuple[Any, Any]], shares: dict[str, float] | None = None) -> MixtureRatio:
    maps = [{c: sums(*rows, factor * 2.0) for c, rows in clients.items()} for factor in FACTORS]
    return fit(maps, shares or {c: float(len(rows[0])) for c, rows in clients.items()})


def normal(seed: int, centre: float, num: int) -> Any:
    x = np.random.default_rng(seed).normal(size=(num, 2))
    x[:, 0] += centre
    return x


def test_it_is_the_least_squares_ratio_of_pooled_rows() -> None:
    """The coefficients solve the ridge problem on all rows together; the mean over them is 1."""
    rows = {"ant": (normal(0, -1, 80), normal(1, 1, 50)), "bee": (normal(2, 0, 40), normal(3, 1, 90))}
    found = fitted(rows)
    scale = FACTORS[found.candidate] * 2.0
    z = np.vstack([phi(train, scale) for train, _ in rows.values()])
    tests = np.mean([phi(test, scale).mean(axis=0) for _, test in rows.values()], axis=0)
    penalty = found.ridge * np.diag([0.0, *np.ones(60)])
    want = np.linalg.solve(z.T @ z / len(z) + penalty, tests)
    np.testing.assert_allclose(found.coefficients, want, rtol=1e-6, atol=1e-9)
    assert (z @ found.coefficients).mean() == pytest.approx(1.0)
    assert found.gain > 0.1


def test_the_choice_is_the_least_divergence_on_rows_kept_apart() -> None:
    """No other lengthscale and ridge has a lower mean of ½ mean r² - mean_te r over the folds left out."""
    rows = {"ant": (normal(0, -1, 80), normal(1, 0.5, 50)), "bee": (normal(2, 0, 40), normal(3, 1, 90))}
    found = fitted(rows)
    scores = {}
    for factor in FACTORS:
        for ridge in RIDGES:
            values = []
            for fold in range(NUM_FOLDS):

                def part(x: Any, fold: int = fold, scale: float = 2.0 * factor, *, out: bool) -> Any:
                    return phi(x, scale)[(np.arange(len(x)) % NUM_FOLDS == fold) == out]

                z = np.vstack([part(a, out=False) for a, _ in rows.values()])
                h = np.mean([part(b, out=False).mean(axis=0) for _, b in rows.values()], axis=0)
                a = np.linalg.solve(z.T @ z / len(z) + ridge * np.diag([0.0, *np.ones(60)]), h)
                held = np.vstack([part(a_, out=True) for a_, _ in rows.values()]) @ a
                tests = np.mean([part(b, out=True).mean(axis=0) for _, b in rows.values()], axis=0) @ a
                values.append(np.square(held).mean() / 2 - tests)
            scores[factor, ridge] = float(np.mean(values))
    best = min(scores, key=lambda key: scores[key])
    assert (FACTORS[found.candidate], found.ridge) == best
    assert found.gain == pytest.approx(-1 - 2 * scores[best], rel=1e-6)


def test_rows_of_others_cover_a_client() -> None:
    """Training rows and test points swap places between two clients: nothing shifts together, and the ratio is 1."""
    rows = {"ant": (normal(0, -3, 200), normal(1, 3, 200)), "bee": (normal(2, 3, 200), normal(3, -3, 200))}
    found = fitted(rows)
    scale = FACTORS[found.candidate] * 2.0
    ratios = np.concatenate([phi(train, scale) @ found.coefficients for train, _ in rows.values()])
    assert np.abs(ratios - 1).mean() < 0.1
    assert found.uncovered < 0.1


def test_supports_that_do_not_overlap_are_refused() -> None:
    """Test points far from everyone's rows have no ratio; half of them far away is told."""
    far = {"ant": (normal(0, -8, 100), normal(1, 8, 100)), "bee": (normal(2, -8, 100), normal(3, 8, 100))}
    with pytest.raises(DataError, match="do not overlap"):
        fitted(far)
    half = fitted({**far, "ant": (far["ant"][0], normal(4, -8, 100))})
    assert 0.2 < half.uncovered < 0.9
    z = phi(np.vstack([far["ant"][0], far["bee"][0]]), FACTORS[half.candidate] * 2.0)
    assert np.square(z @ half.coefficients).mean() < 2.0 / LEAST_EFFECTIVE


def test_few_rows_are_not_held_out() -> None:
    """Where all rows lie in one fold nothing can be chosen, and the ratio is 1."""
    rows = (normal(0, -1, 12), normal(1, 1, 12))
    found = fit([{"ant": sums(*rows, factor * 2.0, folds=1)} for factor in FACTORS], {"ant": 12.0})
    assert found.coefficients[0] == 1.0
    assert not found.coefficients[1:].any()
    assert found.gain == 0.0
    nothing = [{"ant": sums(rows[0], rows[1][:0], factor * 2.0)} for factor in FACTORS]
    with pytest.raises(DataError, match="no client gives test points"):
        fit(nothing, {"ant": 12.0})


def test_shares_of_clients_weigh_their_densities() -> None:
    """With equal shares the mixture is that of the densities, whatever their rows are."""
    rows = {"ant": (normal(0, -1, 200), normal(1, 1, 50)), "bee": (normal(2, 1, 20), normal(3, 1, 50))}
    equal = fitted(rows, {"ant": 1.0, "bee": 1.0})
    scale = FACTORS[equal.candidate] * 2.0
    means = [float((phi(train, scale) @ equal.coefficients).mean()) for train, _ in rows.values()]
    assert np.mean(means) == pytest.approx(1.0)


def test_a_client_cannot_state_another_mean() -> None:
    """Its mean ratio, values below 0 raised to 0, lies within the bounds of its own sums."""
    rows = {"ant": (normal(0, -1, 80), normal(1, 1, 50)), "bee": (normal(2, 0, 40), normal(3, 1, 90))}
    found = fitted(rows)
    scale = FACTORS[found.candidate] * 2.0
    for train, test in rows.values():
        low, high = mean_range(sums(train, test, scale), found.coefficients)
        mean = np.maximum(phi(train, scale) @ found.coefficients, 0).mean()
        assert low - 1e-9 <= mean <= high + 1e-9


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("second_moments", lambda a: a * 1e6),
        ("second_moments", lambda a: -a),
        ("second_moments", lambda a: np.where(np.arange(a.shape[1]) == 5, 0.9 * a[:, :1], a)),
        ("point_sums", lambda a: a * 1e3),
        ("point_sums", lambda a: a + 5.0),
    ],
)
def test_sums_that_no_rows_have_are_refused(field: str, change: Any) -> None:
    """Cosines are bounded, the constant counts the rows, and second moments are positive in every direction."""
    good = sums(normal(0, 0, 40), normal(1, 0, 30), 2.0)
    check(good, 61)
    parts = {name: getattr(good, name) for name in ("num_rows", "second_moments", "num_points", "point_sums")}
    with pytest.raises(InvalidReplyError):
        check(Sums(**{**parts, field: change(parts[field])}), 61)


def test_class_ratios_are_those_of_all_rows() -> None:
    """The shares of the test classes over those of the pooled training rows; a class that nobody has is told."""
    counts = {"ant": np.array([30.0, 10.0, 0.0, 0.0]), "bee": np.array([0.0, 20.0, 40.0, 0.0])}
    tests = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0.0]])
    ratios, ranges, uncovered = class_ratios(tests, counts, {"ant": 40.0, "bee": 60.0})
    np.testing.assert_allclose(ratios, [0.375 / 0.3, 0.25 / 0.3, 0.25 / 0.4, 0.0])
    assert ranges["ant"][0] == ranges["ant"][1] == pytest.approx(0.75 * ratios[0] + 0.25 * ratios[1])
    assert uncovered == pytest.approx(0.125)
    with pytest.raises(DataError, match="no client has a training row of a class"):
        class_ratios(np.array([[0.0, 0.0, 0.0, 1.0]]), counts, {"ant": 40.0, "bee": 60.0})


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (np.array([1.0, 2.0]), "want whole numbers, got float64"),
        (np.array([-1, 3]), "outside of"),
        (np.array([2**62, 2**62]), "outside of"),
    ],
)
def test_counts_are_whole_and_have_sums(numbers: Any, text: str) -> None:
    """Counts that are floats, below 0, or so large that their sum overflows are refused."""
    validate(ClassCounts(num_rows=3, counts=np.array([1, 2])), {})
    with pytest.raises(InvalidTensorError, match=text):
        validate(ClassCounts(num_rows=3, counts=numbers), {})


def test_a_mean_square_that_rounding_took_below_zero_is_zero() -> None:
    """Bounds are real numbers, also where the quadratic form is -1e-16."""
    second = pack(np.array([[1.0, 1.0], [1.0, 1.0 - 2.0**-52]]))
    sums = Sums(np.array([1]), second[None], np.array([0]), np.zeros((1, 2)))
    low, high = mean_range(sums, np.array([1.0, -1.0]))
    assert (low, high) == (0.0, 0.0)
