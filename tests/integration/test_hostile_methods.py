"""A client that answers a method's own steps with absurd numbers is named and left out, over mutual TLS too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernfed.federation.events import EventKind, JobState
from kernfed_testing.federation import Federation
from kernfed_testing.hostile import peers as hostile
from kernfed_testing.hostile.peers import TRIO, mallory, with_reply
from kernfed_testing.hostile.scripted_client import Misbehave

pytestmark = pytest.mark.asyncio(loop_scope="module")
fed, no_trace = hostile.fed, hostile.no_trace


def scaled(name: str, factor: float) -> Misbehave:
    """Answer with one array so many times as large."""
    return with_reply(lambda reply: replace(reply, **{name: factor * getattr(reply, name)}))


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
