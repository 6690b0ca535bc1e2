"""Rows of a column by their ranks, in groups of several, by whose means a client tells of it.

A quantile is the value of one row, and so is a minimum. So a client sorts a column, and tells means of neighbours in
that order. Groups begin at multiples of the policy's least number of rows, whatever number of groups is asked for:
the sums of two requests then differ by whole groups.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Floats, Integers


def group_sizes(num_rows: int, num_groups: int, least: int) -> Integers:
    """Rows of each group of sorted rows, (G,): multiples of `least` but for the last, G at most `num_groups`.

    Args:
        num_rows: At least 1.
        num_groups: At least 1.
        least: Fewest rows of a group, unless there are fewer rows in all.
    """
    units = max(num_rows // least, 1)
    groups = min(num_groups, units)
    begins = least * (np.arange(groups, dtype=np.int64) * units // groups)
    return np.diff(begins, append=num_rows)


def group_means(values: Floats, sizes: Integers) -> Floats:
    """Means of neighbours in the order of each column, (G, K), of values (n, K); `sizes` add up to n."""
    ordered = np.sort(values, axis=0)
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Less its first, a group of equal values has this value for its mean, to the last bit.
    first = ordered[begins]
    less = ordered - np.repeat(first, sizes, axis=0)
    means: Floats = first + np.add.reduceat(less, begins, axis=0) / sizes[:, None]
    return means


def neighbour_means(values: Floats, least: int) -> Floats:
    """Each value replaced by the mean of its group of neighbours in the order of all, (n,): of `least` rows and more.

    Rows of one value are in one group, so the order in which rows come does not count. Fewer than `least` rows are one.
    """
    if least <= 1 or not len(values):
        return values
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends, group, begin = np.cumsum(counts), np.zeros(len(counts), dtype=np.int64), 0
    for number in range(len(counts)):
        end = int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + least))
        if end >= len(ends) or len(values) - ends[end] < least:
            group[begin:] = number
            break
        group[begin : end + 1] = number
        begin = end + 1
    of_rows = group[place.ravel()]
    # Less the least of all, a column of one value keeps it to the last bit.
    first = values.min()
    means = np.bincount(of_rows, weights=values - first) / np.bincount(of_rows)
    return np.asarray(first + means[of_rows], dtype=np.float64)
