"""The steps that this client agrees to run; a task that names any other is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernfed import plugins
from kernfed.errors import ConfigError, PolicyError
from kernfed.federation.messages.base import Reply, Request
from kernfed.methods import rooms
from kernfed.tensors import threads
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps import appraisal, choosing, columns, data, evaluation, sums

StepFunction = Callable[[Any, Any], Reply]
"""A client's half of a step: (local job, request) -> reply."""


_BEFORE_ROUNDS = {**columns.STEPS, **data.STEPS}


def _run(step: StepFunction) -> StepFunction:
    """Run it with threads that suit it; the setup tells sums over all rows, and the first answer behind it blocks."""
    plugin = plugins.owner(step.__module__)

    @functools.wraps(step)
    def run(job: LocalJob, request: Request[Any]) -> Reply:
        try:
            with threads.suited(job.largest), plugins.blamed(plugin, f"step {request.step}", tell=False):
                reply = step(job, request)
        except PolicyError:
            job.settle_blocks(refused=True)
            raise
        if type(request) not in _BEFORE_ROUNDS and type(request) not in sums.STEPS:
            job.settle_blocks(refused=False)
        return reply

    return run


_SHARED: dict[type[Request[Any]], StepFunction] = {
    **_BEFORE_ROUNDS,
    **evaluation.STEPS,
    **appraisal.STEPS,
    **choosing.STEPS,
    **sums.STEPS,
}
_OF_ROOMS = rooms.merged("kernfed_client.methods", "steps", "STEPS")
if replaced := sorted(request.step for request in _SHARED.keys() & _OF_ROOMS.keys()):
    raise ConfigError(f"a package from outside brings step {replaced[0]}, which all methods share; uninstall it")

STEPS: dict[type[Request[Any]], StepFunction] = {
    request: _run(step) for request, step in {**_SHARED, **_OF_ROOMS}.items()
}
