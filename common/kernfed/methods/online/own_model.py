"""A client's own part of its predictions: what it could do alone, and how it uses the others. Nothing of it is sent.

Two experts stand beside the mix of the common kernels. *Alone* is a recursive ridge on random features of a few
kernels, learned from this client's rows only and mixed by AdaHedge: the baseline `local`. *Stacked* is a recursive
ridge over the predictions of the common kernels. One more AdaHedge learner mixes it with the common mix. It begins with
the latter, and *stacked* must be better by `HEAD_START` in total before it counts.

The client predicts by *alone*, moved towards that mix by a share. A `Gate` tells how much of the way the rows have
shown to be better, and a `Leeway` holds the share down so far that the client is never behind what it reaches alone by
more than a part of it.

Two former rules have no such bound. By `evidence` what chance explains is taken off the share. `gated` mixes all three
experts, and *alone* has the head start; its share is 0 or 1.

A ridge is kept as its parameters and the inverse of its Hessian, and one row changes both by the Sherman-Morrison
formula. For the logistic loss the Hessian is that at the prediction before the row, an online Newton step.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.online.losses import StreamLoss
from kernfed.methods.online.mixing.gate import Gate, Leeway, most_cost
from kernfed.methods.online.mixing.weights import AdaHedge, FewHedge, Mixture, Tracking
from kernfed.methods.online.pooled_ridge import RIDGE

LENGTHSCALES = (0.2, 0.6, 2.0)
"""Of the kernels of *alone*, for rows of norm at most 1."""
STACK_RIDGE = 0.1
"""λ of *stacked*, whose parameters shrink to the plain average of the kernels."""

HEAD_START = 0.5
"""Total loss by which an expert must be better than the one that is begun with before it counts."""


@dataclass(frozen=True, slots=True)
class Ridges:
    """N recursive ridges with F features each."""

    inverse: Floats
    """Inverse Hessians, (N, F, F)."""
    theta: Floats
    """(N, F)."""

    @staticmethod
    def start(theta: Floats, ridge: float) -> Ridges:
        """Shrink to these parameters."""
        n, f = theta.shape
        return Ridges(np.broadcast_to(np.eye(f) / (2.0 * ridge), (n, f, f)).copy(), theta)

    def predict(self, z: Floats) -> Floats:
        """Predictions of a row's features (N, F), shape (N,)."""
        f: Floats = np.einsum("nf,nf->n", z, self.theta)
        return f

    def pull(self, z: Floats) -> Floats:
        """The inverse Hessians times a row's features (N, F), shape (N, F)."""
        found: Floats = np.einsum("nfg,ng->nf", self.inverse, z)
        return found

    def update(self, pull: Floats, z: Floats, slope: Floats, bend: Floats) -> Ridges:
        """Learn from a row.

        Args:
            pull: As `pull` gives it.
            z: Features, (N, F).
            slope: First derivative of the loss at the predictions, (N,).
            bend: Second derivative, (N,).
        """
        size = 1.0 + bend * np.einsum("nf,nf->n", z, pull)
        theta = self.theta - (slope / size)[:, None] * pull
        shrink = (bend / size)[:, None, None] * pull[:, :, None] * pull[:, None, :]
        return Ridges(self.inverse - shrink, theta)


@dataclass(frozen=True, slots=True)
class Told:
    """Predictions of a row, in the learner's scale."""

    of_own: Floats
    """Of the kernels of *alone*, (N,)."""
    mixture: Mixture
    """Of these."""
    experts: Floats
    """Of the common mix, *stacked* and *alone*, (3,)."""
    top: Mixture
    """Of the first two of these, or of all by the rule `gated`."""
    share: float
    """Of their mix in the prediction; the rest is that of *alone*."""
    most: float
    """What their mix could cost the row more than *alone*; 0 where no `Leeway` asks."""

    @property
    def alone(self) -> float:
        """What the client predicts without the others."""
        return float(self.experts[2])

    @property
    def mixed(self) -> float:
        """Of the mix of experts."""
        return float(self.top.kernels @ self.experts[: len(self.top.kernels)])

    @property
    def personal(self) -> float:
        """What the client predicts."""
        mixed, alone = self.mixed, self.alone
        return mixed if self.share == 1.0 else alone + self.share * (mixed - alone)


