"""A request that asks for more than the client may take is refused before memory is taken."""

from __future__ import annotations

from typing import Any

import pytest

from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import MapFeaturesRequest
from kernfed_testing.hostile.too_much import assert_refused_early, map_of

HOSTILE: dict[str, Request[Any]] = {
    "features of few rows": MapFeaturesRequest(features=map_of(3_000_000), num_outputs=1),
    "frequencies of many columns": MapFeaturesRequest(features=map_of(30_000), num_outputs=1),
    "the kernel between landmarks": MapFeaturesRequest(features=map_of(2000, FeatureForm.NYSTROEM), num_outputs=1),
    "copies of the features": MapFeaturesRequest(features=map_of(5000), num_outputs=1, copies=64),
    "pairs of columns": MapFeaturesRequest(features=map_of(0, kernel=Kernel.POLYNOMIAL2), num_outputs=1, copies=4),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refused_before_memory_is_taken(case: str) -> None:
    """The refusal names the remedy at both ends, and nothing of that size was ever allocated."""
    assert_refused_early(HOSTILE[case])
