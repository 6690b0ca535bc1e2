"""How far a client moves from what it predicts alone towards the mix of experts, and what that may cost it at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernfed.methods.online.losses import StreamLoss
from kernfed.methods.online.mixing.weights import TIE

LEEWAY = 0.03
"""Part of its loss alone that a client may lose by the others at most."""
DEVIATIONS = 2.5
"""By the rules `evidence` and `gated`: standard deviations above 0 by which rows must pull towards the mix before it
counts."""
GATED_DEVIATIONS = 0.5
"""As many are enough by the rule `gated` where the rows of all other clients together pull by `DEVIATIONS`; by
`evidence` 0."""
MOST_EVIDENCE = 3.0
"""Deviations that a client tells of at most, so that none decides for all."""
GATE_KEEP = 0.995
"""Share of its past that the gate keeps per row, about 200 rows: clients may come to differ."""
_STAKE_KEEP = 0.9
"""Likewise of what a row could cost: only how much it usually is counts."""


@dataclass(frozen=True, slots=True)
class Gate:
    """How far from *alone* towards the mix rows have shown to be better.

    A row pulls from *alone* towards the mix by p = -l'(alone) (mix - alone). Σ p over b = Σ (l'(mix) - l'(alone)) (mix
    - alone) is the share of the way that would have been best: for the squared loss exactly, else where l' is a line
    between the two.

    Where the mix is no better, p is as often below 0 as above, and Σ p lies more than `DEVIATIONS` times sqrt(Σ p²)
    above 0 at few rows only, six of 1,000. By the rules `evidence` and `gated` so much is taken off. There clients that
    are alike learn together sooner than one by one that they are: each tells by how many deviations its sum lies above
    0, and where those of all others together are enough, a client needs no evidence of its own beyond Σ p > 0.
    """

    pull: float = 0.0
    """Σ p of the rows so far, which fade."""
    squares: float = 0.0
    """Σ p²."""
    bend: float = 0.0
    """b."""

    @property
    def evidence(self) -> float:
        """Deviations above 0, at most `MOST_EVIDENCE` either way: what others are told by the former rules."""
        if self.squares <= 0.0:
            return 0.0
        return min(max(self.pull / math.sqrt(self.squares), -MOST_EVIDENCE), MOST_EVIDENCE)

    @property
    def best(self) -> float:
        """Share of the mix that would have been best for the rows so far."""
        return self._for(self.pull)

    def share(self, others: float, gated: bool) -> float:
        """Share of the mix by the rules `evidence` and `gated`.

        Args:
            others: Deviations of all other clients together.
            gated: All or nothing.
        """
        least = GATED_DEVIATIONS if gated else 0.0
        beyond = self.pull - (least if others > DEVIATIONS else DEVIATIONS) * math.sqrt(self.squares)
        return float(beyond > 0.0) if gated else self._for(beyond)

    def _for(self, pull: float) -> float:
        if pull <= 0.0:
            return 0.0
        return 1.0 if pull >= self.bend else pull / self.bend

    def update(self, slope: float, mix_slope: float, apart: float) -> Gate:
        """Add a row.

        Args:
            slope: Derivative of the loss at the prediction of *alone*.
            mix_slope: At that of the mix.
            apart: Prediction of the mix less that of *alone*.
        """
        moved = apart if abs(apart) > TIE else 0.0
        p = -slope * moved
        return Gate(
            GATE_KEEP * self.pull + p,
            GATE_KEEP * GATE_KEEP * self.squares + p * p,
            GATE_KEEP * self.bend + (mix_slope - slope) * moved,
        )


@dataclass(frozen=True, slots=True)
class Leeway:
    """What a client may still lose by the others: `LEEWAY` of its loss alone so far, and all that they gained it.

    A share v of the mix costs a row at most v (l(mix) - l(alone)), for the loss is convex. For targets in [0, 1] that
    is largest at 0 or 1, so it is known before the target. `held` keeps it within what is left. So at each row

        total loss ≤ (1 + LEEWAY) · total loss alone,

    whatever the rows, and whatever others sent. What a target outside of [0, 1] costs beyond that is not bounded so;
    but then nothing is left, and the client predicts alone until something is.

    Source: a bet that never stakes more than its capital, as in Sani, Neu and Lazaric (2014), "Exploiting easy data in
    online optimization", whose regret to one expert is bounded likewise.
    """

    alone: float = 0.0
    """Total loss of *alone*."""
    lost: float = 0.0
    """Total loss of the client less that."""
    stake: float = 0.0
    """What the mix could cost a row, on the mean of the last rows."""

    def held(self, share: float, most: float) -> float:
        """A share of the mix, or less of it where that could cost more than is left.

        Args:
            share: That is wanted.
            most: What the mix could cost the row more than *alone*, see `most_cost`.
        """
        if share <= 0.0 or most <= 0.0:
            return share
        left = LEEWAY * self.alone - self.lost
        return min(share, left / most) if left > 0.0 else 0.0

    def update(self, alone: float, personal: float, most: float) -> Leeway:
        """Add a row.

        Args:
            alone: Loss of *alone*.
            personal: Loss of the client.
            most: As in `held`.
        """
        stake = _STAKE_KEEP * self.stake + (1.0 - _STAKE_KEEP) * max(most, 0.0)
        return Leeway(self.alone + alone, self.lost + (personal - alone), stake)


def most_cost(alone: float, mixed: float, loss: StreamLoss) -> float:
    """Most that a prediction can cost more than another, for targets between the ends: the difference is a line there.

    Args:
        alone: The prediction that it is held against.
        mixed: The prediction.
        loss: Squared or logistic, with the ends of its targets.
    """
    return max(float(loss.value(mixed, y) - loss.value(alone, y)) for y in loss.ends)
