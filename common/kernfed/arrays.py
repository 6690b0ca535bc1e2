"""Names of the numpy arrays that pass between modules, by element type; shapes are in the docstrings that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""A numeric array at the edge between maths and wire: float64, float32, int64 or uint8, row-major."""
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
"""What holds of each element of another array."""
GREATEST = 1e100
"""Numbers beyond are of no use in a table or a reply: sums of their squares soon exceed the range of numbers."""
Indices = npt.NDArray[np.intp]
"""Positions in another array."""
