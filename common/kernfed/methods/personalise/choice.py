"""The candidates of cross-fitted collaboration weights, and the choice among them from sums over clients.

See `kernfed.methods.personalise.crossfit` for what a candidate is made of. J candidates, G of them FedAvg's.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.methods.personalise.crossfit_messages import CandidateGrid, StageDecision

MIN_STAGES, MAX_STAGES = 3, 8
"""Turns of proposing and choosing: embeddings and clusters; losses of the local model and of the choice; losses of the
choice once more, and again for as long as the choice's held-out loss falls by `STAGE_GAIN`."""
STAGE_GAIN = 0.02


class Family(enum.StrEnum):
    """The clients towards which a candidate's mixture leans."""

    LOCAL = "local"
    """The target alone."""
    POOLED = "pooled"
    """Towards all others by their rows, part of the way."""
    FEDAVG = "fedavg"
    """All rows alike: what federated averaging has for its limit."""
    EMBEDDING = "embedding"
    """Towards clients whose rows look alike."""
    CLUSTER = "cluster"
    """Towards the others that one model predicts together, and that model predicts the target best."""
    LOSS_LOCAL = "loss-local"
    """Towards clients at which the target's own model predicts well."""
    LOSS_CHOICE = "loss-choice"
    """The same from the model chosen in the first stage."""
    LOSS_AGAIN = "loss-again"
    """The same from the model chosen in the second stage."""


_WORDS: Final = {
    Family.LOCAL: "itself alone",
    Family.POOLED: "all clients, by their rows",
    Family.FEDAVG: "all rows alike",
    Family.EMBEDDING: "clients whose rows look alike",
    Family.CLUSTER: "clients that one model predicts well together",
    Family.LOSS_LOCAL: "clients that its own model predicts well",
    Family.LOSS_CHOICE: "clients that the first choice's model predicts well",
    Family.LOSS_AGAIN: "clients that the last choice's model predicts well",
}

FULL_GRID = CandidateGrid(
    widths=(0.25, 0.5, 1.0),
    loss_widths=(0.25, 1.0),
    shares=(0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0),
    ridges=(1e-4, 0.02, 0.1, 0.3, 1.0),
    num_folds=0,
    clusters=(2, 3, 5),
)
LITE_GRID = CandidateGrid(
    widths=(0.5,),
    loss_widths=(0.5,),
    shares=(0.05, 0.3, 0.7, 1.0),
    ridges=(1e-3, 0.1, 1.0),
    num_folds=0,
    clusters=(2, 4),
)
"""87 candidates instead of 525: about 3 times cheaper with those of clusters, errors within 3 % on linear clients."""
WIDE_GRID = replace(LITE_GRID, ridges=(0.03, 0.3, 3.0, 30.0))
"""116 candidates for many inputs such as random features: a system costs the cube of their number, and most of their
directions carry little, so that the mean of the diagonal is small and useful ridges are larger multiples of it."""
WIDE_FROM_INPUTS = 65
"""Inputs from which the wide grid is the default."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to mix, and a ridge."""

    family: Family
    width: float
    """h; of clusters their number; 0 where the family has none."""
    share: float
    """u; 0 for the local family."""
    ridge: float
    """rho."""

    @property
    def words(self) -> str:
        """From whom it learns, for people."""
        many = f" ({self.width:g} groups)" if self.family is Family.CLUSTER else ""
        lean = f", {self.share:.0%} of the way" if 0 < self.share < 1 and self.family is not Family.FEDAVG else ""
        return f"{_WORDS[self.family]}{many}{lean}; ridge {self.ridge:g} of the mean second moment"


@dataclass(frozen=True, slots=True)
class Scores:
    """A client's scores of the candidates; a decision needs only sums over clients. G FedAvg candidates."""

    losses: Floats
    """Held-out squared error per row L_j, shape (J,)."""
    squared_differences: Floats
    """(L_j - L_b)² for each FedAvg candidate b, shape (J, G)."""
    variances: Floats
    """Squared standard error of L_j - L_b over the client's rows, shape (J, G)."""


def default_grid(num_inputs: int) -> CandidateGrid:
    """The full grid, or the wide one from `WIDE_FROM_INPUTS` inputs on."""
    return WIDE_GRID if num_inputs >= WIDE_FROM_INPUTS else FULL_GRID


