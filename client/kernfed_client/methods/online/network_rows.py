"""Which numbers of a network may move in a round: those behind which enough of its rows stand.

A round learns its rows one after another, so a number's movement is a sum over rows at weights that move meanwhile.
Whoever chooses weights can make a unit that one row sets off. Whoever chooses rates can make the first row's step so
long that no later row sets off any unit. In both cases the sum is one row. So each row's size is taken where its
gradient is, along the whole way, and a number behind which fewer rows stand than `kernfed.tensors.rows_behind` asks for
stays as it was. Since the other numbers then go another way, the rows are learned anew, until enough rows stand behind
all that moves.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.few.behind import wanted
from kernfed.methods.online import meta

_MOST_WALKS = 8
"""Ways that are tried; after as many nothing moves."""


class RowsOfNumbers:
    """The numbers of a network that may move, and the rows behind each on the way."""

    def __init__(self, least: int, hidden: int) -> None:
        """Let all numbers move.

        Args:
            least: The policy's least number of rows; 1: all numbers move, and no rows are counted.
            hidden: Units of each hidden layer.
        """
        self._least, self._hidden = least, hidden
        self._moves: Array = np.ones(1, dtype=np.bool_)
        self._walks = 0
        self._begin()

    def _begin(self) -> None:
        self._num, self._columns = 0, 0
        self._sums: Floats = np.zeros(1)
        self._squares: Floats = np.zeros(1)

    def kept(self, gradient: Floats) -> Floats:
        """The gradient, 0 for the numbers that may not move."""
        return np.where(self._moves, gradient, 0.0)

    def add(self, weights: Floats, x: Floats) -> None:
        """Count a row where its gradient is taken."""
        if self._least > 1:
            sizes = meta.sizes(weights, x, self._hidden)
            self._num, self._columns = self._num + 1, len(x)
            self._sums, self._squares = self._sums + sizes, self._squares + np.square(sizes)

    def narrowed(self) -> bool:
        """Take out what too few rows stood behind on this way; whether there was any, so that the rows go another."""
        if self._least <= 1:
            return False
        rows, of_pairs = wanted(self._least, self._num)
        least = np.full(len(self._sums), rows)
        least[meta.between_hidden(self._columns, self._hidden)] = of_pairs
        enough = (self._sums >= np.sqrt(least * self._squares)) & (self._squares > 0.0) & np.isfinite(self._squares)
        enough &= self._moves
        if (enough == self._moves).all():
            return False
        self._walks += 1
        self._moves = enough if self._walks < _MOST_WALKS else np.zeros_like(enough)
        self._begin()
        return True
