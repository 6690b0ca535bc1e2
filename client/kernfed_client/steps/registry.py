"""The steps that this client agrees to run; a task that names any other is refused. One line per module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernfed.federation.messages.base import Reply, Request
from kernfed_client.methods.distill import steps as distill
from kernfed_client.methods.heads import steps as heads
from kernfed_client.methods.online import steps as online
from kernfed_client.methods.personalise import (
    steps as personalise,
)
from kernfed_client.methods.personalise import (
    training as personal_training,
)
from kernfed_client.methods.probe import steps as probe
from kernfed_client.methods.reweight import (
    steps as reweight,
)
from kernfed_client.methods.reweight import (
    training as reweight_training,
)
from kernfed_client.methods.ridge import steps as ridge
from kernfed_client.steps import (
    data,
    evaluation,
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
