"""Normal equations that no rows have: their client is named, alone, and the others learn without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernfed.federation.events import EventKind
from kernfed_testing.in_process import bench, make_job, regression_rows


def _gram(reply: Any) -> Any:
    return replace(reply, gram=1e5 * reply.gram)


@pytest.mark.parametrize("weights", ["paper", "exact"])
@pytest.mark.parametrize(("sites", "foe"), [(3, "ant"), (4, "dog"), (5, "bee")])
def test_normal_equations_that_no_rows_have_blame_their_client_alone(
    tmp_path: Path, weights: str, sites: int, foe: str
) -> None:
    """10^5 times a client's own: a note names it, no honest client fails, and no note says that they counted."""
    rows = regression_rows(dict.fromkeys(("ant", "bee", "cat", "dog", "eel")[:sites], 40))
    settings: dict[str, Any] = {"weights": weights, "num_frequencies": 10}
    job = make_job("personalise", frequencies=10, **settings)
    outcome = bench(rows, tmp_path, tamper={(foe, "personalise.statistics"): _gram}).run(job)
    (note,) = [n for n in outcome.notes if "no normal equations" in n]
    assert note.startswith(f"{foe}: no normal equations")
    failed = {e.client for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED}
    assert failed <= {foe}
    assert not [n for n in outcome.notes if "and they counted" in n]
    assert all(outcome.metrics[-1].clients[c]["personal"]["mse"] < 1.0 for c in rows if c != foe)