@dataclass(frozen=True, slots=True)
class OwnModel:
    """The experts of a client and their weights. M common kernels."""

    ridges: Ridges
    """Of *alone*."""
    mix: Tracking
    stack: Ridges
    """(1, M + 1): a constant is last."""
    top: Tracking
    gate: Gate = field(default_factory=Gate)
    excess: float = 0.0
    """Total loss of the client's predictions less that of the mix of experts."""
    others: float = 0.0
    """Evidence of all other clients together, as it was told last."""
    leeway: Leeway | None = None
    """What the client may still lose by the others; None: it follows a former rule."""

    @property
    def gated(self) -> bool:
        """Whether it follows the rule `gated`, under which all three experts are mixed."""
        return len(self.top.members.losses[0]) == 3

    @property
    def evidence(self) -> float:
        """What others are told: deviations by which the mix is better; 0 where no rule asks."""
        return self.gate.evidence if self.leeway is None else 0.0

    @property
    def share(self) -> float:
        """Of the mix of experts in the prediction of a usual row; the rest is that of *alone*."""
        return self.share_of(0.0 if self.leeway is None else self.leeway.stake)

    def share_of(self, most: float) -> float:
        """Likewise in that of a row which the mix could cost so much more than *alone*."""
        if self.leeway is None:
            return self.gate.share(self.others, self.gated)
        return self.leeway.held(self.gate.best, most)

    @property
    def expert_weights(self) -> tuple[float, float, float]:
        """Of the common mix, *stacked* and *alone* in the next prediction."""
        common, stacked, *rest = (self.share * w for w in self.top.mixture().kernels.tolist())
        return common, stacked, sum(rest) + (1.0 - self.share)

    @staticmethod
    def start(num_features: int, num_kernels: int, *, gated: bool = False, bounded: bool = True) -> OwnModel:
        """Nothing seen.

        Args:
            num_features: Of each kernel of *alone*, the constant included.
            num_kernels: Common kernels.
            gated: By the rule `gated`.
            bounded: With a `Leeway`; else, and where it is gated, by a former rule.
        """
        n = len(LENGTHSCALES)
        behind = np.array([HEAD_START, HEAD_START, 0.0] if gated else [0.0, HEAD_START])
        top = Tracking.start(len(behind))
        average = np.append(np.full(num_kernels, 1.0 / num_kernels), 0.0)[None]
        return OwnModel(
            Ridges.start(np.zeros((n, num_features)), RIDGE),
            Tracking.start(n),
            Ridges.start(average, STACK_RIDGE),
            replace(top, members=replace(top.members, losses=top.members.losses + behind)),
            leeway=Leeway() if bounded and not gated else None,
        )

    def tell(self, z: Floats, f: Floats, mixed: float, loss: StreamLoss) -> Told:
        """Predict a row.

        Args:
            z: Its features for *alone*, (N, F).
            f: Predictions of the common kernels, (M,).
            mixed: Their mix.
            loss: Of the job.
        """
        of_own, mixture = self.ridges.predict(z), self.mix.mixture()
        stacked = float(self.stack.predict(np.append(f, 1.0)[None])[0])
        experts = np.array([mixed, stacked, float(mixture.kernels @ of_own)])
        told = Told(of_own, mixture, experts, self.top.mixture(), 0.0, 0.0)
        most = 0.0 if self.leeway is None else most_cost(told.alone, told.mixed, loss)
        return replace(told, share=self.share_of(most), most=most)

    def learn(self, pull: Floats, z: Floats, f: Floats, told: Told, y: float, loss: StreamLoss) -> OwnModel:
        """Learn from a row.

        Args:
            pull: Of its features by `ridges`.
            z: As in `tell`; `f` too.
            f: Predictions of the common kernels, (M,).
            told: The row's prediction.
            y: Its target, in the learner's scale.
            loss: Of the job.
        """
        slope_at = functools.partial(loss.slope, y=y)
        stacked, row = told.experts[1:2], np.append(f, 1.0)[None]
        by_itself, mixed = told.alone, told.mixed
        excess = float(loss.value(told.personal, y) - loss.value(mixed, y)) if told.share < 1.0 else 0.0
        leeway = self.leeway
        if leeway is not None:
            alone, personal = float(loss.value(by_itself, y)), float(loss.value(told.personal, y))
            leeway = leeway.update(alone, personal, told.most)
        return OwnModel(
            self.ridges.update(pull, z, slope_at(told.of_own), loss.bend(told.of_own)),
            self.mix.update(told.mixture, told.of_own, slope_at),
            self.stack.update(self.stack.pull(row), row, slope_at(stacked), loss.bend(stacked)),
            self.top.update(told.top, told.experts[: len(told.top.kernels)], slope_at),
            self.gate.update(float(slope_at(by_itself)), float(slope_at(mixed)), mixed - by_itself),
            self.excess + excess,
            self.others,
            leeway,
        )

    @property
    def regret_bound(self) -> float:
        """Certificate: the total loss so far is at most this above that of the common mix."""
        return HEAD_START + self.top.regret_bound + self.excess

    def to_arrays(self) -> dict[str, Floats]:
        """All of it, for a file."""
        found = {
            "own_inverse": self.ridges.inverse,
            "own_theta": self.ridges.theta,
            "stack_inverse": self.stack.inverse,
            "stack_theta": self.stack.theta,
            "gate": np.array([self.gate.pull, self.gate.squares, self.excess, self.others, self.gate.bend]),
        }
        if self.leeway is not None:
            found["leeway"] = np.array([self.leeway.alone, self.leeway.lost, self.leeway.stake])
        return found | tracking_arrays(self.mix, "own_") | tracking_arrays(self.top, "top_")

    @staticmethod
    def from_arrays(arrays: Mapping[str, Floats]) -> OwnModel:
        """The state from `to_arrays`' result."""
        return OwnModel(
            Ridges(arrays["own_inverse"], arrays["own_theta"]),
            tracking(arrays, "own_"),
            Ridges(arrays["stack_inverse"], arrays["stack_theta"]),
            tracking(arrays, "top_"),
            *_gate(arrays),
            Leeway(*arrays["leeway"].tolist()) if "leeway" in arrays else None,
        )


