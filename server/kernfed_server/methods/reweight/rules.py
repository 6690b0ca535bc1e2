"""The rules that a run began with: a run of an earlier release goes on by those of that release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_server.jobs.state import State, json_array

_NAME = "mixture"
_CHOICE = "choice"
_GONE_ON = "gone_on"


@dataclass(frozen=True, slots=True)
class Choice:
    """Weighted squared errors on rows kept apart, or NaN where there are none."""

    weighted: float
    unweighted: float
    error: float
    """Standard error of the difference."""
    margin: float = 0.0
    """By how many standard errors the unweighted model must be better to be the job's."""

    @property
    def plain(self) -> bool:
        """Whether the unweighted model is the job's."""
        return self.weighted - self.unweighted > self.margin * self.error


@dataclass(frozen=True, slots=True)
class GoneOn:
    """What the clients of the first rounds made of the job: later ones may differ, and its variants may not."""

    scope: str
    """The scope that the job goes on with."""
    skipped: tuple[str, ...] = ()
    """Variants that are not trained, as their ratios do not exist at some client."""


def kept(mixed: Mapping[str, tuple[float, float]], choice: Choice | None, gone_on: GoneOn) -> dict[str, Array]:
    """For a checkpoint; a run of a release before has no such entries.

    Args:
        mixed: Clients whose rows make the mixture, each with the bounds of its mean ratio.
        choice: Between the models, once it was made.
        gone_on: Which variants there are.
    """
    found = {
        _NAME: json_array({client: list(bounds) for client, bounds in mixed.items()}),
        _GONE_ON: json_array({"scope": gone_on.scope, "skipped": list(gone_on.skipped)}),
    }
    if choice is not None:
        found[_CHOICE] = np.array([choice.weighted, choice.unweighted, choice.error, choice.margin])
    return found


def choice_of(state: State) -> Choice | None:
    """What `kept` was given."""
    return Choice(*map(float, state[_CHOICE])) if _CHOICE in state else None


def gone_on_of(state: State) -> GoneOn | None:
    """What `kept` was given; None where the release was an earlier one."""
    if _GONE_ON not in state:
        return None
    told = state.json(_GONE_ON)
    return GoneOn(told["scope"], tuple(told["skipped"]))


def mixture_of(state: State) -> dict[str, tuple[float, float]]:
    """What `kept` was given; nothing where the release was an earlier one."""
    if _NAME not in state:
        return {}
    return {client: (float(low), float(high)) for client, (low, high) in state.json(_NAME).items()}


def of_stored(settings: ReweightSettings, state: State) -> ReweightSettings:
    """The settings by which a run goes on that was begun with a checkpoint's release."""
    return settings if _NAME in state else settings.as_before()
