"""Targets of another scale that are told of, and predictions that no targets make plausible."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.apart import IMPLAUSIBLE, Moments, middle_of_others

ALARM = 10.0
"""Deviations of the other clients from which on a client's targets are told of."""
WORST = 2.0
"""Times the squared error of predicting the mean, from which on an error is as good as any larger one."""
APART = 5.0
"""Times as far off as all else makes plausible, from which on predictions are not taken: de-regularisation makes 4."""
_TAIL = 10.0
"""Deviations from their mean beyond which no target is looked for, however many there are."""


def implausible(predictions: Floats, mean: Floats, deviation: Floats) -> bool:
    """Whether a prediction, (N_p, C), lies more than `IMPLAUSIBLE` deviations off the clients' targets, (C,)."""
    far = _farthest(predictions, mean) > IMPLAUSIBLE * deviation
    return bool((far & (deviation > 0)).any())


def reach(deviation: Floats, num_rows: int) -> Floats:
    """How far from their mean n targets lie at most, (C,): sqrt(n - 1) deviations (Samuelson's inequality), or `_TAIL`.

    Args:
        deviation: Of the targets, (C,).
        num_rows: n.
    """
    return deviation * min(math.sqrt(max(num_rows - 1, 1)), _TAIL)


def standing_apart(
    predictions: Mapping[str, Floats], mean: Floats, reaches: Mapping[str, Moments], given: Floats | None
) -> list[str]:
    """Clients whose predictions neither own targets, nor what they were given to fit, nor the others make plausible.

    An output of such a client lies `APART` times as far from the mean of its own targets as any of these and any of the
    consensus, and `APART` times as far from all clients' mean as the predictions of the others in the middle.

    Args:
        predictions: By client, each (N_p, C).
        mean: Of all clients' targets, (C,).
        reaches: By client, mean and `reach` of its targets, (C,) each.
        given: Consensus that they fitted, (N_p, C); None: own rows alone.
    """
    if len(predictions) < 2:
        return []
    far = np.array([_farthest(values, mean) for values in predictions.values()])
    beyond_others = far > APART * middle_of_others(far)[1]
    found = []
    for (client, values), beyond in zip(predictions.items(), beyond_others, strict=True):
        own, own_reach = reaches[client]
        plausible = own_reach if given is None else np.maximum(own_reach, _farthest(given, own))
        if (beyond & (_farthest(values, own) > APART * plausible)).any():
            found.append(client)
    return found


def _farthest(values: Floats, centre: Floats) -> Floats:
    """Largest distance of values, (N_p, C), from a centre, (C,), by output."""
    with np.errstate(over="ignore"):
        found: Floats = np.abs(values - centre).max(axis=0)
    return found
