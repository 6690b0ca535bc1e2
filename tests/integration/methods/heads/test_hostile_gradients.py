"""A client that answers with gradients that cannot be is named and left out, over mutual TLS too."""

from __future__ import annotations

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.federation import Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import TRIO, mallory, scaled

pytestmark = pytest.mark.asyncio(loop_scope="module")
fed, no_trace = hostile.fed, hostile.no_trace


async def test_a_head_is_that_of_those_whose_gradients_can_be(fed: Federation) -> None:
    """Each gradient of the hostile client is refused with its name; the head is of use all the same."""
    text = fed.job(
        "newton",
        TRIO,
        loss="cross-entropy",
        rounds=6,
        cohort_min_clients=2,
        cohort_deadline_s=0.5,
        data_task="binary",
        data_target="ill",
        data_classes=["0", "1"],
    )
    async with mallory(fed, scaled("gradient", 1e200), step="head.gradient") as client:
        ended = await fed.run(text)
        assert not client.over.done()
    assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
    failed = ended.of(EventKind.CLIENT_FAILED)
    assert failed
    assert {(e.client, e.step) for e in failed} == {("mallory", "head.gradient")}
    last = [e.metrics for e in ended.of(EventKind.ROUND_CLOSED) if e.metrics and e.metrics.clients][-1]
    assert all(last.clients[name]["global"]["log_loss"] < 2.0 for name in ("a", "b"))
