"""How far from a prediction the truth may lie, from rows that the model had not seen.

Rows that were kept apart tell how badly their truth fitted, in deviations that the model expects there. A new row of
the same law fits no worse than the q-th of n of them with probability q/(n + 1), whatever the law is and whether or not
the model is right (split conformal prediction, Lei et al. 2018; here rows are left out in turn, which comes close).
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.maths.tasks import Reach
from kernfed.models.base import Model


@runtime_checkable
class Covering(Model, Protocol):
    """A model that can tell how far its predictions reach."""

    def reach(self, rows: npt.ArrayLike, coverage: float, *, device: str = "cpu") -> Reach:
        """How far the truth of rows may lie from their predictions.

        Args:
            rows: As of `predict_scores`.
            coverage: Share of rows of which it holds, between 0 and 1.
            device: Where to compute.

        Raises:
            ConfigError: The model has too few rows that were kept apart, or none.
        """
        ...


def reach(misfits: Floats, spread: Floats, coverage: float) -> Reach:
    """How far the truth may lie, of rows of which the model expects `spread`.

    Args:
        misfits: Of n rows that were kept apart, in units of their spread, (n,); see `kernfed.maths.tasks.Task.misfits`.
        spread: Expected at m rows, above 0, (m,).
        coverage: Between 0 and 1.

    Raises:
        ConfigError: So few rows do not tell it.
    """
    check_coverage(coverage)
    n = len(misfits)
    rank = math.ceil(coverage * (n + 1) * (1.0 - 1e-12))
    if rank > n:
        most = f"take at most {math.floor(1e4 * n / (n + 1)) / 1e4:g}, or " if n else ""
        raise ConfigError(
            f"--coverage {coverage:g} cannot be told from {n} rows that were kept apart; {most}let the client have "
            "more training rows"
        )
    within = float(np.partition(misfits, rank - 1)[rank - 1])
    return Reach(within * spread, float(np.sqrt(np.square(misfits).mean())) * spread)


def check_coverage(coverage: float) -> None:
    """Refuse what is no share.

    Raises:
        ConfigError: It is not between 0 and 1.
    """
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"--coverage is {coverage:g}; give a share between 0 and 1, such as 0.9")
