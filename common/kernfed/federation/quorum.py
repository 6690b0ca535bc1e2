"""The number of clients that a step needs, and how long it waits for the others."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quorum:
    """The number of clients that must answer, and their time."""

    min_clients: int = 1
    min_fraction: float = 0.5
    deadline_s: float = 300.0
    wait_s: float = 86_400.0
    grace_s: float = 10.0

    def needed(self, num_clients: int) -> int:
        """Answers that a step of `num_clients` clients needs."""
        return max(self.min_clients, math.ceil(self.min_fraction * num_clients - 1e-9), 1)