def _gate(arrays: Mapping[str, Floats]) -> tuple[Gate, float, float]:
    """The gate and what belongs to it; formerly there was none, then one without a bend."""
    known = arrays["gate"].tolist() if "gate" in arrays else []
    pull, squares, excess, others, bend = known + [0.0] * (5 - len(known))
    return Gate(pull, squares, bend), excess, others


def own_features(z: Floats) -> Floats:
    """Features of rows (n, N, F) with a constant behind them, by which each ridge has an intercept of its own."""
    found: Floats = np.concatenate([z, np.ones((*z.shape[:-1], 1))], axis=-1)
    return found


def tracking_arrays(state: Tracking, prefix: str) -> dict[str, Floats]:
    """A `Tracking` learner as arrays, whose names begin with `prefix`."""
    return {
        f"{prefix}member_gap": np.array(state.members.gap),
        f"{prefix}member_losses": state.members.losses,
        f"{prefix}top_gap": np.array([state.top.gap]),
        f"{prefix}top_losses": np.array(state.top.losses),
        f"{prefix}keep": state.keep,
    }


def tracking(arrays: Mapping[str, Floats], prefix: str) -> Tracking:
    """The learner from `tracking_arrays`' result."""
    members = AdaHedge(tuple(arrays[f"{prefix}member_gap"].tolist()), arrays[f"{prefix}member_losses"])
    top = FewHedge(float(arrays[f"{prefix}top_gap"][0]), tuple(arrays[f"{prefix}top_losses"].tolist()))
    return Tracking(members, top, arrays[f"{prefix}keep"])
