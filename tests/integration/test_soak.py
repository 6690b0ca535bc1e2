"""A short soak: jobs that are disturbed at random moments end as their undisturbed twins do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernfed_testing.soak import Soak, federation


@pytest.mark.slow
async def test_short_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs, each with a random fault; `make soak` runs thirty, of all methods."""
    async with federation(tmp_path) as fed:
        result = await Soak(fed, 5, print).run(2, ("fedprox",))
    assert result.finished == 2
    assert result.different == []
