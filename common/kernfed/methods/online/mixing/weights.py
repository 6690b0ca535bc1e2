"""A client's weights over the kernels of a dictionary: the paper's multiplicative weights, and the default that adapts.

Everything stays in the log domain: products of many small factors would stick at a subnormal number and silently give
near-uniform weights. The default, `Tracking`, mixes AdaHedge learners that forget at different rates, so there is no
learning rate to choose and drift is followed; its weights are one mixture of the kernels, so a prediction is still
equation (6) of Ghari & Shen (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats

KEEPS = (1.0, 0.99, 0.9)
"""Share of their past that the learners of `Tracking` keep per row: for ever, about 100 rows, about 10 rows."""

TIE = 1e-12
"""Predictions this near to each other are the same, with targets in [0, 1]: their difference is that of rounding. A
learner that has seen no difference yet follows the leader, and would else follow the last bit."""

_LEAST_GAP = 1e-290
"""Below this a mixability gap counts as 0, for its learning rate would overflow."""


def softmax(log_weights: Floats) -> Floats:
    """Weights on the simplex from log-weights, along the last axis."""
    w: Floats = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    w /= w.sum(axis=-1, keepdims=True)
    return w


@dataclass(frozen=True, slots=True)
class Hedge:
    """Multiplicative weights with a fixed learning rate.

    Source: Ghari & Shen (2022), equation (7).
    """

    log_weights: Floats
    """Shape (N,), largest 0."""

    @staticmethod
    def start(num_kernels: int) -> Hedge:
        """Equal weights."""
        return Hedge(np.zeros(num_kernels))

    def weights(self) -> Floats:
        """On the simplex, shape (N,)."""
        return softmax(self.log_weights)

    def update(self, losses: Floats, learning_rate: float) -> Hedge:
        """Multiply every weight by exp(-learning_rate · loss); `losses` has shape (N,)."""
        moved = self.log_weights - learning_rate * losses
        return Hedge(moved - moved.max())


@dataclass(frozen=True, slots=True)
class AdaHedge:
    """Learners that choose their own learning rate ln(m)/S from the mixability gap S so far; several at once.

    Source: de Rooij, van Erven, Grünwald & Koolen (2014), *Follow the leader if you can, hedge if you must*, on
    linearised losses.
    """

    gap: tuple[float, ...]
    """Cumulated mixability gap S of each of the J learners."""
    losses: Floats
    """Cumulated linearised losses L, least 0 in each row, shape (J, m)."""

    @staticmethod
    def start(num_learners: int, num_experts: int) -> AdaHedge:
        """Nothing seen."""
        return AdaHedge((0.0,) * num_learners, np.zeros((num_learners, num_experts)))

    def opinion(self) -> Opinion:
        """The learners' weights exp(-(ln m / S) L); where S = 0 uniform over the experts with L = 0."""
        num_experts = self.losses.shape[1]
        top = math.log(num_experts) if num_experts > 1 else 1.0
        rates = [top / s if s > _LEAST_GAP else 0.0 for s in self.gap]
        raw = self.losses * np.array(rates)[:, None]
        np.negative(raw, out=raw)
        np.exp(raw, out=raw)  # the least loss is 0, so the largest is 1
        for j, rate in enumerate(rates):
            if rate == 0.0:
                raw[j] = self.losses[j] == 0.0
        return Opinion(raw, np.add.reduce(raw, axis=1), rates)

    def update(self, opinion: Opinion, linear: Floats, keep: Floats) -> AdaHedge:
        """Add a row.

        Args:
            opinion: As `opinion` gives it.
            linear: Linearised losses r of the experts, shape (J, m); their mean under each learner's weights is 0.
            keep: What each learner keeps of its past, shape (J, 1).
        """
        losses, rates = self.losses, opinion.rates
        if linear.shape[1] == 1:
            return AdaHedge(self.gap, np.zeros_like(linear))
        # ln Σ w exp(-rate r) from the log-weights: weights that underflow still count where their losses are low.
        summed = losses + linear
        low = np.minimum.reduce(summed, axis=1, keepdims=True)
        distance = low - summed
        distance *= np.array(rates)[:, None]
        np.exp(distance, out=distance)
        after = np.add.reduce(distance, axis=1).tolist()
        before, least, kept = opinion.sums.tolist(), low[:, 0].tolist(), keep[:, 0].tolist()
        gap = []
        for j, rate in enumerate(rates):
            # An infinite rate follows the leader, whose loss grows by `least`, whoever leads afterwards.
            mix = least[j] - math.log(after[j] / before[j]) / rate if rate > 0.0 else least[j]
            gap.append(kept[j] * self.gap[j] + max(-mix, 0.0))
        moved = keep * losses
        moved += linear
        moved -= np.minimum.reduce(moved, axis=1, keepdims=True)
        return AdaHedge(tuple(gap), moved)


