"""A short soak: jobs that are met by faults at random moments end as their undisturbed twins do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed_testing.crashes.faults import Faults
from kernfed_testing.crashes.soak import End, Soak, federation


@pytest.mark.slow
async def test_short_soak(tmp_path: Path) -> None:
    """Two jobs whose draws have four faults each; `make soak` runs many, of all methods."""
    async with federation(tmp_path) as fed:
        result = await Soak(fed, Faults(fed), 5, print).run((2, 5), ("fedprox",))
    assert result.wrong == []
    assert result.ends.total() == 2
    assert result.ends[End.FAILED] == 0
