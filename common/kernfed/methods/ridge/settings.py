"""Settings of the methods on ridge problems that have nothing but a ridge to set."""

from __future__ import annotations

from typing import Literal

from kernfed.methods.shared_settings import BY_ROWS, MAX_SHARE, ONE_ROUND, AveragedSettings, ChosenRidge, Ridge
from kernfed.section import MethodSection, Unused


class LocalSettings(MethodSection):
    """Every client alone: nothing but counts and metrics leaves."""

    unused = (ONE_ROUND, Unused(MAX_SHARE, "forms no mean over clients"))

    name: Literal["local"]
    ridge: Ridge = BY_ROWS


class DkrrSettings(AveragedSettings):
    """One-shot average of local ridge solutions."""

    unused = (ONE_ROUND,)

    name: Literal["dkrr"]
    ridge: ChosenRidge = BY_ROWS
