"""Settings of the methods that learn on streams: `online` and the baselines that it is compared with."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.methods.online.dictionary import MAX_KERNELS, default_lengthscales
from kernfed.methods.shared_settings import NO_RIDGE_ALONE
from kernfed.section import MethodSection, Only, Unused

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, le=1e6)]

_ANSWER_BYTES = 96
"""Of an answer, beside its numbers: what is allowed for its header."""


class StreamSettings(MethodSection):
    """What all methods on streams share."""

    unused = (
        Unused("features", "has kernels of its own, set in [method]"),
        Unused("evaluate_every", "measures as its own key metrics_every says"),
        NO_RIDGE_ALONE,
        Unused("data.scales", "leaves rows that stand far out to its own rules, for its rows keep coming"),
        Unused("data.unseen_classes", "takes every class that `classes` names, for its rows keep coming"),
        Unused("data.test_fraction", "measures every prediction before its target is used"),
        Unused("method.target_range", "maps no targets but those of a regression", tasks=("binary", "classification")),
    )

    rounds: int = Field(
        0, ge=0, le=1_000_000_000, description="Turns of the loop; 0: until all streams end or the job is cancelled."
    )
    batch_rows: int = Field(
        1,
        ge=1,
        le=100_000,
        description="Rows of each client per round; one whose policy.min_rows is larger takes that many.",
    )
    row_norm: Positive | Literal["auto"] = Field(
        "auto", description="Rows are divided by it; auto: the largest norm of any client's training row."
    )
    target_range: list[float] | Literal["auto"] = Field(
        "auto",
        description="Least and largest target, mapped to 0 and 1; auto: of all clients' training rows.",
    )
    wait_s: float = Field(
        0.5, gt=0, le=60, description="How long clients wait for a row before they say that they have none."
    )
    outlier_spans: float = Field(
        5.0,
        ge=0,
        le=1e9,
        description="A row whose norm or target lies so many spans beyond the agreed ranges is left out; 0: none is.",
    )
    metrics_every: int = Field(25, ge=1, description="Rounds between measurements; the personal models are kept then.")

    @model_validator(mode="after")
    def _range_rises(self) -> Self:
        if self.target_range != "auto" and (
            len(self.target_range) != 2 or not self.target_range[0] < self.target_range[1]
        ):
            raise ValueError(f"target_range {self.target_range} is not [least, largest]; give two numbers that rise")
        return self


class KernelStreamSettings(StreamSettings):
    """What the methods with kernels share."""

    loss: Literal["auto", "squared", "logistic"] = Field(
        "auto", description="auto: squared for regression, logistic for binary."
    )
    regularisation: float = Field(0.0, ge=0, le=1e6, description="λ of loss + λ |θ|².")


class DictionarySettings(KernelStreamSettings):
    """What the methods with several kernels share."""

    num_kernels: Annotated[int, Only(lengthscales=None)] = Field(
        51, ge=2, le=MAX_KERNELS, description="Gaussian kernels N, of lengthscales from 0.01 to 100."
    )
    lengthscales: list[Positive] | None = Field(
        None, min_length=2, max_length=MAX_KERNELS, description="In place of these, for rows of norm at most 1."
    )

    @property
    def dictionary_lengthscales(self) -> tuple[float, ...]:
        """Of the kernels, in their order."""
        return tuple(self.lengthscales) if self.lengthscales is not None else default_lengthscales(self.num_kernels)


class OnlineSettings(DictionarySettings):
    """Personalised online multi-kernel learning (POF-MKL): a personal mix of common kernels, on a bandwidth budget."""

    name: Literal["online"]
    rates: Literal["adaptive", "paper"] = Field(
        "adaptive",
        description="adaptive: nothing to tune, drift is followed. paper: the fixed rates of the two keys below.",
    )
    learning_rate: Annotated[Rate | Literal["auto"], Only(rates="paper")] = Field(
        "auto", description="η of the kernels' parameters; auto: 1/sqrt(rounds)."
    )
    weight_learning_rate: Annotated[Rate | Literal["auto"], Only(rates="paper")] = Field(
        "auto", description="η_k of the clients' weights; auto: 1/sqrt(rounds)."
    )
    experts: Annotated[Literal["own", "kernels"], Only(rates="adaptive")] = Field(
        "own",
        description="own: a client also weighs a model of its own, and a ridge over the kernels. kernels: their mix.",
    )
    budget: int = Field(1000, ge=2, le=100_000_000, description="Most that a client sends per round.")
    budget_unit: Literal["parameters", "bytes"] = Field("parameters", description="Unit of the budget.")
    kernels_per_round: int | Literal["auto"] = Field(
        "auto", description="Kernels M that a client sends per round; auto: half of them, in two bins."
    )
    num_frequencies: int | Literal["auto"] = Field(
        "auto", description="Frequencies D of each kernel; auto: as many as the budget allows, up to max_frequencies."
    )
    max_frequencies: Annotated[int, Only(num_frequencies="auto")] = Field(
        100, ge=1, le=100_000, description="Most frequencies that are chosen for you."
    )
    exploration: float = Field(
        1.0, gt=0, le=1, description="ξ: share of the draw of a bin that is uniform; below 1 better kernels go first."
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        n = len(self.dictionary_lengthscales)
        m, d = self.kernels_per_round, self.num_frequencies
        if m != "auto" and not 1 <= m <= n:
            raise ValueError(f"kernels_per_round is {m}, but there are {n} kernels; give 1 to {n}")
        if d != "auto" and d < 1:
            raise ValueError(f"num_frequencies is {d}; give at least 1")
        self.sizes(8)
        return self

    def sizes(self, float_bytes: int) -> tuple[int, int]:
        """M and D: as set, or as the budget allows.

        Args:
            float_bytes: Of a number on the wire, 8 or 4.

        Raises:
            ValueError: The budget does not allow them, or not one frequency.
        """
        n = len(self.dictionary_lengthscales)
        m = math.ceil(n / 2) if self.kernels_per_round == "auto" else self.kernels_per_round
        numbers = self.budget
        if self.budget_unit == "bytes":
            numbers = (self.budget - _ANSWER_BYTES - m) // float_bytes
        most = numbers // (2 * m)
        if self.num_frequencies == "auto":
            if most < 1:
                raise ValueError(
                    f"budget {self.budget} {self.budget_unit} is too small for {m} kernels of one frequency each; "
                    "raise it or lower kernels_per_round"
                )
            return m, min(most, self.max_frequencies)
        if self.num_frequencies > most:
            raise ValueError(
                f"{m} kernels of {self.num_frequencies} frequencies are {2 * m * self.num_frequencies} parameters per "
                f"round, more than budget {self.budget} {self.budget_unit} allows; raise it or lower one of them"
            )
        return m, self.num_frequencies


class OfsklSettings(KernelStreamSettings):
    """Online federated learning with a single kernel (Fed-OMD)."""

    name: Literal["ofskl"]
    lengthscale: Positive = Field(10.0, description="Of the kernel, for rows of norm at most 1.")
    num_frequencies: int = Field(100, ge=1, le=100_000, description="Random frequencies D.")
    learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")


class OfmklAvgSettings(DictionarySettings):
    """Fed-OMD on several kernels, whose predictions are averaged."""

    name: Literal["ofmkl-avg"]
    num_frequencies: int = Field(9, ge=1, le=100_000, description="Random frequencies D of each kernel.")
    learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")


class VmKoflSettings(DictionarySettings):
    """vM-KOFL: one mix of the kernels for all clients; all kernels travel in each round."""

    name: Literal["vm-kofl"]
    num_frequencies: int = Field(9, ge=1, le=100_000, description="Random frequencies D of each kernel.")
    learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")
    weight_learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")


class EmKoflSettings(DictionarySettings):
    """eM-KOFL: the coordinator draws one kernel per round, by one mix for all clients; only that kernel travels."""

    name: Literal["em-kofl"]
    num_frequencies: int = Field(100, ge=1, le=100_000, description="Random frequencies D of each kernel.")
    learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")
    weight_learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")


class PerFedAvgSettings(StreamSettings):
    """Personalised federated averaging: a small network that each client adapts to its last row."""

    name: Literal["perfedavg"]
    hidden: int = Field(64, ge=1, le=4096, description="Units of each of the two hidden layers.")
    adaptation_rate: Rate = Field(0.01, description="α: step of a client's own adaptation.")
    learning_rate: Rate = Field(0.01, description="β: step of the update that is sent.")
