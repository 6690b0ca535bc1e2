"""The steps that this client agrees to run; a task that names any other is refused. One line per module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernfed.messages.base import Reply, Request
from kernfed_client.steps import (
    data,
    distill,
    evaluation,
    heads,
    online,
    personal_training,
    personalise,
    probe,
    reweight,
    reweight_training,
    ridge,
)

StepFunction = Callable[[Any, Any], Reply]
"""A client's half of a step: (local job, request) -> reply."""

STEPS: dict[type[Request[Any]], StepFunction] = {
    **data.STEPS,
    **ridge.STEPS,
    **evaluation.STEPS,
    **distill.STEPS,
    **online.STEPS,
    **personalise.STEPS,
    **personal_training.STEPS,
    **reweight.STEPS,
    **reweight_training.STEPS,
    **heads.STEPS,
    **probe.STEPS,
}
