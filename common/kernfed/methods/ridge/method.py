"""The methods `local` and `dkrr`."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.base import Request
from kernfed.methods.base import FIXED, Method, table
from kernfed.methods.ridge.messages import LocalSolveRequest, TrainLocallyRequest
from kernfed.methods.ridge.settings import DkrrSettings, LocalSettings


def _one_step(settings: type[LocalSettings | DkrrSettings], step: type[Request[Any]]) -> Method[Any]:
    return Method(settings, rounds=lambda _: 0, steps=(step,), asks=lambda _: (step,), fixed=FIXED)


METHODS = table(
    _one_step(LocalSettings, TrainLocallyRequest),
    _one_step(DkrrSettings, LocalSolveRequest),
)
