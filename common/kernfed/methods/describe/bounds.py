"""What rows can have of which groups of neighbours in the order of a column are known: G groups of n rows, K columns.

All rows of a group lie between the means of the groups beside it. Of the first and the last group that is one limit,
and the group's own mean says how far the rows can lie on the other side.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Floats, Integers


@np.errstate(over="ignore", invalid="ignore")
def most_deviation(sizes: Integers, means: Floats) -> Floats:
    """The most that the root of the mean squared deviation from the mean can be, (K,); infinite of a single group.

    In a group of m rows with mean a between a - l and a + u the squares add up to m l u at most, by the inequality of
    Bhatia and Davis. With one limit alone, u, they are at most m (m - 1) u²: all rows but one lie at that limit.

    Args:
        sizes: Rows of each group, (G,).
        means: Ascending per column, (G, K).
    """
    rows = float(sizes.sum())
    if len(sizes) < 2:
        return np.full(means.shape[1], np.inf if rows > 1 else 0.0)
    mean = sizes @ means / rows
    size = np.abs(means - mean).max(axis=0)
    size[size == 0.0] = 1.0  # a unit in which no square is too small for float64
    steps = np.maximum(np.diff(means, axis=0), 0.0) / size
    below, above = np.concatenate([steps[:1], steps]), np.concatenate([steps, steps[-1:]])
    most = sizes * 1.0
    most[[0, -1]] *= sizes[[0, -1]] - 1.0
    most[sizes == 1] = 0.0
    squares = sizes @ np.square((means - mean) / size) + most @ (below * above)
    return np.asarray(size * np.sqrt(squares / rows), dtype=np.float64)


@np.errstate(over="ignore", invalid="ignore")
def outermost(sizes: Integers, means: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """The least that the mean of the smallest rows can be, and the most of the greatest, (K,) both.

    A single row is no farther than √(n - 1) deviations from the mean, and one of a group with mean a and the limit
    a + u no farther below a than (m - 1) u.

    Args:
        sizes: Rows of each group, (G,).
        means: Ascending per column, (G, K).
        deviation: Of the rows, (K,).

    Source: of the first limit, P. A. Samuelson, *How deviant can you be?*, JASA 63 (1968) 1522-1525.
    """
    rows = float(sizes.sum())
    mean, far = sizes @ means / rows, np.sqrt(rows - 1.0) * deviation
    least, most = mean - far, mean + far
    if len(sizes) > 1:
        steps = np.maximum(np.diff(means, axis=0), 0.0)
        least = np.maximum(least, means[0] - (sizes[0] - 1.0) * steps[0])
        most = np.minimum(most, means[-1] + (sizes[-1] - 1.0) * steps[-1])
    return least, most
