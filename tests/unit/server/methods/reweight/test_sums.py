"""Sums of clients on the way to a mixture's ratio: those that no rows have are refused, and true ones are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.maths.triangles import pack
from kernfed.methods.reweight.mixture_messages import FoldSums, PointMoments
from kernfed_server.methods.reweight.mixture import check_points, checked

SPEC = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 2, 1.0, 3, 7)


def fold_sums() -> FoldSums:
    """Three rows and a test point in the first of two folds; all features are 0."""
    second = np.zeros((2, 10))
    second[0, 0] = 3.0
    return FoldSums(
        num_rows=3,
        fold_rows=np.array([3, 0]),
        second_moments=second,
        target_moments=np.zeros((2, 4, 2)),
        fold_points=np.array([1, 0]),
        point_sums=np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 0]]),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"fold_rows": np.array([2.5, 0.5]), "second_moments": np.zeros((2, 10))},
        {"fold_points": np.array([1.5, 0.5])},
        {"target_moments": np.full((2, 4, 2), 5.0)},
    ],
)
def test_folds_of_broken_numbers_are_refused(changes: dict[str, Any]) -> None:
    """Parts of rows would add up to none, and nothing can be divided by that."""
    good = fold_sums()
    checked(SPEC)("ant", good)
    with pytest.raises(InvalidReplyError):
        checked(SPEC)("ant", replace(good, **changes))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e3 / 7, -1e-5 / 3])
def test_a_column_that_is_the_same_in_all_rows_is_no_contradiction(value: float) -> None:
    """The square of its sum is its rows times the sum of squares, but for rounding; twice the sum is refused."""
    for num in range(3, 40):
        x = np.stack([np.full(num, value), np.linspace(0.0, 1.0, num)], axis=1)
        reply = PointMoments(num_rows=num, num_points=num, sums=x.sum(axis=0), second_moments=pack(x.T @ x))
        check_points(reply, 2)
    with pytest.raises(InvalidReplyError, match="not of 39 points"):
        check_points(replace(reply, sums=2 * reply.sums), 2)
