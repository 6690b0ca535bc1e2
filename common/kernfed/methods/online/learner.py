"""A client's online learner: its weights over the kernels, what it has seen, and how a batch of rows changes both.

Rows of a round are taken one after another for the weights; the parameters stay those of the round, so the features
and predictions of a batch are two products. Every prediction is made before its target is used.

Source: Ghari & Shen (2022), Algorithm 2, the client's lines.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.maths.metrics import PROBABILITY_FLOOR
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.losses import LOSSES, Loss, StreamLoss
from kernfed.methods.online.mixing.bins import Drawn, draw_bin
from kernfed.methods.online.mixing.weights import TIE, Hedge, Tracking
from kernfed.methods.online.own_model import OwnModel, tracking, tracking_arrays
from kernfed.methods.online.pooled_ridge import CommonRidges

Arrays = Mapping[str, npt.NDArray[np.float64]]


class Mixing(enum.StrEnum):
    """Rules by which a client weighs the kernels."""

    ADAPTIVE = "adaptive"
    """AdaHedge learners of different memory; nothing to tune."""
    HEDGE = "hedge"
    """Multiplicative weights with a fixed learning rate, the paper's (7)."""
    UNIFORM = "uniform"
    """The plain average."""
    SHARED = "shared"
    """The coordinator's weights, the same for all clients."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over the predictions made so far: targets in the data's own units, losses in the learner's."""

    num_rows: int = 0
    squared_error: float = 0.0
    target_mean: float = 0.0
    target_sum_squares: float = 0.0
    num_correct: int = 0
    log_loss: float = 0.0
    total_loss: float = 0.0
    """Of the learner's predictions."""

    def add(self, told: float, y: float, loss: float, *, binary: bool) -> Tally:
        """Add a prediction and its target."""
        n = self.num_rows + 1
        delta = y - self.target_mean
        mean = self.target_mean + delta / n
        correct, log_loss = 0, 0.0
        if binary:
            correct = int((told - 0.5) * (y - 0.5) > TIE)  # one half names no class, whichever comes first
            p = min(max(told if y >= 0.5 else 1.0 - told, PROBABILITY_FLOOR), 1.0 - PROBABILITY_FLOOR)
            log_loss = -float(np.log(p))
        return Tally(
            n,
            self.squared_error + (told - y) * (told - y),  # a power of numbers that are large raises
            mean,
            self.target_sum_squares + delta * (y - mean),
            self.num_correct + correct,
            self.log_loss + log_loss,
            self.total_loss + loss,
        )

    def to_array(self) -> Floats:
        """Shape (7,)."""
        return np.array(
            [
                self.num_rows,
                self.squared_error,
                self.target_mean,
                self.target_sum_squares,
                self.num_correct,
                self.log_loss,
                self.total_loss,
            ],
            dtype=np.float64,
        )

    @staticmethod
    def from_array(values: Floats) -> Tally:
        """The state from `to_array`'s result."""
        n, squared, mean, squares, correct, log_loss, total = values.tolist()
        return Tally(int(n), squared, mean, squares, int(correct), log_loss, total)


@dataclass(frozen=True, slots=True)
class LearnerRules:
    """Facts that do not change from round to round."""

    mixing: Mixing
    loss: Loss
    weight_learning_rate: float
    """η_k of (7); used by hedge alone."""
    bin_size: int
    """Kernels sent per round M."""
    exploration: float
    """ξ of (8)."""
    regularisation: float
    """λ of (2)."""
    target_low: float = 0.0
    """Subtracted from targets; a learner works on (y - low)/span."""
    target_span: float = 1.0
    binary: bool = False
    """Whether targets are 0 and 1, so that accuracy is tallied."""

    @property
    def cost(self) -> StreamLoss:
        """The loss, of targets in the learner's scale."""
        plain, low, span = LOSSES[self.loss], self.target_low, self.target_span
        ends = (-low / span, (1.0 - low) / span) if self.binary else plain.ends
        return plain if ends == plain.ends else replace(plain, ends=ends)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a round with targets. n rows, N kernels."""

    z: Floats
    """Features, (n, N, 2 D)."""
    y: Floats
    """Targets in the data's units, (n,)."""
    told: Floats
    """Predictions made when the rows came, in the data's units, (n,); NaN: predict now."""
    own_z: Floats | None = None
    """Features for the client's own model, (n, N', F'), where it has one."""


