"""Settings of ensemble distillation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernfed.errors import ConfigError
from kernfed.features.kernels import PointKernel
from kernfed.methods.base import MedianRule
from kernfed.methods.distill.alpha import check_alpha
from kernfed.methods.shared_settings import MAX_SHARE, NO_RIDGE_ALONE, Rounds
from kernfed.section import Below, Label, MethodSection, Only, Unused

Positive = Annotated[float, Field(gt=0)]

PLAIN_RIDGE = 1e-3
"""λ where nothing chooses it."""


class DistillSettings(MethodSection):
    """Ensemble distillation: clients learn from each other's predictions on public points; models stay private."""

    unused = (
        Unused("features", "computes with the exact kernel that [method] names, not with a feature map"),
        NO_RIDGE_ALONE,
        Unused(MAX_SHARE, "counts all clients alike"),
    )

    name: Literal["distill"]
    public: str = Field(
        min_length=1,
        max_length=1024,
        description="File of public, unlabelled points (CSV, Parquet or NPZ) with the feature columns; relative to the "
        "job file.",
    )
    kernel: PointKernel = Field(PointKernel.GAUSSIAN, description="Kernel of the clients' ridge regression, exact.")
    lengthscale: Positive | list[Positive] | MedianRule | Literal["auto"] = Field(
        "auto",
        description="One number, one per feature column, or the federated median heuristic, with rows that are "
        "drawn by the job's seed or evenly spaced. auto: the multiple of the median with the least leave-one-out "
        "error of all clients' rows.",
    )
    intercept: bool | Literal["penalised"] = Field(
        True,
        description="Whether kernel ridge regression has an intercept, which costs nothing; penalised: 1 is added to "
        "the kernel, so that the ridge shrinks it too.",
    )
    ridge: Annotated[float, Field(gt=0, le=1e6)] | Literal["auto"] = Field(
        "auto",
        description="λ of the objective |f - y|²/n + λ |f|². auto: that with the least leave-one-out error of all "
        "clients' rows.",
    )
    rounds: Rounds = 100
    alpha: float | Literal["auto"] = Field(
        "auto",
        description="Weight of a client's own rows against the public points, between 0 and 1; auto: its share of all "
        "training rows (1/clients where all have as many).",
    )
    deregularise: bool | Literal["paper"] = Field(
        True,
        description="Undo the shrinkage of each round but the last (Algorithm 2): each client that of its own kernel "
        "and ridge, with a bound. paper: the coordinator undoes that of the job's kernel and ridge, as printed.",
    )
    undone_ridge: Annotated[Annotated[float, Field(ge=0, le=1e6)] | Literal["auto"], Only(deregularise="paper")] = (
        Field("auto", description="λ₀ of equation (7), which the coordinator undoes; auto: the ridge.")
    )
    keep: Literal["blend", "better", "distilled"] = Field(
        "blend",
        description="What a client keeps. blend: a mean of the distilled model and that of its own rows alone, weighed "
        "by rows kept apart. better: the one of the two that predicts these rows better. Or always the distilled one.",
    )
    client_fraction: float = Field(1.0, gt=0, le=1, description="Share of the clients drawn for a round (Algorithm 3).")
    participation: Annotated[dict[Label, Positive], Only(client_fraction=Below(1))] = Field(
        {},
        description="How often clients are drawn, relative to the others, by name; 1 of one that is not named. With "
        'remember = "consensus" the consensus counts a client as often as it is drawn (Theorem C.16).',
    )
    remember: Literal["auto", "predictions", "consensus"] = Field(
        "auto",
        description="What stands for a client that is away in a round, or not drawn. predictions: its own last ones, "
        "so that each client counts once. consensus: the one before, by memory_exponent. auto: predictions where all "
        "clients take part and memory_exponent is not set, else consensus.",
    )
    memory_exponent: Annotated[float | Literal["auto"], Only(remember=("auto", "consensus"))] = Field(
        "auto",
        description="q of the weight t^-q that round t's predictions get beside the consensus before; from 0 (no "
        "memory) to 1. auto: 0 where all clients take part, else 0.501.",
    )
    uploads: Annotated[Literal["current", "stale"], Only(client_fraction=Below(1))] = Field(
        "current",
        description="Predictions of a model fitted to the current consensus first, or of the one "
        "fitted when last drawn, as Algorithm 3 is printed.",
    )
    tolerance: Annotated[float, Only(client_fraction=1, memory_exponent=("auto", 0))] = Field(
        1e-6,
        ge=0,
        lt=1,
        description="Stop when the consensus is estimated to be this close to its limit, relative; 0: run all rounds.",
    )

    @property
    def free_intercept(self) -> bool:
        """Whether kernel ridge regression has an intercept that costs nothing."""
        return self.intercept is True

    @property
    def keeps_predictions(self) -> bool:
        """Whether the last predictions of a client stand for it where it gives none."""
        if self.remember == "auto":
            return self.client_fraction == 1.0 and isinstance(self.memory_exponent, str)
        return self.remember == "predictions"

    @property
    def penalised_intercept(self) -> bool:
        """Whether 1 is added to the kernel."""
        return self.intercept == "penalised"

    @field_validator("alpha")
    @classmethod
    def _weighs_both(cls, value: float | str) -> float | str:
        if not isinstance(value, str):
            try:
                check_alpha(value)
            except ConfigError as err:
                raise ValueError(str(err)) from err
        return value

    @field_validator("memory_exponent")
    @classmethod
    def _forgets_slowly(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0.0 <= value <= 1.0:
            raise ValueError(
                f"method.memory_exponent is {value:g}: above 1 the consensus stops before it has arrived, below 0 is "
                "no memory; give a number from 0 to 1, above 0.5 for convergence"
            )
        return value
