"""The best function in hindsight and Theorem 2, against the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.federation.messages.base import Stated
from kernfed.methods.online.hindsight import Rates, Sums, best_function, theorem_2
from kernfed.methods.online.hindsight_messages import Hindsight, HindsightRequest


def test_sums_of_parts_give_the_fit_to_all_rows() -> None:
    """Kernel, parameters and losses are those of least squares over all rows; one kernel fits exactly."""
    draw = np.random.default_rng(1)
    z = draw.normal(size=(60, 3, 4))
    y = z[:, 1] @ np.array([0.5, -1.0, 0.2, 0.0]) + 0.01 * draw.normal(size=60)
    found = best_function({"a": Sums.of(z[:25], y[:25]), "b": Sums.of(z[25:], y[25:])})
    theta = np.linalg.lstsq(z[:, 1], y)[0]
    assert found.kernel == 1
    assert np.allclose(found.theta, theta)
    assert found.losses["a"] == pytest.approx(float(np.square(z[:25, 1] @ theta - y[:25]).sum()), rel=1e-6)
    assert found.loss == pytest.approx(float(np.square(z[:, 1] @ theta - y).sum()), rel=1e-6)


def test_features_that_repeat_are_no_fault() -> None:
    """Along directions that no row has, the function stays 0."""
    z = np.ones((5, 1, 2))
    found = best_function({"a": Sums.of(z, np.full(5, 0.5))})
    assert np.allclose(found.theta, [0.25, 0.25])
    assert found.loss == pytest.approx(0.0, abs=1e-12)


def test_theorem_2_is_equation_14() -> None:
    """Written out for two clients of ten rounds, at the best of many functions; where it does not hold, nothing is."""
    draw = np.random.default_rng(2)
    z, y = draw.normal(size=(20, 1, 2)) / 2, draw.uniform(size=20)
    parts = {"a": Sums.of(z[:10], y[:10]), "b": Sums.of(z[10:], y[10:])}
    best, rates = best_function(parts), Rates(0.1, 0.25)
    own: dict[str, float | None] = {"a": 1.0, "b": 2.0}
    told = theorem_2(rates, parts, best, {"a": 10, "b": 10}, 10, own)
    draws = 0.1 / 2 * sum(4.0 / 0.25 for _ in range(10) for _ in range(2))
    tried = np.stack(np.meshgrid(*2 * [np.linspace(-1, 2, 601)]), axis=-1).reshape(-1, 2)
    costs = np.square(tried @ z[:, 0].T - y).sum(axis=1) + 2 * np.square(tried).sum(axis=1) / (2 * 0.1)
    assert told == pytest.approx(costs.min() - best.loss + draws + 3.0, rel=1e-4)
    assert theorem_2(rates, parts, best, {"a": 10, "b": 9}, 10, own) is None
    assert theorem_2(rates, parts, best, {"a": 10, "b": 10}, 10, {"a": 1.0, "b": None}) is None
    assert theorem_2(rates, parts, best, {"a": 15, "b": 15}, 10, own) is None


def test_sums_that_no_rows_have_are_refused() -> None:
    """Sums over nothing, products larger than rows allow, and triangles of another size."""
    honest = Hindsight(num_rows=9, num_samples=4, gram=np.ones((1, 3)), moment=np.ones((1, 2)), square=1.0)
    assert not list(honest.contradictions(Stated()))
    assert not list(HindsightRequest(num_kernels=1, num_features=2).refusals(honest))
    assert list(HindsightRequest(num_kernels=1, num_features=3).refusals(honest))
    none = Hindsight(num_rows=9, num_samples=0, gram=np.ones((1, 3)), moment=np.zeros((1, 2)), square=0.0)
    assert any("over no rows" in word for word in none.contradictions(Stated()))
    large = Hindsight(num_rows=9, num_samples=4, gram=np.ones((1, 3)), moment=np.full((1, 2), 9.0), square=1.0)
    assert any("cannot have" in word for word in large.contradictions(Stated()))
