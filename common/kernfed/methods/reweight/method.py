"""The method `reweight`."""

from __future__ import annotations

from kernfed.methods.base import Method, Needs, table
from kernfed.methods.reweight.settings import ReweightSettings


def _rounds(settings: ReweightSettings) -> int:
    """With `newton` one model is trained after the other."""
    return settings.rounds * (settings.num_models if settings.trainer == "newton" else 1)


def _needs(settings: ReweightSettings) -> Needs:
    """Networks are trained on the columns."""
    return Needs.FEATURES if settings.trainer == "newton" else Needs.COLUMNS


METHODS = table(Method(ReweightSettings, rounds=_rounds, needs=_needs))
