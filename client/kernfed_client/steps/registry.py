"""The steps that this client agrees to run; a task that names any other is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernfed.federation.messages.base import Reply, Request
from kernfed.methods import rooms
from kernfed.tensors import threads
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps import data, evaluation

StepFunction = Callable[[Any, Any], Reply]
"""A client's half of a step: (local job, request) -> reply."""


def _with_threads(step: StepFunction) -> StepFunction:
    @functools.wraps(step)
    def run(job: LocalJob, request: Request[Any]) -> Reply:
        with threads.suited(job.largest):
            return step(job, request)

    return run


STEPS: dict[type[Request[Any]], StepFunction] = {
    request: _with_threads(step)
    for request, step in {
        **data.STEPS,
        **evaluation.STEPS,
        **rooms.merged("kernfed_client.methods", "steps", "STEPS"),
    }.items()
}
