"""A request that asks for more than the client may take is refused before memory is taken."""

from __future__ import annotations

import numpy as np

from kernfed.federation.messages.data import MapFeaturesRequest
from kernfed.methods.heads.messages import HeadLoss, HeadSolver, HeadStepRequest, OpenHeadRequest
from kernfed_testing.hostile.too_much import assert_refused_early, map_of


def test_the_basis_of_a_solver() -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    request = HeadStepRequest(
        solver=HeadSolver.LANCZOS,
        weights=np.zeros((2001, 1)),
        direction=np.ones((2001, 1)),
        ridge=1.0,
        damping=0.0,
        tolerance=1e-3,
        max_iterations=10,
        rank=1_000_000,
        max_bytes=1 << 40,
    )
    opened = OpenHeadRequest(
        loss=HeadLoss.SQUARED, num_features=2001, num_outputs=1, bias=True, validation_fraction=0.0, seed=1
    )
    assert_refused_early(request, [MapFeaturesRequest(features=map_of(2000), num_outputs=1), opened])
