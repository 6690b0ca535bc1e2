"""The rules that a run began with: a run of an earlier release goes on by those of that release."""

from __future__ import annotations

from collections.abc import Mapping

from kernfed.arrays import Array
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_server.jobs.state import State, json_array

_NAME = "mixture"


def kept(mixed: Mapping[str, tuple[float, float]]) -> dict[str, Array]:
    """For a checkpoint; a run of a release before has no such entry.

    Args:
        mixed: Clients whose rows make the mixture, each with the bounds of its mean ratio.
    """
    return {_NAME: json_array({client: list(bounds) for client, bounds in mixed.items()})}


def mixture_of(state: State) -> dict[str, tuple[float, float]]:
    """What `kept` was given; nothing where the release was an earlier one."""
    if _NAME not in state:
        return {}
    return {client: (float(low), float(high)) for client, (low, high) in state.json(_NAME).items()}


def of_stored(settings: ReweightSettings, state: State) -> ReweightSettings:
    """The settings by which a run goes on that was begun with a checkpoint's release."""
    return settings if _NAME in state else settings.as_before()