@dataclass(frozen=True, slots=True)
class Opinion:
    """Weights of `AdaHedge` learners, and what their next update needs of them."""

    raw: Floats
    """Weights before they are normalised, the largest of each learner being 1, shape (J, m)."""
    sums: Floats
    """Of each learner's, shape (J,)."""
    rates: list[float]
    """Learning rates of the J learners; 0 stands for an infinite one."""

    @property
    def weights(self) -> Floats:
        """On the simplex, shape (J, m)."""
        return self.raw / self.sums[:, None]


@dataclass(frozen=True, slots=True)
class FewHedge:
    """One `AdaHedge` learner over a handful of experts, in plain numbers: arrays of three cost more than they save."""

    gap: float
    """Cumulated mixability gap S."""
    losses: tuple[float, ...]
    """Cumulated linearised losses L, the least 0."""

    def opinion(self) -> tuple[float, list[float]]:
        """Learning rate (0: infinite), and weights before they are normalised, the largest being 1."""
        if self.gap > _LEAST_GAP:
            rate = math.log(len(self.losses)) / self.gap
            return rate, [math.exp(-rate * loss) for loss in self.losses]
        return 0.0, [float(loss == 0.0) for loss in self.losses]

    def update(self, rate: float, raw: list[float], linear: list[float]) -> FewHedge:
        """Add a row, as `AdaHedge.update` for a learner that forgets nothing."""
        summed = [loss + r for loss, r in zip(self.losses, linear, strict=True)]
        low = min(summed)
        mix = low
        if rate > 0.0:
            after = sum(math.exp((low - s) * rate) for s in summed)
            mix = low - math.log(after / sum(raw)) / rate
        return FewHedge(self.gap + max(-mix, 0.0), tuple(s - low for s in summed))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weights of a moment, and those of the learners behind them."""

    kernels: Floats
    """On the simplex, shape (N,): the client's weights."""
    members: Opinion
    """Of the member learners on the kernels."""
    rate: float
    """Of the learner on the members."""
    top: list[float]
    """Its weights before they are normalised."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """AdaHedge learners over the kernels that forget at different rates, mixed by one more over their predictions."""

    members: AdaHedge
    top: FewHedge
    keep: Floats
    """Share of its past that each member keeps per row, shape (J, 1)."""

    @staticmethod
    def start(num_kernels: int, keeps: tuple[float, ...] = KEEPS) -> Tracking:
        """Nothing seen; `keeps` begins with 1."""
        top = FewHedge(0.0, (0.0,) * len(keeps))
        return Tracking(AdaHedge.start(len(keeps), num_kernels), top, np.array(keeps)[:, None])

    def mixture(self) -> Mixture:
        """The weights that predict the next row."""
        members = self.members.opinion()
        rate, top = self.top.opinion()
        total = sum(top)
        shares = np.array([w / (total * s) for w, s in zip(top, members.sums.tolist(), strict=True)])
        return Mixture(shares @ members.raw, members, rate, top)

    def update(self, mixture: Mixture, f: Floats, slope_at: Callable[[Floats], Floats]) -> Tracking:
        """Add a row.

        Args:
            mixture: As `mixture` gives it.
            f: The kernels' predictions, shape (N,).
            slope_at: The derivative of the loss at predictions, elementwise.
        """
        own = mixture.members.raw @ f
        own /= mixture.members.sums
        told = own.tolist()
        total = sum(mixture.top)
        whole = sum(w * p for w, p in zip(mixture.top, told, strict=True)) / total
        slopes = slope_at(np.array([*told, whole]))
        linear = f - own[:, None]
        linear[np.abs(linear) <= TIE] = 0.0
        linear *= slopes[:-1, None]
        members = self.members.update(mixture.members, linear, self.keep)
        slope = float(slopes[-1])
        apart = [p - whole if abs(p - whole) > TIE else 0.0 for p in told]
        top = self.top.update(mixture.rate, mixture.top, [slope * a for a in apart])
        return Tracking(members, top, self.keep)

    @property
    def ranking(self) -> Floats:
        """Values that bins are sorted by, best least, shape (N,): the losses of the member that forgets nothing."""
        losses: Floats = self.members.losses[0]
        return losses

    @property
    def regret_bound(self) -> float:
        """Certificate: total loss of the predictions so far is at most this above that of any fixed mix of the kernels.

        For the squared loss it is 2 S of the member that forgets nothing, and 2 S of the learner that mixes the
        members; the linearised losses majorise any convex loss.
        """
        return float(2.0 * self.members.gap[0] + 2.0 * self.top.gap)
