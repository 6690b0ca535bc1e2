"""The keys of the [method] tables, and what the rest of kernfed asks of the two methods."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernfed.methods.base import Method, table
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed.methods.shared_settings import Ridge, Rounds
from kernfed.section import MethodSection


class RobustSettings(MethodSection):
    """What both methods have: local gradient steps on a ridge problem."""

    ridge: Ridge = 1e-3
    rounds: Rounds = 50
    learning_rate: float = Field(0.1, gt=0, le=1e3, description="Of the clients' gradient steps.")
    local_steps: int = Field(10, ge=1, le=10_000, description="Gradient steps of a client in a round.")


class MedianSettings(RobustSettings):
    """The median of the clients' weights after local gradient steps: a few bad clients cannot move it far."""

    name: Literal["median"]


class TrimmedMeanSettings(RobustSettings):
    """The mean of the clients' weights without the largest and the smallest, entry by entry."""

    name: Literal["trimmed-mean"]
    trim: float = Field(
        0.2, ge=0, lt=0.5, description="Share of the clients that is left out at each end, rounded down."
    )


def _rounds(settings: RobustSettings) -> int:
    return settings.rounds


METHODS = table(
    Method(MedianSettings, rounds=_rounds, steps=(GradientDescentRequest,)),
    Method(TrimmedMeanSettings, rounds=_rounds, steps=(GradientDescentRequest,)),
)
"""The methods `median` and `trimmed-mean`: federated averaging with another rule in place of the mean."""
