"""Settings of methods on times to an event."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from kernfed.methods.shared_settings import ALL_ROWS, ONE_ROUND, Rounds
from kernfed.methods.survival.partial import Ties
from kernfed.section import MethodSection, Unused

Column = Annotated[str, StringConstraints(max_length=256)]


class KaplanMeierSettings(MethodSection):
    """Curves of survival (Kaplan-Meier) of all rows, by group too, with log-rank tests; there is no model."""

    unused = (
        *ALL_ROWS,
        ONE_ROUND,
        Unused("seed", "draws nothing"),
        Unused("data.standardise", "takes times and groups as they are"),
    )

    name: Literal["kaplan-meier"]
    event: Column = Field(
        "",
        description="A column of data.features that says whether the event came at the time in data.target (1, true), "
        "or the row was last seen then (0, false); empty: it came in each row.",
    )
    by: Column = Field(
        "",
        description="A column of data.features with the group of each row, 50 at most; empty: one curve of all rows.",
    )
    grid: list[float] = Field(
        [],
        max_length=10_000,
        description="Times, ascending, at which a curve may fall: each row's time counts as the next of them, and rows "
        "beyond the last were last seen there; empty: the clients' own times.",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Of the bands and intervals.")
    horizon: float | None = Field(
        None,
        gt=0,
        description="Time up to which means are taken (restricted mean survival); unset: the last time that every "
        "group reaches.",
    )

    @field_validator("grid")
    @classmethod
    def _ascends(cls, value: list[float]) -> list[float]:
        if any(b <= a for a, b in itertools.pairwise(value)):
            raise ValueError("its times are not in ascending order, or one comes twice; write e.g. [30, 60, 90]")
        return value


class CoxSettings(MethodSection):
    """Cox's proportional hazards of all rows, with a baseline of its own at each client: hazard ratios."""

    unused = (
        *ALL_ROWS,
        ONE_ROUND,
        Unused("seed", "draws nothing"),
        Unused("data.standardise", "tells coefficients in the columns' own units"),
    )

    name: Literal["cox"]
    event: Column = Field(
        "",
        description="A column of data.features that says whether the event came at the time in data.target (1, true), "
        "or the row was last seen then (0, false); empty: it came in each row.",
    )
    ties: Ties = Field(Ties.EFRON, description="Rule for events at one time.")
    errors: Literal["model", "robust"] = Field(
        "model",
        description="Standard errors by the model's information; or robust ones (sandwich), by groups at clients whose "
        "data set names a `group`, else by rows.",
    )
    baseline: bool = Field(True, description="Whether each client tells its cumulative baseline hazard.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Of the intervals.")
    rounds: Rounds = 25
    tolerance: float = Field(
        1e-8, gt=0, le=1e-2, description="It ends where the next step is at most so many standard errors long."
    )