@dataclass(frozen=True, slots=True)
class Learner:
    """Weights and tallies of a client after some rows."""

    weights_state: Tracking | Hedge | None
    """None where the weights are fixed or the coordinator's."""
    kernel_losses: Floats
    """Total loss of every kernel's own predictions, (N,)."""
    tally: Tally
    largest_loss: float = 0.0
    """Of any kernel on any row."""
    own: OwnModel | None = None
    """The client's own experts; None: it predicts with the mix of the common kernels, equation (6)."""
    alone: Tally = Tally()
    """Of the predictions that the client would have made alone."""

    @staticmethod
    def start(rules: LearnerRules, num_kernels: int, own: OwnModel | None = None) -> Learner:
        """Nothing seen."""
        state: Tracking | Hedge | None = None
        if rules.mixing is Mixing.ADAPTIVE:
            state = Tracking.start(num_kernels)
        elif rules.mixing is Mixing.HEDGE:
            state = Hedge.start(num_kernels)
        return Learner(state, np.zeros(num_kernels), Tally(), own=own)

    def weights(self) -> Floats:
        """Of the kernels, on the simplex, (N,): what the next row is predicted with."""
        if isinstance(self.weights_state, Tracking):
            return self.weights_state.mixture().kernels
        if isinstance(self.weights_state, Hedge):
            return self.weights_state.weights()
        n = len(self.kernel_losses)
        return np.full(n, 1.0 / n)

    def predict(
        self, rules: LearnerRules, f: Floats, shared: Floats | None = None, own_z: Floats | None = None
    ) -> float:
        """The client's prediction in the data's units: (6), or what its own experts make of it.

        Args:
            rules: Of the job.
            f: The kernels' predictions, (N,).
            shared: The coordinator's weights, where they are used, (N,).
            own_z: Features for the client's own model, (N', F'), where it has one.
        """
        w = self.weights() if shared is None else shared
        mixed = float(w @ f)
        if self.own is not None and own_z is not None:
            mixed = self.own.tell(own_z, f, mixed, rules.cost).personal
        return rules.target_low + rules.target_span * float(LOSSES[rules.loss].served(mixed))

    def learn(self, rules: LearnerRules, batch: Batch, theta: Floats, shared: Floats | None = None) -> Learned:
        """Predict each row, then learn from it.

        Args:
            rules: Of the job.
            batch: At least one row.
            theta: Parameters of this round, (N, 2 D).
            shared: The coordinator's weights, where they are used, (N,).
        """
        f = online.predictions(batch.z, theta)
        y = (batch.y - rules.target_low) / rules.target_span
        cost = rules.cost
        losses = cost.value(f, y[:, None])
        if rules.regularisation:
            losses = losses + rules.regularisation * np.square(theta).sum(axis=1)
        state, tally, own_model, alone = self.weights_state, self.tally, self.own, self.alone
        targets, own, tolds = y.tolist(), batch.y.tolist(), batch.told.tolist()
        fixed = shared if shared is not None else None if state is not None else self.weights()
        for t in range(len(y)):
            row, target, told = f[t], targets[t], tolds[t]
            if isinstance(state, Tracking):
                mixture = state.mixture()
                mixed = float(mixture.kernels @ row)
                state = state.update(mixture, row, functools.partial(cost.slope, y=target))
            elif isinstance(state, Hedge):
                mixed = float(state.weights() @ row)
                state = state.update(losses[t], rules.weight_learning_rate)
            else:
                assert fixed is not None  # noqa: S101  # there are weights of one kind or another
                mixed = float(fixed @ row)
            if own_model is not None and batch.own_z is not None:
                told_now = own_model.tell(batch.own_z[t], row, mixed, cost)
                own_model = own_model.learn(
                    own_model.ridges.pull(batch.own_z[t]), batch.own_z[t], row, told_now, target, cost
                )
                mixed = told_now.personal
                alone = _added(alone, rules, None, told_now.alone, own[t], target)
            tally = _added(tally, rules, told, mixed, own[t], target)
        of_kernels = np.add.reduce(losses, axis=0)
        largest = max(self.largest_loss, float(losses.max(initial=0.0)))
        learner = Learner(state, self.kernel_losses + of_kernels, tally, largest, own_model, alone)
        return Learned(learner, f, y, of_kernels)

    def learn_pooled(self, rules: LearnerRules, batch: Batch, common: CommonRidges) -> LearnedPooled:
        """As `learn`, where the common kernels are ridges on the rows of all clients, which each row moves.

        Args:
            rules: Of the job.
            batch: At least one row; `own_z` holds the features of the common kernels too.
            common: Their parameters of this round.
        """
        state, own_model, z = self.weights_state, self.own, batch.own_z
        assert isinstance(state, Tracking)  # noqa: S101  # as it was opened; what follows too
        assert own_model is not None  # noqa: S101
        assert z is not None  # noqa: S101
        y = (batch.y - rules.target_low) / rules.target_span
        cost, tally, alone = rules.cost, self.tally, self.alone
        f = np.empty((len(y), len(self.kernel_losses)))
        targets, own, tolds = y.tolist(), batch.y.tolist(), batch.told.tolist()
        for t in range(len(y)):
            row, target = common.predict(z[t]), targets[t]
            f[t] = row
            mixture, slope_at = state.mixture(), functools.partial(cost.slope, y=target)
            told_now = own_model.tell(z[t], row, float(mixture.kernels @ row), cost)
            pull = own_model.ridges.pull(z[t])
            state = state.update(mixture, row, slope_at)
            common = common.update(pull, z[t], slope_at(row), cost.bend(row), alone.num_rows)
            own_model = own_model.learn(pull, z[t], row, told_now, target, cost)
            alone = _added(alone, rules, None, told_now.alone, own[t], target)
            tally = _added(tally, rules, tolds[t], told_now.personal, own[t], target)
        losses = cost.value(f, y[:, None])
        of_kernels = np.add.reduce(losses, axis=0)
        largest = max(self.largest_loss, float(losses.max(initial=0.0)))
        learner = Learner(state, self.kernel_losses + of_kernels, tally, largest, own_model, alone)
        return LearnedPooled(learner, f, y, common)

    @property
    def evidence(self) -> float:
        """See `OwnModel.evidence`."""
        return 0.0 if self.own is None else self.own.evidence

    def beside(self, others: float) -> Learner:
        """With the evidence of all other clients together."""
        return self if self.own is None else replace(self, own=replace(self.own, others=others))

    def draw(self, rules: LearnerRules, uniform: float) -> Drawn:
        """Draw the kernels to send, by the weights after the batch."""
        n = len(self.kernel_losses)
        if rules.bin_size >= n:
            return Drawn(np.arange(n), 1.0)
        if isinstance(self.weights_state, Tracking):
            ranking = self.weights_state.ranking
        elif isinstance(self.weights_state, Hedge):
            ranking = -self.weights_state.log_weights
        else:
            ranking = np.zeros(n)
        weights = ranking if rules.exploration >= 1.0 else self.weights()
        return draw_bin(weights, ranking, rules.bin_size, rules.exploration, uniform)

    @property
    def regret(self) -> float:
        """Total loss less that of the best single kernel in hindsight, the paper's equation (11)."""
        return self.tally.total_loss - float(self.kernel_losses.min())

    def regret_bound(self, rules: LearnerRules) -> float | None:
        """Upper bound of the regret: the certificate of AdaHedge, or Theorem 1's (13); None: there is none.

        Theorem 1 is for losses in [0, 1]. Once a loss was above, it says nothing.
        """
        if isinstance(self.weights_state, Tracking):
            own = self.own.regret_bound if self.own is not None else 0.0
            return max(self.weights_state.regret_bound + own, 0.0)
        if isinstance(self.weights_state, Hedge) and self.largest_loss <= 1.0:
            rate = rules.weight_learning_rate
            return float(np.log(len(self.kernel_losses)) / rate + rate * self.tally.num_rows / 2.0)
        return None

    def to_arrays(self) -> dict[str, Floats]:
        """All of it, for a file."""
        found = {
            "kernel_losses": self.kernel_losses,
            "tally": self.tally.to_array(),
            "largest_loss": np.array([self.largest_loss]),
        }
        if self.own is not None:
            found |= {f"own.{name}": array for name, array in self.own.to_arrays().items()}
            found["alone"] = self.alone.to_array()
        if isinstance(self.weights_state, Tracking):
            found |= tracking_arrays(self.weights_state, "")
        elif isinstance(self.weights_state, Hedge):
            found["log_weights"] = self.weights_state.log_weights
        return found

    @staticmethod
    def from_arrays(arrays: Arrays) -> Learner:
        """The state from `to_arrays`' result."""
        state: Tracking | Hedge | None = None
        if "member_gap" in arrays:
            state = tracking(arrays, "")
        elif "log_weights" in arrays:
            state = Hedge(arrays["log_weights"])
        largest = float(arrays["largest_loss"][0]) if "largest_loss" in arrays else 0.0  # formerly not kept
        tally = Tally.from_array(arrays["tally"])
        if "alone" not in arrays:
            return Learner(state, arrays["kernel_losses"], tally, largest)
        own = OwnModel.from_arrays({n.removeprefix("own."): a for n, a in arrays.items() if n.startswith("own.")})
        return Learner(state, arrays["kernel_losses"], tally, largest, own, Tally.from_array(arrays["alone"]))


@dataclass(frozen=True, slots=True)
class Learned:
    """A batch after it was learned from."""

    learner: Learner
    f: Floats
    """The kernels' predictions, (n, N)."""
    y: Floats
    """Targets as the learner sees them, (n,)."""
    losses: Floats
    """Of the kernels, summed over the rows, (N,)."""


@dataclass(frozen=True, slots=True)
class LearnedPooled:
    """A batch after ridges on pooled rows learned from it."""

    learner: Learner
    f: Floats
    """Predictions of the common kernels, (n, J N)."""
    y: Floats
    """Targets as the learner sees them, (n,)."""
    common: CommonRidges
    """Moved by these rows."""


def _added(tally: Tally, rules: LearnerRules, told: float | None, f: float, own: float, target: float) -> Tally:
    """With one more prediction.

    Args:
        tally: Before.
        rules: Of the job.
        told: What was told when the row came, in the data's units; None or NaN: `f` is told now.
        f: Prediction in the learner's scale.
        own: Target in the data's units.
        target: In the learner's scale.
    """
    cost = LOSSES[rules.loss]
    if told is None or told != told:
        told = rules.target_low + rules.target_span * float(cost.served(f))
    return tally.add(told, own, float(cost.value(f, target)), binary=rules.binary)
