"""Times as clients tell of them: below 0, which no row has that is followed from when it was first seen, and times that
are not of the rows of which a client stated mean and deviation before round 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup

_ROUNDING = 1e-6
"""Relative difference up to which two ways to compute a moment agree."""


def note_early(clients: Iterable[str], run: Run) -> None:
    """Tell of clients that have such times."""
    if early := sorted(clients):
        run.note(
            f"{listed(early, more=', ...')}: some times are below 0; data.target is to be the time since the row was "
            "first seen"
        )


def strange_times(setup: Setup, client: str, times: Floats, counts: Array, num_rows: int) -> Iterator[str]:
    """Why means of the times of some of a client's rows are not of its rows, in words; nothing: they may be.

    The squares of how far these means are from the mean of all, each as often as it has rows, add up to n squares of
    the deviation at most; and where they are of all rows, their mean is that of all.

    Args:
        setup: Holds what clients stated of the target; one that stated no deviation is not judged.
        client: The client.
        times: Means of the times of some of its rows, (T,).
        counts: Rows of each, (T,).
        num_rows: All rows n.
    """
    if client not in setup.agreed.target_moments or not len(times):
        return
    mean, deviation = setup.agreed.target_moments[client]
    near = _ROUNDING * (abs(mean) + deviation)
    with np.errstate(over="ignore"):
        root = float(np.sqrt(counts @ np.square(times - mean) / num_rows))
    stated = f"times with mean {mean:.6g} and deviation {deviation:.6g} before round 1"
    if root > deviation + near:
        yield f"states times that lie {root:.6g} from their mean, and stated {stated}"
    elif counts.sum() == num_rows and abs(float(counts @ times) / num_rows - mean) > near:
        yield f"states times with mean {float(counts @ times) / num_rows:.6g}, and stated {stated}"
