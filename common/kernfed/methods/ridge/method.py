"""The methods `local` and `dkrr`."""

from __future__ import annotations

from kernfed.methods.base import Method, table
from kernfed.methods.ridge.messages import LocalSolveRequest, TrainLocallyRequest
from kernfed.methods.ridge.settings import DkrrSettings, LocalSettings

METHODS = table(
    Method(LocalSettings, rounds=lambda _: 0, steps=(TrainLocallyRequest,)),
    Method(DkrrSettings, rounds=lambda _: 0, steps=(LocalSolveRequest,)),
)
