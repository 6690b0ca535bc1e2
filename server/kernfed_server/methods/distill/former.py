"""Jobs that an earlier release began: they go on under the rules that they began with.

A job file that leaves a key out takes the default of the release that begins the job. The state in the checkpoint shows
which release that was, by the arrays that it lacks.
"""

from __future__ import annotations

from typing import Any

from kernfed.methods.distill.settings import PLAIN_RIDGE, DistillSettings
from kernfed_server.jobs.state import State

_TUNED = {"ridge": PLAIN_RIDGE, "lengthscale": "median", "keep": "better"}
"""Defaults of the release before that which chooses ridge and lengthscale."""
_PRINTED = {**_TUNED, "keep": "distilled", "intercept": "penalised", "deregularise": "paper"}
"""Defaults of the release before that, which had the printed rules alone."""
_RENAMED = {"intercept": "penalised", "deregularise": "paper"}
"""What `true` meant there."""
_FORGETFUL = {"remember": "consensus"}
"""Of every release that kept no client's predictions."""


def begun_with(settings: DistillSettings, state: State | None) -> tuple[DistillSettings, str]:
    """The settings under which a run goes on, and what to say of it; empty: nothing.

    Args:
        settings: As this release reads the job file.
        state: Of the checkpoint that the run goes on from; None: it begins now.
    """
    if state is None or "answered" in state:
        return settings, ""
    tuned = "tuned" in state
    printed = not tuned and "steps" not in state
    stated = settings.model_fields_set
    former = {} if tuned else _PRINTED if printed else _TUNED
    changed: dict[str, Any] = {key: value for key, value in former.items() if key not in stated}
    if settings.keeps_predictions:
        changed |= _FORGETFUL
    if printed:
        changed |= {key: value for key, value in _RENAMED.items() if getattr(settings, key) is True}
    if not changed:
        return settings, ""
    told = ", ".join(f"{key} = {value}" for key, value in sorted(changed.items()))
    return settings.model_copy(update=changed), f"begun by an earlier release, whose rules it keeps: {told}"
