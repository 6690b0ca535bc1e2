"""Targets of another scale that are told of, and predictions that no targets make plausible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.apart import IMPLAUSIBLE, middle_of_others

ALARM = 10.0
"""Deviations of the other clients from which on a client's targets are told of."""
WORST = 2.0
"""Times the squared error of predicting the mean, from which on an error is as good as any larger one."""
APART = 5.0
"""Times as far off as all else makes plausible, from which on predictions are not taken: de-regularisation makes 4."""
LARGER = 3.0
"""Times as large as those of any other client, from which on predictions of clients that fitted the same consensus are
not taken: those of honest ones come to 1.5, and to 2.6 where no other client's model can fit it."""
_FEWEST = 3
"""Clients with which there are others that can be compared."""
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


class OwnTargets(NamedTuple):
    """What is known of a client's targets, (C,) each."""

    mean: Floats
    reach: Floats
    """How far from their mean they lie at most."""
    deviation: Floats


def standing_apart(
    predictions: Mapping[str, Floats], mean: Floats, own: Mapping[str, OwnTargets], given: Floats | None
) -> list[str]:
    """Clients whose predictions neither own targets, nor what they were given to fit, nor the others make plausible.

    An output of such a client lies `APART` times as far from the mean of its own targets as any of these and any of the
    consensus, and `APART` times as far from all clients' mean as the predictions of the others in the middle.

    Args:
        predictions: By client, each (N_p, C).
        mean: Of all clients' targets, (C,).
        own: By client.
        given: Consensus that they fitted, (N_p, C); None: own rows alone.
    """
    if len(predictions) < 2:
        return []
    far = np.array([_farthest(values, mean) for values in predictions.values()])
    beyond_others = far > APART * middle_of_others(far)[1]
    found = []
    for (client, values), beyond in zip(predictions.items(), beyond_others, strict=True):
        centre, plausible = own[client].mean, own[client].reach
        if given is not None:
            plausible = np.maximum(plausible, _farthest(given, centre))
        if (beyond & (_farthest(values, centre) > APART * plausible)).any():
            found.append(client)
    return found


def larger_than_others(predictions: Mapping[str, Floats], mean: Floats, own: Mapping[str, OwnTargets]) -> str | None:
    """The client whose predictions are larger than those of all others who fitted the same consensus.

    Where all fit the same values, their predictions are about as large, whatever their rows and their models. At fault
    is a client with an output that is `LARGER` times as large as that of any other client, as a root mean square
    distance from all clients' mean; and where its own targets deviate more than any other's, as much larger yet.

    Args:
        predictions: By client that fitted it, each (N_p, C).
        mean: Of all clients' targets, (C,).
        own: By client.

    Returns:
        None where there is none, or fewer than three clients.
    """
    if len(predictions) < _FEWEST:
        return None
    size = np.array([_typical(values, mean) for values in predictions.values()])
    deviation = np.array([own[client].deviation for client in predictions])
    for i, client in enumerate(predictions):
        others, theirs = (np.delete(of, i, axis=0).max(axis=0) for of in (size, deviation))
        if (size[i] * theirs > LARGER * others * np.maximum(theirs, deviation[i])).any():
            return client
    return None


def _farthest(values: Floats, centre: Floats) -> Floats:
    """Largest distance of values, (N_p, C), from a centre, (C,), by output."""
    with np.errstate(over="ignore"):
        found: Floats = np.abs(values - centre).max(axis=0)
    return found


def _typical(values: Floats, centre: Floats) -> Floats:
    """Root mean square distance of values, (N_p, C), from a centre, (C,), by output."""
    found: Floats = np.sqrt(np.square(values - centre).mean(axis=0))
    return found