@functools.lru_cache(maxsize=64)
def candidates(grid: CandidateGrid, stage: int) -> tuple[Candidate, ...]:
    """List the candidates of a stage, from 0 on: those of earlier stages come first, in the same places."""
    partly = grid.shares[:-1]

    def lean(family: Family, widths: Sequence[float]) -> list[Candidate]:
        return [Candidate(family, h, u, rho) for h in widths for u in grid.shares for rho in grid.ridges]

    found = [Candidate(Family.LOCAL, 0.0, 0.0, rho) for rho in grid.ridges]
    found += [Candidate(Family.POOLED, 0.0, u, rho) for u in partly for rho in grid.ridges]
    found += [Candidate(Family.FEDAVG, 0.0, 1.0, rho) for rho in grid.ridges]
    found += lean(Family.EMBEDDING, grid.widths) + lean(Family.CLUSTER, grid.clusters)
    if stage >= 1:
        found += lean(Family.LOSS_LOCAL, grid.loss_widths) + lean(Family.LOSS_CHOICE, grid.loss_widths)
    if stage >= 2:
        found += lean(Family.LOSS_AGAIN, grid.loss_widths)
    return tuple(found)


@dataclass
class Turns:
    """The stages of a choice, one after the other; `listed` is scored by all clients, and `add` takes the sum.

    while not turns.done: turns.add(sum of the clients' scores of turns.listed after turns.decisions, their number)
    """

    grid: CandidateGrid
    deviate: bool = True
    """Whether clients may choose from other families."""
    decisions: list[StageDecision] = field(default_factory=list)
    """Of the stages so far; when done, up to the best stage: clients adopt after these."""
    done: bool = False
    _loss: float = math.inf
    """Held-out loss of the last stage's choice."""

    @property
    def listed(self) -> tuple[Candidate, ...]:
        """Candidates of the stage at hand."""
        return candidates(self.grid, len(self.decisions))

    @property
    def chosen(self) -> Candidate:
        """The candidate that the last decision chose for all clients together."""
        return candidates(self.grid, len(self.decisions) - 1)[self.decisions[-1].pooled]

    def add(self, total: Scores, num_clients: int) -> None:
        """Decide the stage at hand; a turn after `MIN_STAGES` that gains nothing is undone.

        Args:
            total: Sum of the clients' scores.
            num_clients: How many clients the sum is of.
        """
        decision = decide(self.listed, total, num_clients, deviate=self.deviate)
        loss = float(total.losses[decision.pooled]) / num_clients
        stage = len(self.decisions) + 1
        if stage > MIN_STAGES and not loss < self._loss:
            self.done = True
            return
        self.decisions.append(decision)
        self.done = stage >= MAX_STAGES or (stage >= MIN_STAGES and not loss < (1.0 - STAGE_GAIN) * self._loss)
        self._loss = loss


def fedavg_candidates(listed: Sequence[Candidate]) -> npt.NDArray[np.intp]:
    """Indices of the FedAvg family, shape (G,)."""
    return np.flatnonzero([c.family is Family.FEDAVG for c in listed])


def decide(listed: Sequence[Candidate], total: Scores, num_clients: int, *, deviate: bool = True) -> StageDecision:
    """Choose for all clients: the least mean loss plus its standard error, both relative to the best FedAvg candidate.

    The standard error counts differences between clients, or the noise of their rows where that is larger; FedAvg
    itself has none, so that others must beat it by more than chance.

    Args:
        listed: The stage's candidates.
        total: Sum of the clients' scores.
        num_clients: How many clients the sum is of.
        deviate: Whether clients may choose from other families.
    """
    fedavg = fedavg_candidates(listed)
    mean = total.losses / num_clients
    g = int(np.argmin(mean[fedavg]))
    difference = mean - mean[fedavg[g]]
    between = np.maximum(total.squared_differences[:, g] / num_clients - np.square(difference), 0.0)
    within = total.variances[:, g] / num_clients
    error = np.sqrt(np.maximum(between / max(1, num_clients - 1), within / num_clients))
    score = difference + error
    pooled = int(np.argmin(score))
    alternatives: list[int] = []
    local = 0
    for family in Family:
        inside = [j for j, c in enumerate(listed) if c.family is family]
        if not inside:
            continue
        best = inside[int(np.argmin(score[inside]))]
        if family is Family.LOCAL:
            local = inside[int(np.argmin(mean[inside]))]
        if deviate and family is not listed[pooled].family:
            alternatives.append(best)
    loss = max(0.0, float(mean[pooled]))
    return StageDecision(pooled=pooled, alternatives=tuple(alternatives), local=local, loss=loss)
