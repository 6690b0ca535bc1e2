"""The ridge of a job that names none."""

from __future__ import annotations

import pytest

from kernfed.features.kernels import Kernel
from kernfed.features.ridge_rule import FORMER_RIDGE, ridge_by_rows
from kernfed.features.spec import FeatureForm, FeatureSpec, make_spec


def spec(kernel: Kernel = Kernel.GAUSSIAN, form: FeatureForm = FeatureForm.COSINE, columns: int = 10) -> FeatureSpec:
    """A map of ten columns."""
    return make_spec(kernel, form, columns, 1.0, 500, 1)


@pytest.mark.parametrize("head", [False, True])
def test_random_features_take_less_as_rows_grow_and_never_more_than_before(head: bool) -> None:
    """0.3/rows from 300 rows on, however many features; half-cosines half of it, for they approximate k/2."""
    assert ridge_by_rows(spec(), 30, head=head) == ridge_by_rows(spec(), 300, head=head) == FORMER_RIDGE
    assert ridge_by_rows(spec(), 3000, head=head) == pytest.approx(1e-4)
    assert ridge_by_rows(spec(form=FeatureForm.SINE_COSINE), 3000, head=head) == pytest.approx(1e-4)
    assert ridge_by_rows(spec(form=FeatureForm.HALF_COSINE), 3000, head=head) == pytest.approx(5e-5)
    assert ridge_by_rows(spec(Kernel.LAPLACE), 3000, head=head) == pytest.approx(1e-4)


def test_columns_hardly_need_one_once_rows_are_many() -> None:
    """0.01 d/n min(1, d/n); heads on columns, and quadratic maps, keep the former number."""
    assert ridge_by_rows(spec(Kernel.LINEAR), 1000) == pytest.approx(1e-6)
    assert ridge_by_rows(spec(Kernel.LINEAR), 10**6) == pytest.approx(1e-6)
    assert ridge_by_rows(spec(Kernel.LINEAR), 20) == FORMER_RIDGE
    assert ridge_by_rows(spec(Kernel.LINEAR), 1000, head=True) == FORMER_RIDGE
    assert ridge_by_rows(spec(Kernel.POLYNOMIAL2), 10**6) == FORMER_RIDGE
