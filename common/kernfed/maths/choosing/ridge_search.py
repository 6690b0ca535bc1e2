"""Which ridge predicts rows that are kept apart best: a search by tens, for losses that somebody else measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

GAIN = 0.005
"""Part of the loss that a further ridge must take off to be followed by another one."""
FEWER_WRONG, NO_WORSE = 0.02, 0.02
"""Or the part of the wrongly classified rows, where the loss is at most this part above the least one so far."""
ENOUGH_APART = 200
"""Rows kept apart by which it is chosen: where a part of the rows has fewer, more parts are kept apart in turn."""
LEAST, MOST = 1e-10, 1e6
"""Between these ridges lie. Below, a Hessian of features is singular to working precision."""


@dataclass
class RidgeSearch:
    """Goes from a ridge down by tens for as long as it predicts better; where it does not at once, up instead."""

    ridge: float
    """The one to try next."""
    best: float = 0.0
    """The one that predicts best so far; 0 before a loss was told."""
    level: float = math.inf
    """Its loss."""
    losses: dict[float, float] = field(default_factory=dict)
    """Of each ridge tried, in their order."""
    wrong: dict[float, int] = field(default_factory=dict)
    """By ridge, how many of the rows kept apart it classifies wrongly."""
    factor: float = 0.1
    """By which the ridge changes."""

    def tell(self, loss: float, wrong: int = 0) -> bool:
        """Take the loss with `ridge`, and move on.

        Args:
            loss: Mean over the rows kept apart; infinity where it could not be had.
            wrong: How many of these rows are classified wrongly; always as many where that does not count.

        Returns:
            Whether another ridge is to be tried.
        """
        least = min(self.losses.values(), default=math.inf)
        self.losses[self.ridge], self.wrong[self.ridge] = loss, wrong
        fewer = wrong < (1.0 - FEWER_WRONG) * self.wrong.get(self.best, 0) and loss < (1.0 + NO_WORSE) * least
        if not self.best or loss < (1.0 - GAIN) * self.level or fewer:
            self.best, self.level = self.ridge, loss
        elif self.factor < 1.0 and len(self.losses) == 2:  # the first step down brought nothing
            self.factor = 10.0
        else:
            return False
        self.ridge = self.best * self.factor
        return LEAST <= self.ridge <= MOST or self._turned()

    def _turned(self) -> bool:
        """Whether the way up is still open, where the way down is closed by `LEAST`."""
        if self.factor > 1.0 or len(self.losses) > 1:
            return False
        self.factor = 10.0
        self.ridge = self.best * self.factor
        return self.ridge <= MOST
