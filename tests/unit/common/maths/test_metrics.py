"""Tests of `kernfed.maths.metrics`: the order of metrics, and the area under the ROC curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernfed.maths.metrics import auc
from kernfed.metric_names import telling_first


def test_the_telling_metrics_come_first() -> None:
    """AUC before log-loss before the squared error; what is no metric of predictions comes last, sorted."""
    assert telling_first({"mse", "steps", "log_loss", "kernels", "auc"}) == [
        "auc",
        "log_loss",
        "mse",
        "kernels",
        "steps",
    ]


@given(
    hnp.arrays(np.float64, st.integers(0, 30), elements=st.integers(0, 5).map(float)),
    st.integers(0, 2**30),
)
def test_auc_is_the_share_of_ordered_pairs(scores: np.ndarray, bits: int) -> None:
    """Counting all pairs one by one, ties as one half, gives the same."""
    positive = np.array([bits >> i & 1 for i in range(scores.size)], dtype=bool)
    above = scores[positive][:, None] - scores[~positive][None, :]
    if above.size == 0:
        assert auc(scores, positive) == (0.0, 0.0)
    else:
        area, pairs = auc(scores, positive)
        assert area == pytest.approx(float(((above > 0) + 0.5 * (above == 0)).mean()), abs=1e-12)
        assert pairs == above.size
