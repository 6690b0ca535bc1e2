"""A client of a release before is not asked for what it would pass over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernfed.federation.messages.catalogue import request_classes
from kernfed.federation.messages.data import DataSchema, DescribeDataRequest, LearningTask, MissingRule
from kernfed.federation.messages.later_fields import later_fields, stated_fields, unknown_fields
from kernfed.methods.personalise.messages import SolveWeightsRequest
from kernfed.methods.ridge.messages import GradientRequest

SOLVE = SolveWeightsRequest(exact=False, c_q=1.0, c_p=1.0, bound=1.0)


def test_what_has_its_default_is_asked_of_everybody() -> None:
    """Only a value that differs from what a client of before takes is told."""
    assert not unknown_fields(SOLVE, None)
    assert not unknown_fields(SOLVE, ["newton.gradient:fold"])
    asked = replace(SOLVE, theorem_q=True, steps=30)
    named = ["personalise.solve_weights:steps", "personalise.solve_weights:theorem_q"]
    assert unknown_fields(asked, None) == unknown_fields(asked, []) == named
    assert unknown_fields(asked, ["personalise.solve_weights:steps"]) == named[1:]
    assert not unknown_fields(asked, later_fields(SolveWeightsRequest))


def test_clients_that_state_nothing_know_the_fields_of_their_time() -> None:
    """A fold, which releases before had, is asked of them; what an answer can do without is asked of everybody."""
    gradient = GradientRequest(ridge=1.0, weights=np.zeros((2, 1)), fold=2, energy=True)
    assert not unknown_fields(gradient, None)
    assert unknown_fields(gradient, ["newton.step:fold"]) == ["newton.gradient:fold"]


def test_parts_of_a_request_count() -> None:
    """A field of a part is named with the part."""
    schema = DataSchema(
        task=LearningTask.REGRESSION,
        target="y",
        features=("x",),
        classes=(),
        missing=MissingRule.REFUSE,
        test_fraction=0.2,
        seed=1,
    )
    assert not unknown_fields(DescribeDataRequest(dataset="d", schema=schema), ["x"])
    changed = DescribeDataRequest(dataset="d", schema=replace(schema, by_record=True))
    assert unknown_fields(changed, ["x"]) == ["data.describe:schema.by_record"]


def test_a_hello_is_small_and_names_all() -> None:
    """Within what the coordinator takes of a hello; the fields that requests call young are among them."""
    stated = stated_fields(request_classes())
    assert set(stated) >= {f"{request.step}:{name}" for request in request_classes() for name in request.young}
    assert len(stated) == len(set(stated)) < 500
    assert max(map(len, stated)) <= 128
