"""What the coordinator holds of a collaboration, and the targets that follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed_server.jobs.state import State
from kernfed_server.methods.personalise.state import Collaboration, targets_of


def test_targets_leave_out_tiny_weights_and_add_the_model_of_all() -> None:
    """Rows sum to 1, the largest weight always stays, and what was dropped is stated."""
    weights = np.array([[0.995, 0.004, 0.001], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    found = Collaboration(("a", "b", "c"), np.array([1.0, 2.0, 5.0]), weights, ("", "", ""), False)
    targets = targets_of(found, 0.01)
    assert targets.names == ("a", "b")
    np.testing.assert_allclose(targets.mix, [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 8, 2 / 8, 5 / 8]])
    assert targets.dropped == pytest.approx(0.005)
    np.testing.assert_allclose(targets_of(found, 0.9).mix[1], [0.5, 0.5, 0.0])
    again = Collaboration.from_arrays(State(found.to_arrays()))
    assert (again.clients, again.choices) == (found.clients, found.choices)
    assert again.told == ("a", "b")


def test_one_client_that_told_nothing_is_read_back_as_one() -> None:
    """A single empty text is two line ends on disk; the collaboration has one choice all the same."""
    alone = Collaboration(("a",), np.array([1.0]), np.zeros((1, 1)), ("",), False)
    assert Collaboration.from_arrays(State(alone.to_arrays())).choices == ("",)
