"""All that the clients of a job agreed on before its first round, as its run keeps it: in every checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np

from kernfed.arrays import Array
from kernfed.jobs.former import AGREEMENT
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.state import Arrays, State, json_array, json_of

_VALUES: Final = "run.agreed."
"""Beginning of the names in a checkpoint of what those of a method agreed on."""


class AgreedValues:
    """The agreement of all jobs on data, and beside it values of the method's own, each under a name."""

    def __init__(self, arrays: Arrays | None = None) -> None:
        """Begin without, or with what a checkpoint holds."""
        self._agreement = None if arrays is None else Agreement.of_checkpoint(arrays)
        self._agreement_arrays = _named(self._agreement)
        self._values: dict[str, Array] = {} if arrays is None else dict(State(arrays).part(_VALUES))
        self.unwritten = False
        """Whether there is something that no checkpoint holds yet."""

    @property
    def agreement(self) -> Agreement | None:
        """Of the job; None: the clients are still to be asked."""
        return self._agreement

    def agree(self, agreement: Agreement) -> None:
        """Fix what the clients agreed on."""
        self._agreement, self._agreement_arrays, self.unwritten = agreement, _named(agreement), True

    def get(self, name: str) -> Array | None:
        """What was put under a name, in this life of the run or an earlier one; None: nothing yet."""
        return self._values.get(name)

    def put(self, name: str, value: Array) -> None:
        """Fix a value of the method's own.

        Args:
            name: Of it; a later value takes its place.
            value: As `kernfed_server.jobs.state` makes arrays of values.
        """
        before = self._values.get(name)
        if before is None or not np.array_equal(before, value):
            self._values[name], self.unwritten = value, True

    def drop(self, name: str) -> None:
        """Keep a value no more in checkpoints to come, if there is one."""
        self._values.pop(name, None)

    def drop_before(self, beginning: str, current: str) -> None:
        """Keep values no more whose names begin so, but for those whose names begin with `current`."""
        for name in [n for n in self._values if n.startswith(beginning) and not n.startswith(current)]:
            self.drop(name)

    async def once(self, name: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """A JSON value that the clients agree on once in the life of the job; later lives of the run ask nobody.

        Args:
            name: Of it.
            ask: Finds it.
        """
        kept = self._values.get(name)
        if kept is not None:
            return json_of(kept)
        value = await ask()
        self.put(name, json_array(value))
        return value

    def to_arrays(self) -> dict[str, Array]:
        """For a checkpoint."""
        return {**{_VALUES + name: array for name, array in self._values.items()}, **self._agreement_arrays}


def _named(agreement: Agreement | None) -> dict[str, Array]:
    return {} if agreement is None else {AGREEMENT + name: array for name, array in agreement.to_arrays().items()}
