"""Learning from a round's rows, kept from two faults: parameters that ran away, and rows that cannot be learned.

Parameters that ran away concern every row: the job diverges, and the error names the learning rates. Where parameters
are sound, the rows are at fault. The first time their step fails, for it may have been the machine; the second time
they are passed over and counted, so that a stream never stops at a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import structlog

from kernfed.arrays import Array, Floats
from kernfed.errors import DivergedError, KernfedError, NumericalError, PolicyError
from kernfed.maths.losses import MOST_MARGIN
from kernfed.methods.online.learner import Learner
from kernfed.methods.online.server_step import MOST_PARAMETER, RUN_AWAY, sound
from kernfed_client.methods.online.round_rows import Taken
from kernfed_client.methods.online.state import ClientState
from kernfed_client.streams.streams import Position

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Moved:
    """Changes by a round's rows."""

    learner: Learner
    theta: Array
    answer: Mapping[str, Array]


class Guard:
    """Remembers where learning failed."""

    def __init__(self) -> None:
        self._failed: Position | None = None
        """Where the stream stood before the rows whose step failed last."""

    def learned(
        self, state: ClientState, taken: Taken, learn: Callable[[ClientState, Taken], Moved], unmoved: Moved
    ) -> tuple[Taken, Moved]:
        """Learn from the rows, or pass over them.

        Args:
            state: Before the rows.
            taken: The rows; there may be none.
            learn: The method's rule.
            unmoved: What holds without rows.

        Returns:
            The rows that count, and what they changed.

        Raises:
            DivergedError: The parameters are too large for any row.
            NumericalError: The rows cannot be learned, for the first time.
        """
        if not len(taken.y):
            return taken, unmoved
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                moved = learn(state, taken)
            _check(moved)
        except (ArithmeticError, ValueError, KernfedError) as err:
            if isinstance(err, DivergedError) or not sound(state.theta):
                raise DivergedError(RUN_AWAY.format(MOST_PARAMETER)) from err
            if self._failed != state.position:
                self._failed = state.position
                raise NumericalError(
                    f"{len(taken.y)} rows of the stream cannot be learned ({type(err).__name__}: {str(err)[:200]}); "
                    "they are tried once more, then passed over"
                ) from err
            log.warning("rows of a stream are passed over: their step failed twice", num_rows=len(taken.y))
            return taken.without_rows(), unmoved
        return taken, moved


def refuse_sure_rows(f: Floats, step: str) -> None:
    """Refuse parameters at which a kernel is certain of more than half of a round's rows.

    A logistic function of such parameters is a step: sums over the round stand for the few rows beside it alone.

    Args:
        f: Log-odds of the rows by each kernel, (n, N).
        step: For the text.

    Raises:
        PolicyError: They are such.
    """
    if ((np.abs(f) > MOST_MARGIN).mean(axis=0) > 0.5).any():
        raise PolicyError(
            f"{step}: at these parameters a kernel predicts most rows of a round with certainty, so that sums over the "
            "round would tell about the few that are not; lower the learning rates, or raise the regularisation"
        )


def _check(moved: Moved) -> None:
    for name, array in {"theta": moved.theta, **moved.learner.to_arrays(), **moved.answer}.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NumericalError(f"{name} is not finite")
    sent = [array for name, array in moved.answer.items() if name in ("theta", "weights")]
    if not all(map(sound, [moved.theta, *sent])):
        raise DivergedError(RUN_AWAY.format(MOST_PARAMETER))
