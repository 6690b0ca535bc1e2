"""The round of a run that was worth most so far: what a run leaves that diverges later, whatever its method."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.events import RoundMetrics
from kernfed_server.jobs.state import Arrays, State, json_array
from kernfed_server.jobs.verdict import far_off

L = TypeVar("L")

_SOUND, _ARRAYS = "sound", "sound/"
"""Names in checkpoints: what was told, and the arrays that the method's own state does not hold."""


class Sound(Generic[L]):
    """Of the rounds that were measured, and are not far off, the first one with the least error.

    A workflow says once in each life of its run how such a round is left and measured (`leave_by`), and tells what each
    measured round came to (`tell`). Checkpoints keep the best, so a run that was stopped leaves the same.
    """

    def __init__(self) -> None:
        self._best: State | None = None
        self._round, self._error = 0, math.inf
        self._leave: Callable[[State], Awaitable[L]] | None = None
        self._measure: Callable[[State], Awaitable[RoundMetrics]] | None = None

    def leave_by(
        self, leave: Callable[[State], Awaitable[L]], measure: Callable[[State], Awaitable[RoundMetrics]]
    ) -> None:
        """Say how what a round came to becomes what the job leaves, and how its clients measure that."""
        self._leave, self._measure = leave, measure

    def tell(self, round_num: int, arrays: Arrays, metrics: RoundMetrics) -> None:
        """Keep what a round came to, where it was measured, and each earlier one has a larger error.

        Args:
            round_num: The round.
            arrays: By name; not to be changed any more.
            metrics: Of them; the mean squared error over all clients' test rows counts, of personal models where there
                are some, and else of the global one. A model that is far off is not kept.
        """
        scores = metrics.pooled.get("personal") or metrics.pooled.get("global") or {}
        error = scores.get("mse", math.inf)
        if error < self._error and not far_off(metrics):
            self._best, self._round, self._error = State(arrays), round_num, error

    @property
    def round_num(self) -> int | None:
        """The round; None: there is none, or nobody can say how it is left."""
        return None if self._best is None or self._leave is None else self._round

    async def left(self) -> L:
        """What the job leaves."""
        assert self._best is not None  # noqa: S101  # there is a round, see `round_num`
        assert self._leave is not None  # noqa: S101
        return await self._leave(self._best)

    @property
    def measure(self) -> Callable[[], Awaitable[RoundMetrics]]:
        """Measures what the job leaves at the clients."""
        assert self._best is not None  # noqa: S101  # as above
        assert self._measure is not None  # noqa: S101
        return functools.partial(self._measure, self._best)

    def to_arrays(self, state: Arrays) -> dict[str, Array]:
        """For a checkpoint; arrays that the state of its round holds anyhow are not kept twice."""
        if self._best is None:
            return {}
        held = {id(array): name for name, array in state.items()}
        places = {name: held.get(id(array), "") for name, array in self._best.items()}
        apart = {_ARRAYS + name: np.asarray(self._best[name]) for name, place in places.items() if not place}
        return {_SOUND: json_array([self._round, self._error, places]), **apart}

    def recall(self, own: State, state: Arrays) -> None:
        """Go on from a checkpoint: what `to_arrays` gave, and the state that it was given."""
        if _SOUND not in own:
            return
        self._round, self._error, places = own.json(_SOUND)
        self._best = State({name: state[p] if p else own[_ARRAYS + name] for name, p in places.items()})
