"""What a client's own rows say of the scales and lengthscales that a coordinator tells it as agreed.

The mean and the deviation of all rows follow from what the clients stated, and only the coordinator knows that of the
others. But one client's rows are a part of all rows. With a share s of them, deviation d and mean m of its own, the
pooled variance is at least s (d^2 + (m - M)^2) around the pooled mean M: the law of total variance. A share below
`LEAST_SHARE` nobody believes. Scales that no pooled rows can have make steps of columns, by bounds or by rounding; and
sums at two steps that lie on the two sides of a row tell this row.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import PolicyError
from kernfed.features.spec import FeatureSpec
from kernfed.maths.statistics import Moments

LEAST_SHARE = 1e-6
"""Of all rows, that a client is taken to have."""
MOST_ROUNDED = 0.01
"""Part of a client's own deviation that the subtraction of a mean may round its rows by."""
_ROUNDED_ALREADY = 16
"""A mean may round them by so many times what they are rounded by as they are."""
MOST_TIMES = 1e3
"""A client's own median distance is at most so many times a lengthscale that follows from all clients'."""


def refuse_scales(
    own: Moments, names: tuple[str, ...], mean: Array, deviation: Array, bounds: tuple[float, ...], step: str
) -> None:
    """Refuse scales of columns that cannot be those of rows with this client's among them.

    Columns with a bound may have any deviation: one client stands apart there and has no say, and it may be this one.
    Columns that are divided by 1 are as they are, or constant elsewhere. No column may have a mean so far off that rows
    less it are rounded to a few numbers.

    Args:
        own: Moments of this client's training rows, of P columns.
        names: Of the columns.
        mean: As told, (P,).
        deviation: As told, (P,).
        bounds: As told, P of them or none.
        step: For the text.

    Raises:
        PolicyError: Names the first such column.
    """
    if not mean.shape == deviation.shape == own.mean.shape:
        return  # is refused by name when rows are scaled
    told = (deviation != 1.0) & (deviation > 0)
    if len(bounds) == len(names):
        told &= np.array(bounds) == 0
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.hypot(own.deviation, own.mean - mean) * np.sqrt(LEAST_SHARE) > deviation
        rounding, already = np.spacing(np.abs(own.mean - mean)), np.spacing(np.abs(own.mean))
    rounded = (own.deviation > 0) & (rounding > MOST_ROUNDED * own.deviation) & (rounding > _ROUNDED_ALREADY * already)
    refused = (told & beyond) | rounded
    if refused.any():
        raise PolicyError(
            f"{step}: mean and deviation of column {names[int(np.argmax(refused))]!r} cannot be those of rows of "
            "which this client's are a part; look at the coordinator, or at the column's units here"
        )


def refuse_lengthscale(own: float, spec: FeatureSpec, step: str) -> None:
    """Refuse a lengthscale that is said to follow from median distances, and is far below this client's own.

    Random features of a lengthscale below the distances of rows tell of single rows.

    Args:
        own: Median distance of this client's training rows; 0: any lengthscale will do.
        spec: As told.
        step: For the text.

    Raises:
        PolicyError: It is.
    """
    if any(own > scale * MOST_TIMES for scale in spec.lengthscales):
        raise PolicyError(
            f"{step}: the lengthscale is to follow from the clients' rows, and is more than {MOST_TIMES:g} times below "
            "what this client's rows say; give it as a number in the job file"
        )
