"""Settings of the methods that learn on streams: `online` and the baselines that it is compared with."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.methods.online.dictionary import MAX_KERNELS, default_lengthscales
from kernfed.methods.online.own_model import LENGTHSCALES
from kernfed.methods.online.pooled_ridge import packed_size
from kernfed.methods.shared_settings import MAX_SHARE, NO_RIDGE_ALONE, ROW_QUORUM, AveragedSettings
from kernfed.section import Above, MethodSection, Only, Unused

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, le=1e6)]

GRADIENT_BUDGET = 1000
"""Parameters per round, where no budget is set."""
POOLED_FREQUENCIES = 40
"""Of each kernel of ridges on pooled rows, where nothing else is set."""

_OF_GRADIENTS = ("num_kernels", "lengthscales", "kernels_per_round", "exploration")

_OWN_EXPERTS = Only(rates="adaptive", experts=("own", "evidence", "gated"))

_ANSWER_BYTES = 96
"""Of an answer, beside its numbers: what is allowed for its header."""


class StreamSettings(MethodSection):
    """What all methods on streams share."""

    unused = (
        Unused("features", "has kernels of its own, set in [method]"),
        Unused("evaluate_every", "measures as its own key metrics_every says"),
        NO_RIDGE_ALONE,
        Unused(MAX_SHARE, "counts the rows that each stream brings"),
        Unused(ROW_QUORUM, "counts the rows that each stream brings"),
        Unused("data.scales", "sets scales without the rows that stand far out, and learns from them by its own rules"),
        Unused("data.unseen_classes", "takes every class that `classes` names, for its rows keep coming"),
        Unused("data.test_fraction", "measures every prediction before its target is used"),
        Unused("data.validation_fraction", "measures every prediction before its target is used"),
        Unused("data.split", "measures every prediction before its target is used"),
        Unused("method.target_range", "maps no targets but those of a regression", tasks=("binary", "classification")),
    )

    rounds: int = Field(
        0, ge=0, le=1_000_000_000, description="Turns of the loop; 0: until all streams end or the job is cancelled."
    )
    batch_rows: int = Field(
        1,
        ge=1,
        le=100_000,
        description="Rows of each client per round; one takes a multiple of its policy.min_rows, at least that many.",
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
    hindsight: Annotated[bool, Only(loss=("auto", "squared"))] = Field(
        False,
        description="Measure at the end the regret against the best function of one kernel in hindsight, for the rows "
        "of all clients, by the squared loss. Clients need the rows that they learned, as of a stream that ends, and "
        "their policies must allow sufficient_statistic.",
    )


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
    """Common kernels and a personal mix of them: ridges on pooled statistics, or gradients on a budget (POF-MKL)."""

    name: Literal["online"]
    share: Annotated[Literal["auto", "statistics", "gradients"], _OWN_EXPERTS] = Field(
        "auto",
        description="statistics: common kernels are ridges on the rows of all clients. gradients: they move by "
        "gradients. auto: statistics, where every client's policy allows them and no key of gradients is set.",
    )
    num_kernels: Annotated[int, Only(lengthscales=None, share="gradients")] = Field(
        51, ge=2, le=MAX_KERNELS, description="Gaussian kernels N, of lengthscales from 0.01 to 100."
    )
    lengthscales: Annotated[list[Positive] | None, Only(share="gradients")] = Field(
        None, min_length=2, max_length=MAX_KERNELS, description="In place of these, for rows of norm at most 1."
    )
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
    experts: Annotated[Literal["own", "evidence", "gated", "kernels"], Only(rates="adaptive")] = Field(
        "own",
        description="own: a client also weighs a model of its own, and a ridge over the kernels; with statistics its "
        "total loss is at most 3 % above that of the own model. evidence: likewise without this bound, by the evidence "
        "of all clients; for statistics. gated: likewise, but with statistics too it goes over from its own model to "
        "the others all at once. kernels: their mix.",
    )
    budget: Annotated[int, Field(ge=2, le=100_000_000)] | Literal["auto"] = Field(
        "auto",
        description="Most that a client sends per round; auto: with gradients 1000 parameters, with statistics what "
        "40 frequencies need.",
    )
    budget_unit: Annotated[Literal["parameters", "bytes"], Only(budget=Above(1))] = Field(
        "parameters", description="Unit of the budget."
    )
    kernels_per_round: Annotated[int | Literal["auto"], Only(share="gradients")] = Field(
        "auto", description="Kernels M that a client sends per round; auto: half of them, in two bins."
    )
    num_frequencies: int | Literal["auto"] = Field(
        "auto",
        description="Frequencies D of each kernel; auto: as many as the budget allows, up to max_frequencies; with "
        "statistics up to 40.",
    )
    max_frequencies: Annotated[int, Only(num_frequencies="auto")] = Field(
        100, ge=1, le=100_000, description="Most frequencies that are chosen for you."
    )
    exploration: Annotated[float, Only(share="gradients")] = Field(
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
        if self.value_in_effect("share") == "gradients":
            if self.experts in ("evidence", "gated"):
                keys = ", ".join(self._keys_of_gradients) or "share"
                gated = self.experts == "gated"
                why = f"is what gradients, which {keys} chooses, do anyway" if gated else f"needs what {keys} rules out"
                raise ValueError(f'experts = "{self.experts}" {why}; leave one out')
            self.sizes(8)
        else:
            self.pooled_frequencies(self.batch_rows)
        return self

    def value_in_effect(self, key: str) -> object:
        """As for all sections; `share = "auto"` stands for gradients where a key of theirs is set."""
        if key != "share" or self.share != "auto":
            return super().value_in_effect(key)
        return (
            "gradients"
            if self._keys_of_gradients or self.rates == "paper" or self.experts == "kernels"
            else "statistics"
        )

    @property
    def _keys_of_gradients(self) -> list[str]:
        """Keys that are set, and act with gradients alone."""
        fields = type(self).model_fields
        return [name for name in _OF_GRADIENTS if getattr(self, name) != fields[name].default]

    def sizes(self, float_bytes: int) -> tuple[int, int]:
        """M and D of gradients: as set, or as the budget allows.

        Args:
            float_bytes: Of a number on the wire, 8 or 4.

        Raises:
            ValueError: The budget does not allow them, or not one frequency.
        """
        n = len(self.dictionary_lengthscales)
        m = math.ceil(n / 2) if self.kernels_per_round == "auto" else self.kernels_per_round
        most = self._numbers(float_bytes, m) // (2 * m)
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

    def pooled_frequencies(self, num_rows: int) -> int:
        """D of statistics: as set, or as the budget allows.

        Args:
            num_rows: Most rows that a client sends statistics of in a round.

        Raises:
            ValueError: The budget does not allow them, or not one frequency.
        """
        numbers = math.inf if self.budget == "auto" else self._numbers(8, 0)  # statistics keep their digits

        def size(d: int) -> int:
            return len(LENGTHSCALES) * packed_size(num_rows, 2 * d + 1)

        if self.num_frequencies != "auto":
            if size(self.num_frequencies) > numbers:
                raise ValueError(
                    f"statistics of {num_rows} rows with {self.num_frequencies} frequencies are "
                    f"{size(self.num_frequencies)} parameters per round, more than budget {self.budget} "
                    f"{self.budget_unit} allows; raise it, or lower num_frequencies"
                )
            return self.num_frequencies
        found = next((d for d in range(min(POOLED_FREQUENCIES, self.max_frequencies), 0, -1) if size(d) <= numbers), 0)
        if not found:
            raise ValueError(
                f"budget {self.budget} {self.budget_unit} is too small for statistics of {num_rows} rows with one "
                f'frequency, {size(1)} parameters; raise it, or set share = "gradients"'
            )
        return found

    def _numbers(self, float_bytes: int, other_bytes: int) -> int:
        """Numbers that an answer may hold, beside so many other bytes."""
        if self.budget == "auto":
            return GRADIENT_BUDGET
        if self.budget_unit == "bytes":
            return (self.budget - _ANSWER_BYTES - other_bytes) // float_bytes
        return self.budget


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


class EmKoflSettings(DictionarySettings, AveragedSettings):
    """eM-KOFL: the coordinator draws one kernel per round, by one mix for all clients; only that kernel travels."""

    name: Literal["em-kofl"]
    num_frequencies: int = Field(100, ge=1, le=100_000, description="Random frequencies D of each kernel.")
    learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")
    weight_learning_rate: Rate | Literal["auto"] = Field("auto", description="auto: 1/sqrt(rounds).")


class PerFedAvgSettings(StreamSettings, AveragedSettings):
    """Personalised federated averaging: a small network that each client adapts to its last row."""

    name: Literal["perfedavg"]
    hidden: int = Field(64, ge=1, le=4096, description="Units of each of the two hidden layers.")
    adaptation_rate: Rate = Field(0.01, description="α: step of a client's own adaptation.")
    learning_rate: Rate = Field(0.01, description="β: step of the update that is sent.")
