"""The steps that this client agrees to run; a task that names any other is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernfed.federation.messages.base import Reply, Request
from kernfed.methods import rooms
from kernfed_client.steps import data, evaluation

StepFunction = Callable[[Any, Any], Reply]
"""A client's half of a step: (local job, request) -> reply."""

STEPS: dict[type[Request[Any]], StepFunction] = {
    **data.STEPS,
    **evaluation.STEPS,
    **rooms.merged("kernfed_client.methods", "steps", "STEPS"),
}
