"""The methods `local` and `dkrr`."""

from __future__ import annotations

from kernfed.methods.base import FIXED, Method, table
from kernfed.methods.ridge.masked_messages import (
    MaskedSolveRequest,
)
from kernfed.methods.ridge.messages import (
    LocalSolveRequest,
    TrainLocallyRequest,
)
from kernfed.methods.ridge.settings import DkrrSettings, LocalSettings
from kernfed.methods.shared_settings import seen_means

METHODS = table(
    Method(
        LocalSettings,
        rounds=lambda _: 0,
        steps=(TrainLocallyRequest,),
        asks=lambda _: (TrainLocallyRequest,),
        fixed=FIXED,
        seen=lambda _: "forms no sum over clients",
    ),
    Method(
        DkrrSettings,
        rounds=lambda _: 0,
        steps=(LocalSolveRequest, MaskedSolveRequest),
        asks=lambda _: (LocalSolveRequest,),
        fixed=FIXED,
        masked=lambda _: (MaskedSolveRequest,),
        seen=seen_means,
    ),
)
