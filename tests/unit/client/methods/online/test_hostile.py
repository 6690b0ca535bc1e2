"""A request that asks for more than the client may take is refused before memory is taken."""

from __future__ import annotations

import pytest

from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.learner import Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import DrawDictionaryRequest, OpenStreamRequest
from kernfed_testing.hostile.too_much import COLUMNS, assert_refused_early


@pytest.mark.parametrize(("frequencies", "own"), [(10_000, 0), (10, 2000)], ids=["dictionary", "own model"])
def test_refused_before_memory_is_taken(frequencies: int, own: int) -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    request = DrawDictionaryRequest(
        dictionary=Dictionary((1.0,) * 8, frequencies, COLUMNS, 3),
        mixing=Mixing.ADAPTIVE,
        weight_learning_rate=0.0,
        bin_size=2,
        exploration=1.0,
        regularisation=0.0,
        own_frequencies=own,
        pooled=False,
    )
    opened = OpenStreamRequest(norm=2.0, target_low=0.0, target_span=1.0, loss=Loss.SQUARED, seed=1, outlier_spans=5.0)
    assert_refused_early(request, [opened])
