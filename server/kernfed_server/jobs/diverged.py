"""The error of a run that moves away from its solution, with the last model that was any good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kernfed.arrays import Array
from kernfed.errors import DivergedError
from kernfed.federation.events import RoundMetrics
from kernfed_server.jobs.run import Model


class DivergedRunError(DivergedError):
    """A run was stopped since its iteration diverges.

    Attributes:
        weights: Those with the best certificate before the run was stopped, shape (M, C); None where `model` is given,
            or `Run.sound` says what is left.
        model: What the job leaves; of `weights`, once `kernfed_server.jobs.execute.execute` has passed the error on.
            None: its clients have it.
        measure: Measures at the clients what the job leaves, so that no metrics of the diverged model stand for it.
    """

    def __init__(
        self,
        message: str,
        weights: Array | None = None,
        model: Model | None = None,
        *,
        measure: Callable[[], Awaitable[RoundMetrics]],
    ) -> None:
        super().__init__(message)
        self.weights = weights
        self.model = model
        self.measure = measure
