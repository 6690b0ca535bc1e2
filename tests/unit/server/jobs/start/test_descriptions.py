"""What a client states of its rows is known again, on another machine too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernfed.federation.messages.data import DataDescription
from kernfed_server.jobs.start.descriptions import digest, is_of


def described(mean: float, deviation: float = 1.0) -> DataDescription:
    """A column of nine rows."""
    return DataDescription(
        num_rows=9,
        num_test_rows=0,
        num_dropped_rows=0,
        classes=(),
        class_counts=(),
        mean=np.array([mean]),
        sum_squares=np.array([9 * deviation**2]),
        deviation=(deviation,),
    )


@pytest.mark.parametrize("mean", [0.1234565, 0.1234565 / 1.0731, 2.5e-7, 4.0])
@pytest.mark.parametrize("deviation", [1.0, 1.000005, 3.0000005 / 1.0731])
def test_the_last_bit_is_of_another_machine(mean: float, deviation: float) -> None:
    """A number on the border between two digits, told as one or the other, is that of the same rows."""
    stated = digest(described(mean, deviation))
    for other in (mean, *(np.nextafter(mean, to) for to in (-np.inf, np.inf))):
        for width in (deviation, *(np.nextafter(deviation, to) for to in (0.0, np.inf))):
            assert is_of(stated, described(float(other), float(width)))


def test_other_rows_are_others() -> None:
    """Another mean, deviation or number of rows; the digest of a checkpoint of before counts on."""
    own = described(0.3)
    assert is_of(digest(own).split()[0], own)
    for other in (described(0.3001), described(0.3, 1.01), replace(own, num_rows=10)):
        assert not is_of(digest(own), other)
