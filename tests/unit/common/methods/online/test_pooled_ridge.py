"""Ridges on pooled statistics: against their closed form, their size on the wire, and what no rows can have sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kernfed.errors import InvalidTensorError
from kernfed.maths import triangles
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.own_model import Ridges
from kernfed.methods.online.pooled_ridge import (
    KEEPS,
    RIDGE,
    CommonRidges,
    PooledRidges,
    contradiction,
    factor,
    packed_size,
    unpack,
)

SQUARED = LOSSES[Loss.SQUARED]
Floats = npt.NDArray[np.float64]


def rows(num_rows: int, seed: int, num_kernels: int = 2, num_features: int = 5) -> tuple[Floats, Floats]:
    """Features with |z|² = 2 and a constant 1 last, (n, N, F), and targets in [0, 1]."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(num_rows, num_kernels, num_features - 1))
    z /= np.sqrt(np.square(z).sum(axis=2, keepdims=True))
    return np.concatenate([z, np.ones((num_rows, num_kernels, 1))], axis=2), random.uniform(size=num_rows)


def factors(z: Floats, y: Floats) -> Floats:
    return unpack(factor(z, y, np.zeros(z.shape[:2]), SQUARED), len(y), z.shape[2])


@pytest.mark.parametrize("num_rows", [1, 3, 5, 30])
@pytest.mark.parametrize("loss", list(Loss))
def test_a_factor_holds_the_statistics(num_rows: int, loss: Loss) -> None:
    """R'R is H and b of the loss's expansion, in no more numbers than the triangle of H and b."""
    z, y = rows(num_rows, 0)
    y = np.round(y) if loss is Loss.LOGISTIC else y
    f, cost = np.random.default_rng(1).normal(size=z.shape[:2]), LOSSES[loss]
    packed = factor(z, y, f, cost)
    assert packed.shape[1] == packed_size(num_rows, 5) <= triangles.packed_size(5) + 5
    r = unpack(packed, num_rows, 5)
    bend, slope = cost.bend(f), cost.slope(f, y[:, None])
    for i in range(z.shape[1]):
        of_kernel = z[:, i]
        np.testing.assert_allclose(r[i, :, :-1].T @ r[i, :, :-1], (bend[:, i] * of_kernel.T) @ of_kernel, atol=1e-12)
        moment = of_kernel.T @ (bend[:, i] * f[:, i] - slope[:, i])
        np.testing.assert_allclose(r[i, :, :-1].T @ r[i, :, -1], moment, atol=1e-12)
    assert (np.diagonal(r, axis1=1, axis2=2) >= 0.0).all()


def test_the_pooled_ridge_is_the_ridge_of_all_rows() -> None:
    """After rounds of clients with unlike numbers of rows it is the closed form; in one memory rows fade."""
    ridges, seen = PooledRidges.start(2, 5), []
    for t in range(6):
        parts = {name: rows(n, 10 * t + n) for name, n in (("a", 4), ("b", 2))}
        ridges = ridges.add(
            {c: factors(*part) for c, part in parts.items()}, {c: len(y) for c, (_, y) in parts.items()}
        )
        seen += [(z, y, t) for z, y in parts.values()]
    theta = PooledRidges.from_arrays(ridges.to_arrays()).solve()
    z, y = np.concatenate([z for z, _, _ in seen]), np.concatenate([y for _, y, _ in seen])
    age = np.concatenate([np.full(len(y), 3 * (5 - t)) for _, y, t in seen])  # rows of a client since, on average
    for j, keep in enumerate(KEEPS):
        w = keep**age
        assert ridges.rows[j] == pytest.approx(w.sum())
        for i in range(2):
            hessian = (w * z[:, i].T) @ z[:, i] + RIDGE * np.eye(5)
            np.testing.assert_allclose(theta[j, i], np.linalg.solve(hessian, (w * z[:, i].T) @ y), atol=1e-10)


def test_a_client_alone_moves_its_copy_to_the_next_ridge() -> None:
    """With one client its own rows make of the copy what the coordinator then makes of their statistics."""
    ridges, own, common = PooledRidges.start(2, 5), Ridges.start(np.zeros((2, 5)), RIDGE), None
    for t in range(4):
        common = CommonRidges(ridges.solve(), ridges.rows)
        z, y = rows(3, t)
        for n, (row, target) in enumerate(zip(z, y.tolist(), strict=True)):
            f, pull = common.predict(row), own.pull(row)
            common = common.update(pull, row, SQUARED.slope(f, target), SQUARED.bend(f), 3 * t + n)
            own_f = own.predict(row)
            own = own.update(pull, row, SQUARED.slope(own_f, target), SQUARED.bend(own_f))
        ridges = ridges.add({"a": factors(z, y)}, {"a": 3})
    assert common is not None
    np.testing.assert_allclose(common.theta[0], ridges.solve()[0], atol=1e-10)


def test_statistics_that_no_rows_can_have_are_told() -> None:
    """Sound ones pass to their last digit; features or targets a little too large do not."""
    z, y = rows(4, 0)
    sound = factors(z, y)
    assert contradiction(sound, 4, Loss.SQUARED, 5.0) == ""
    assert "features of size" in contradiction(sound, 3, Loss.SQUARED, 5.0)
    assert "features of size" in contradiction(1.01 * sound, 4, Loss.SQUARED, 5.0)
    far = factors(z, y + 8.0)
    assert "targets of size" in contradiction(far, 4, Loss.SQUARED, 5.0)
    assert contradiction(far, 4, Loss.SQUARED, 0.0) == ""
    with pytest.raises(InvalidTensorError, match="a factor of 3 numbers for 4 rows"):
        unpack(np.zeros((2, 3)), 4, 5)
