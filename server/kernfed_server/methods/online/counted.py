"""The round of each client that counted last: it is told, and learns again what it learned later, unheard."""

from __future__ import annotations

from collections.abc import Iterable

from kernfed.arrays import Array
from kernfed_server.jobs.state import State, json_array

_NAME = "counted"


class Counted:
    """The last round in which rows of each client counted; kept in checkpoints."""

    def __init__(self, resumed: State | None) -> None:
        """Begin, or go on from a checkpoint; one of a release that kept none does not say who counted."""
        known = resumed is None or _NAME in resumed
        self._unheard = 1 if known else 0
        self._rounds: dict[str, int] = resumed.json(_NAME) if resumed is not None and known else {}

    def uncounted_from(self, client: str) -> int:
        """The round after it; 0: it is not known."""
        return self._rounds[client] + 1 if client in self._rounds else self._unheard

    def add(self, clients: Iterable[str], round_num: int) -> None:
        """Their rows counted in a round."""
        self._rounds.update(dict.fromkeys(clients, round_num))

    def to_arrays(self) -> dict[str, Array]:
        """For a checkpoint."""
        return {_NAME: json_array(self._rounds)}
