"""The method `reweight`."""

from __future__ import annotations

from kernfed.federation.messages.base import requests_in
from kernfed.methods.base import FIXED, Method, Needs, table
from kernfed.methods.reweight import choice_messages, messages, mixture_messages, spectrum_messages
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed.methods.ridge.messages import NEWTON, NewtonStartRequest


def _rounds(settings: ReweightSettings) -> int:
    """With `newton` one model is trained after the other."""
    return settings.rounds * (settings.num_models if settings.trainer == "newton" else 1)


def _needs(settings: ReweightSettings) -> Needs:
    """Networks are trained on the columns."""
    return Needs.FEATURES if settings.trainer == "newton" else Needs.COLUMNS


_TRAINED_BY = {
    "newton": NewtonStartRequest,
    "adam": messages.WeightedGradientRequest,
    "fedavg": messages.WeightedUpdateRequest,
}

METHODS = table(
    Method(
        ReweightSettings,
        rounds=_rounds,
        needs=_needs,
        steps=(*requests_in(messages, choice_messages, mixture_messages, spectrum_messages), *NEWTON),
        asks=lambda s: (_TRAINED_BY[s.trainer],),
        fixed={**FIXED, "num_points": "num_points"},
        network=lambda s: s.network,
    )
)
