"""When a consensus moves away, and which predictions no targets make plausible."""

from __future__ import annotations

import numpy as np

from kernfed.methods.distill.growth import diverges, scale_of
from kernfed.methods.distill.scales import OwnTargets, implausible, larger_than_others, reach, standing_apart


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


def test_predictions_stand_apart_where_nothing_makes_them_plausible() -> None:
    """Own targets, what was given to fit, or the others' predictions, are enough to let them be."""
    mean, values = np.zeros(1), {"a": 1.0, "b": -2.0, "c": 1.5, "d": 500.0}
    near = OwnTargets(mean, reach(np.ones(1), 26), np.ones(1))
    assert near.reach == [5.0]

    def apart(given: float | None = None, far: float = 5.0, **others: float) -> list[str]:
        predictions = {client: np.array([[0.0], [value]]) for client, value in (values | others).items()}
        own = dict.fromkeys(values, near) | {"d": near._replace(reach=np.array([far]))}
        return standing_apart(predictions, mean, own, None if given is None else np.array([[given]]))

    assert apart() == ["d"]
    assert apart(d=24.0) == []
    assert apart(far=101.0) == []
    assert apart(given=-101.0) == []
    assert apart(b=101.0, c=-101.0) == []
    assert apart(c=-60.0) == ["c", "d"]
    assert standing_apart({"d": np.array([[1e308]])}, mean, {"d": near}, None) == []


def test_the_larger_predictions_of_those_who_fitted_the_same_are_found() -> None:
    """Four times as large as any other client's; not 2.9 times, nor as own targets are larger, nor of two clients."""
    wave = np.array([[1.0, 2.0], [-1.0, 2.0], [1.0, 2.0], [-1.0, 2.0]])
    of = OwnTargets(np.zeros(2), np.full(2, 6.0), np.ones(2))

    def larger(own: float = 1.0, **sizes: float) -> str | None:
        predictions = {client: size * wave for client, size in ({"a": 1.0, "b": -1.0, "c": 4.0} | sizes).items()}
        told = dict.fromkeys(predictions, of) | {"c": of._replace(deviation=np.full(2, own))}
        return larger_than_others(predictions, np.array([0.0, 2.0]), told)

    assert larger() == "c"
    assert larger(c=2.9) is None
    assert larger(a=1.5) is None
    assert larger(own=1.5) is None
    assert larger(own=0.0) == "c"
    assert larger(a=0.0, b=0.0, c=0.0) is None
    assert larger_than_others({"a": wave, "c": 4 * wave}, np.zeros(2), {"a": of, "c": of}) is None


def test_targets_lie_within_reach() -> None:
    """One value that stands alone lies as far from the mean as is told; ten deviations are the end."""
    for n in (2, 12, 101):
        y = np.zeros(n)
        y[0] = 3.0
        np.testing.assert_allclose(reach(y.std(keepdims=True), n), np.abs(y - y.mean()).max(), rtol=1e-12)
    assert reach(np.ones(1), 10_000) == [10.0]
