"""The method `reweight`."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.base import Request, requests_in
from kernfed.methods.base import FIXED, Method, Needs, table
from kernfed.methods.reweight import (
    choice_messages,
    messages,
    mixture_messages,
    own_network_messages,
    spectrum_messages,
)
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed.methods.ridge.messages import NEWTON, NewtonStartRequest
from kernfed.models.network_spec import NetworkKind


def _rounds(settings: ReweightSettings) -> int:
    """With `newton` one model is trained after the other."""
    return settings.rounds * (settings.num_models if settings.trainer == "newton" else 1)


def _needs(settings: ReweightSettings) -> Needs:
    """Networks are trained on the columns."""
    return Needs.FEATURES if settings.trainer == "newton" else Needs.COLUMNS


_TRAINED_BY: dict[str, type[Request[Any]]] = {
    "newton": NewtonStartRequest,
    "adam": messages.WeightedGradientRequest,
    "fedavg": messages.WeightedUpdateRequest,
}


def _asks(settings: ReweightSettings) -> tuple[type[Request[Any]], ...]:
    """A module of the clients' own is asked for before it is trained."""
    own = settings.network.kind is NetworkKind.OWN
    return (*((own_network_messages.DescribeOwnNetworkRequest,) if own else ()), _TRAINED_BY[settings.trainer])


METHODS = table(
    Method(
        ReweightSettings,
        rounds=_rounds,
        needs=_needs,
        steps=(
            *requests_in(messages, choice_messages, mixture_messages, spectrum_messages, own_network_messages),
            *NEWTON,
        ),
        asks=_asks,
        fixed={**FIXED, "num_points": "num_points"},
        network=lambda s: s.network,
    )
)
