"""Adam and Yogi against their formulas, number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernfed.errors import DivergedError
from kernfed.maths.adam import EPSILON, FIRST_DECAY, SECOND_DECAY, Adam


@pytest.mark.parametrize("yogi", [False, True])
def test_a_number_goes_by_the_formula(yogi: bool) -> None:
    """Six steps of one number whose gradients grow, vanish and turn, by hand."""
    state, parameters = Adam.start((1, 1)), np.ones((1, 1))
    theta, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate([0.5, 2.0, 1e-3, 0.0, -1.0, 0.3], 1):
        parameters, state = state.step(parameters, np.array([[g]]), 0.1, yogi=yogi)
        m = FIRST_DECAY * m + (1 - FIRST_DECAY) * g
        if yogi:
            v -= (1 - SECOND_DECAY) * float(np.sign(v - g * g)) * g * g
        else:
            v = SECOND_DECAY * v + (1 - SECOND_DECAY) * g * g
        theta -= 0.1 * (m / (1 - FIRST_DECAY**t)) / (math.sqrt(v / (1 - SECOND_DECAY**t)) + EPSILON)
        assert parameters[0, 0] == pytest.approx(theta, rel=1e-12)


def test_its_state_outlasts_a_checkpoint() -> None:
    """What is rebuilt from arrays goes on with the same bits."""
    draw = np.random.default_rng(0)
    parameters, state = Adam.start((2, 3)).step(np.zeros((2, 3)), draw.normal(size=(2, 3)), 0.1, yogi=True)
    again, gradient = Adam.from_arrays(state.to_arrays()), draw.normal(size=(2, 3))
    np.testing.assert_array_equal(
        again.step(parameters, gradient, 0.1, yogi=True)[0], state.step(parameters, gradient, 0.1, yogi=True)[0]
    )


def test_a_step_out_of_the_range_of_numbers_is_told() -> None:
    """The error names the step."""
    with pytest.raises(DivergedError, match="step 1 of Adam, of step size 1e\\+300"):
        Adam.start((1, 1)).step(np.full((1, 1), 1e300), np.ones((1, 1)), 1e300)
