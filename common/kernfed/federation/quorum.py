"""The clients, and the rows behind them, that a step needs; how long it waits for others; the rows behind a round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernfed.federation.messages.base import Kind, Request


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


@dataclass(frozen=True, slots=True)
class RowsNeeded:
    """The part of the rows that must stand behind the answers to a step."""

    rows: Mapping[str, float] = field(default_factory=dict)
    """Of the clients that count."""
    fraction: float = 0.0

    def reached(self, clients: Iterable[str]) -> bool:
        """Whether enough rows stand behind clients."""
        return self.fraction <= 0 or self._share(clients) >= self.fraction * (1.0 - 1e-12)

    def words(self, clients: Iterable[str]) -> str:
        """What is lacking; empty: nothing."""
        names = tuple(clients)
        if self.reached(names):
            return ""
        return f"{100 * self._share(names):.3g} % of the rows, and cohort.min_rows_fraction asks for {self.fraction:g}"

    def _share(self, clients: Iterable[str]) -> float:
        whole = sum(self.rows.values())
        return sum(self.rows.get(client, 0.0) for client in sorted(set(clients))) / whole if whole > 0 else 1.0


_TELL_OF_MODELS = frozenset(Kind) - {Kind.METRIC, Kind.SUMMARY}


class RowsBehind:
    """The clients whose answers count in each step of a round that a model is made of."""

    def __init__(self) -> None:
        self._answered: dict[str, set[str]] = {}

    def clear(self) -> None:
        """Begin another round."""
        self._answered.clear()

    def note(self, request: Request[Any], clients: Iterable[str]) -> None:
        """Count the answers to a request; those that prepare, and those that only measure, are none of a model."""
        if not request.setup and _TELL_OF_MODELS.intersection(request.kinds):
            self._answered.setdefault(request.step, set()).update(clients)

    def share(self, rows: Mapping[str, float]) -> float | None:
        """Share of the rows behind the round, in the step with the fewest; None: no step has any."""
        whole = sum(rows.values())
        if not self._answered or not whole > 0:
            return None
        return min(sum(rows.get(client, 0) for client in answered) for answered in self._answered.values()) / whole
