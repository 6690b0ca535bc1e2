"""Settings of generalised linear models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kernfed.federation.messages.data import LearningTask
from kernfed.methods.glm.families import FamilyName
from kernfed.methods.shared_settings import ALL_ROWS, AUTO, ONE_ROUND, Rounds
from kernfed.section import MethodSection, Unused

Column = Annotated[str, StringConstraints(max_length=256)]


class GlmSettings(MethodSection):
    """A generalised linear model of all rows, as if they lay in one place: coefficients with standard errors."""

    unused = (
        *ALL_ROWS,
        ONE_ROUND,
        Unused("seed", "draws nothing"),
        Unused("data.standardise", "tells coefficients in the columns' own units"),
    )

    name: Literal["glm"]
    family: FamilyName | Literal["auto"] = Field(
        AUTO,
        description="Distribution of the target: gaussian, binomial (two classes, log-odds), poisson (counts, "
        "logarithm), gamma (above 0, logarithm). auto: binomial for two classes, gaussian for numbers.",
    )
    intercept: bool = Field(True, description="Whether the model has one.")
    offset: Column = Field(
        "", description="A column of data.features that is added to the linear predictor as it is; empty: none."
    )
    weights: Column = Field(
        "", description="A column of data.features by which each row's variance is divided, above 0; empty: none."
    )
    errors: Literal["model", "robust"] = Field(
        "model",
        description="Standard errors by the model's variance; or robust ones (sandwich), by groups at clients whose "
        "data set names a `group`, else by rows.",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Of the intervals.")
    rounds: Rounds = 25
    tolerance: float = Field(
        1e-8, gt=0, le=1e-2, description="It ends where the next step is at most so many standard errors long."
    )

    def family_of(self, task: LearningTask | None) -> FamilyName:
        """The family in a job of that task."""
        if self.family != AUTO:
            return FamilyName(self.family)
        return FamilyName.BINOMIAL if task is LearningTask.BINARY else FamilyName.GAUSSIAN
