"""A client that answers with sums that cannot be is named and left out, over mutual TLS too."""

from __future__ import annotations

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.federation import Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import TRIO, mallory, scaled

pytestmark = pytest.mark.asyncio(loop_scope="module")
fed, no_trace = hostile.fed, hostile.no_trace


async def test_reweight_goes_on_without_sums_that_cannot_be(fed: Federation) -> None:
    """The ratio to the mixture is fitted from sums of the others, who get their models."""
    text = fed.job("reweight", TRIO, rounds=6, cohort_min_clients=2, cohort_preflight="quorum")
    async with mallory(fed, scaled("second_moments", 1e40), step="reweight.fold_sums") as client:
        ended = await fed.run(text)
        assert not client.over.done()
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    told = [e.message for e in ended.of(EventKind.NOTE) if e.message.startswith("mallory is left out of this job: ")]
    assert len(told) == 1
    last = [e.metrics for e in ended.of(EventKind.ROUND_CLOSED) if e.metrics and e.metrics.clients][-1]
    assert "global" not in last.clients.get("mallory", {})
    assert all(last.clients[name]["global"]["mse"] < 1e3 for name in ("a", "b"))
