"""The keys of the [method] table, and what the rest of kernfed asks of a method."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernfed.methods.base import Method, table
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed.methods.shared_settings import Ridge, Rounds
from kernfed.section import MethodSection


class MedianSettings(MethodSection):
    """The median of the clients' weights after local gradient steps: a few bad clients cannot move it far."""

    name: Literal["median"]
    ridge: Ridge = 1e-3
    rounds: Rounds = 50
    learning_rate: float = Field(0.1, gt=0, le=1e3, description="Of the clients' gradient steps.")
    local_steps: int = Field(10, ge=1, le=10_000, description="Gradient steps of a client in a round.")


METHODS = table(Method(MedianSettings, rounds=lambda settings: settings.rounds, steps=(GradientDescentRequest,)))
