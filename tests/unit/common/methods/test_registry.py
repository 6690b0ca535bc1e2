"""Which steps belong to which method."""

from __future__ import annotations

from kernfed.federation.messages.catalogue import request_classes
from kernfed.methods.registry import METHODS, SHARED, steps_of


def test_every_step_belongs_to_a_method_or_to_all() -> None:
    """Each method here states its steps, and each request has a method that may ask it."""
    stated = {name: method.steps for name, method in METHODS.items()}
    assert None not in stated.values()
    own = {request.step for steps in stated.values() for request in steps or ()}
    assert own | SHARED == {request.step for request in request_classes()}
    assert not own & SHARED


def test_methods_of_one_room_have_their_own_steps() -> None:
    """The steps of a method are those that its workflow asks, not all of its room."""
    assert steps_of("dkrr") == SHARED | {"ridge.local_solve", "ridge.masked_solve"}
    assert "fedavg.local_update" not in (steps_of("fedprox") or ())
    assert "online.shared_step" not in (steps_of("online") or ())
    assert steps_of("median") is None
