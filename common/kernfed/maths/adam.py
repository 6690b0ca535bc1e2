"""Adam on rows of parameters, as a step of the coordinator along the clients' averaged movement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import GREATEST, Array, Floats
from kernfed.errors import DivergedError

FIRST_DECAY = 0.9
SECOND_DECAY = 0.999
EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Adam:
    """State of the iteration, one row per model."""

    first: Floats
    """Decayed mean of the gradients, shape (T, P)."""
    second: Floats
    """Decayed mean of their squares, shape (T, P)."""
    num_steps: int

    @classmethod
    def start(cls, shape: tuple[int, ...]) -> Adam:
        """Begin before the first step."""
        return cls(np.zeros(shape), np.zeros(shape), 0)

    def to_arrays(self) -> dict[str, Array]:
        """The whole state as arrays, for a checkpoint."""
        return {"adam_first": self.first, "adam_second": self.second, "adam_steps": np.array([self.num_steps])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Adam:
        """Rebuild what `to_arrays` gave, among other arrays."""
        first, second = (np.array(arrays[name], dtype=np.float64) for name in ("adam_first", "adam_second"))
        return cls(first, second, int(arrays["adam_steps"][0]))

    def step(
        self, parameters: Floats, gradient: Floats, step_size: float, *, yogi: bool = False
    ) -> tuple[Floats, Adam]:
        """Take a step against `gradient`, shape (T, P); returns new parameters and state.

        With the gradient -(mean of the clients' movements)/learning rate this is FedAdam; with one local step on all
        rows it is Adam on the weighted risk. Yogi's mean of squares v moves to a square g² by (1 - 0.999) g² at most:
        v - (1 - 0.999) sign(v - g²) g², so that it does not fall at once where gradients become small (FedYogi).

        Raises:
            DivergedError: A parameter left the range of numbers that are of use.

        Source: Kingma & Ba (2015), Algorithm 1; Reddi et al. (2021), Algorithm 2, with the corrections of Adam's first
        steps in place of an added constant.
        """
        count = self.num_steps + 1
        first = FIRST_DECAY * self.first + (1.0 - FIRST_DECAY) * gradient
        square = np.square(gradient)
        if yogi:
            second = self.second - (1.0 - SECOND_DECAY) * np.sign(self.second - square) * square
        else:
            second = SECOND_DECAY * self.second + (1.0 - SECOND_DECAY) * square
        mean = first / (1.0 - FIRST_DECAY**count)
        scale = np.sqrt(second / (1.0 - SECOND_DECAY**count)) + EPSILON
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            moved = parameters - step_size * mean / scale
        if not np.all(np.abs(moved) <= GREATEST):
            raise DivergedError(f"step {count} of Adam, of step size {step_size:g}, left the range of numbers")
        return moved, Adam(first, second, count)
