"""Errors of scores that no rows can have are refused; those of honest rows never are, however they are grouped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.federation.messages.base import Stated
from kernfed.federation.messages.evaluation import Appraisal, Score, ScoreDifference
from kernfed.maths.scores.appraise import Appraised, Behind, of_numbers, of_two_classes
from kernfed.rng import stream


def appraisal(models: dict[str, Appraised], rows: Behind) -> Appraisal:
    """What a client tells of two models."""
    scores = tuple(
        Score(model=model, metric=metric, value=e.value, error=e.error(rows.group), behind=e.behind)
        for model, found in models.items()
        for metric, e in found.estimates.items()
    )
    a, b = models.values()
    differences = tuple(
        ScoreDifference(model="a", against="b", metric=metric, value=e.value, error=e.error(rows.group))
        for metric, e in a.differences(b)
    )
    num = len(rows.group)
    return Appraisal(
        num_test_rows=num,
        num_groups=len(np.unique(rows.group)),
        num_positive=0,
        told_positive=False,
        threshold=0.5,
        scores=scores,
        differences=differences,
    )


@given(seed=st.integers(0, 10**6), num=st.integers(2, 30), groups=st.integers(2, 30), power=st.integers(1, 9))
def test_honest_errors_hold(seed: int, num: int, groups: int, power: int) -> None:
    """Of numbers with heavier tails with each power, and of two classes, in groups of all sizes."""
    random = np.random.default_rng(seed)
    group = np.unique(np.minimum(random.geometric(0.3, num), groups), return_inverse=True)[1].astype(np.int64)
    rows = Behind(group, draw=stream(seed, "rows"), threshold=0.5)
    y = random.normal(size=num) ** power
    told = [
        {name: of_numbers(random.normal(size=num) ** power, y, rows) for name in "ab"},
        {name: of_two_classes(p, p, y > 0, rows) for name in "ab" for p in [random.random(num)]},
    ]
    for models in told:
        assert list(appraisal(models, rows).contradictions(Stated(num))) == []


EIGHT = Behind(np.arange(8), draw=stream(1, "rows"))
POINTS = np.arange(8.0)
HONEST = appraisal({m: of_numbers(POINTS + by, POINTS**1.1, EIGHT) for m, by in (("a", 0.1), ("b", 0.4))}, EIGHT)


@pytest.mark.parametrize("metric", ["mse", "mae", "r2"])
def test_an_error_beyond_what_rows_can_have_is_refused(metric: str) -> None:
    """It is squared where clients are put together, and 1e308 squared is no number."""
    scores = tuple(replace(s, error=1e308) if s.metric == metric else s for s in HONEST.scores)
    told = list(replace(HONEST, scores=scores).contradictions(Stated(8)))
    assert any(f"the error of {metric} of the a model is 1e+308, which cannot be" in words for words in told)


def test_a_model_that_hardly_errs_contradicts_nothing() -> None:
    """Its R² is 1 to the last digit, and its error is above 0."""
    near = {name: of_numbers(POINTS + by * 1e-9 * POINTS, POINTS, EIGHT) for name, by in (("a", 1), ("b", 2))}
    found = appraisal(near, EIGHT)
    assert {s.value for s in found.scores if s.metric == "r2"} == {1.0}
    assert list(found.contradictions(Stated(8))) == []


def test_an_error_of_a_difference_is_at_most_that_of_both_parts() -> None:
    """Rows are the same."""
    assert list(HONEST.contradictions(Stated(8))) == []
    differences = tuple(replace(d, error=1e308) for d in HONEST.differences)
    told = list(replace(HONEST, differences=differences).contradictions(Stated(8)))
    assert any("the error of a difference of mse is 1e+308, of parts with" in words for words in told)


def test_a_log_loss_beyond_that_of_a_row_is_refused() -> None:
    """Scores are cut off, so that a row's has an end."""
    score = Score(model="a", metric="log_loss", value=22.0, error=0.0, behind=8)
    told = list(replace(HONEST, scores=(score,), differences=()).contradictions(Stated(8)))
    assert told == ["log_loss of the a model is 22, which cannot be"]
