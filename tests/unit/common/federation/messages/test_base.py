"""What moves a model is compared between clients, in every step of every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernfed.federation.messages.base import Kind, Request, fields_of
from kernfed.federation.messages.catalogue import request_classes

MOVES = {Kind.GRADIENT, Kind.MODEL_UPDATE, Kind.NEWTON_STEP}
MOVING = sorted((request for request in request_classes() if MOVES & set(request.kinds)), key=lambda one: one.step)


@pytest.mark.parametrize("request_class", MOVING, ids=lambda one: one.step)
def test_what_moves_a_model_is_compared(request_class: type[Request[Any]]) -> None:
    """Its arrays have a direction, or the request says which are none of its answers, or the method judges them."""
    reply = request_class.reply
    names = {f.name for f in fields_of(reply) if f.type is np.ndarray and not f.whole}
    assert names >= {*reply.directions, *reply.models}
    judged = request_class.refusals is not Request.refusals or names <= set(reply.diagnostics)
    assert reply.directions or judged, f"{reply.__name__} names no `directions`"
