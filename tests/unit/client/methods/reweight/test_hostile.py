"""A request that asks for more than the client may take is refused before memory is taken."""

from __future__ import annotations

import numpy as np

from kernfed.methods.reweight.mixture_messages import FoldSumsRequest
from kernfed.methods.reweight.ratio_spec import PLAIN_COLUMNS
from kernfed_testing.hostile.too_much import assert_refused_early, map_of


def test_sums_over_folds() -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    request = FoldSumsRequest(
        features=PLAIN_COLUMNS,
        axes=np.zeros((0, 0)),
        map=map_of(400),
        num_folds=100,
        num_outputs=0,
        num_points=60,
        seed=1,
    )
    assert_refused_early(request)
