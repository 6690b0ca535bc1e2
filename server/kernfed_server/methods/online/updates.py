"""Parameters that clients moved to by themselves: those that cannot be are left out, the others are averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Array
from kernfed.maths.aggregate import norm
from kernfed.maths.robust import FAR, MeanRule, far_beyond
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.updating import by_rule

_TOLD = 10.0
"""An update so many times as long as the others' is told of, though it counts."""


class Updates:
    """The rule of one job."""

    def __init__(self, run: Run, rule: MeanRule) -> None:
        """`run` takes notes, once for each client."""
        self._run = run
        self._rule = rule
        self._out: set[str] = set()
        """Clients whose parameters did not count once."""

    def plausible(
        self, moved: Mapping[str, Array], before: Array, floor: float, most: float = math.inf
    ) -> dict[str, Array]:
        """Leave out parameters that no rows give, and those far from where all began.

        An update beyond `floor`, and `FAR` times as long as the median of the others', comes from a fault or a foe.
        Its client is named, and so is one whose update is far longer than the others', but counts.

        Args:
            moved: Parameters by client.
            before: From which they moved.
            floor: Length below which an update never counts as long.
            most: Largest norm of parameters that rows within the agreed ranges give.
        """
        left = {}
        for client, array in moved.items():
            if norm(array) <= most * (1.0 + 1e-3):  # parameters may have travelled in float32
                left[client] = array
            else:
                self._leave_out(
                    client,
                    f"of norm {norm(array):.3g}, where rows within the agreed ranges give at most {most:.3g}",
                )
        sizes = {client: norm(np.subtract(array, before, dtype=np.float64)) for client, array in left.items()}
        for client in far_beyond(sizes, floor, FAR):
            del left[client]
            self._leave_out(client, f"an update of norm {sizes[client]:.3g}, more than {FAR:g} times the others'")
        if self._rule.plain:
            long = far_beyond({c: sizes[c] for c in left}, floor, _TOLD)
            for client in [c for c in long if c not in self._out]:
                self._run.note_first(
                    f"long {client}",
                    f"{client} sent an update of norm {sizes[client]:.3g}, more than {_TOLD:g} times the others', and "
                    'it counted; check this client\'s data, or give method.aggregate = "median" or method.max_norm',
                )
        return left

    def mean(self, moved: Mapping[str, Array], rows: Mapping[str, int], before: Array) -> Array:
        """One set of parameters by the rule of the job: the mean by the rows of the round, unless it names another."""
        if not self._rule.plain:
            return by_rule(moved, {client: float(n) for client, n in rows.items()}, self._rule, before).told(self._run)
        whole = sum(rows[client] for client in moved)
        mean: Array = np.sum([rows[client] / whole * array for client, array in moved.items()], axis=0)
        return mean

    def _leave_out(self, client: str, why: str) -> None:
        self._out.add(client)
        self._run.note_first(
            f"parameters of {client}", f"{client} sent parameters that its rows cannot have, which do not count: {why}"
        )
