"""The table of steps and the requests that the daemon offers before the table is loaded."""

from __future__ import annotations

from kernfed.federation.messages.catalogue import request_classes
from kernfed_client.steps.registry import STEPS


def test_every_request_has_a_step() -> None:
    """What the daemon says it answers, known from the messages alone, is what the table answers."""
    assert {request.step for request in request_classes()} == {request.step for request in STEPS}
