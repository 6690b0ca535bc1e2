"""Whether one of several arrays points another way than all others, which agree, or is much longer than they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats, Integers
from kernfed.rng import stream

FEWEST = 3
"""Arrays with which there are others that can agree."""

_NUMBERS = 1 << 22
"""Numbers looked at, of all arrays together; of larger arrays one of every k, drawn: strides see some columns."""
_MOST_OF_ONE = 1 << 15
_AGREE = 0.5
"""Cosine of each of the others to the mean of the rest, from which on they agree."""
_AGAINST = -0.3
"""Cosine to the mean of the others below which an array points against them."""
_AGREE_WELL = 0.85
"""The others' cosines from which on they agree so well, as two have to where a model moved before, for two agree by
chance..."""
_AWAY = 0.4
"""...that an array stands out which does not point against them, but has a cosine below this one."""
_LONG = 8.0
"""An array so many times as long as the longest of the others stands out, whichever way it points."""
_CANCELLED = 0.2
"""Norm of the sum over the sum of the norms, below which arrays cancel: of these one always points against the rest."""
_CANCELLED_BEGUN = 0.4
"""The same where a model moved before: of three such arrays one points against two that agree by chance, as they would
in one dimension of two."""
_SHORT = 0.5
"""An array shorter than so much of any other is of a client that is near its own optimum, as one of many rows is; which
way it points tells nothing."""
_UNLIKE = 3.0
"""Times the rows of another from which on one may point elsewhere: it goes further, and is less led by chance."""


@dataclass(frozen=True, slots=True)
class Odd:
    """The array that stands out."""

    index: int
    cosine: float
    """To the sum of the others' directions."""
    longer: float
    """Its norm over the largest of theirs, each for as far as it may go."""
    against: bool
    """Whether it points another way than the others, which agree; else it is much longer."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a look at several arrays gave."""

    tells: bool = False
    """Whether they have a common direction, or one stands out."""
    odd: Odd | None = None


def compared(
    arrays: Sequence[Array],
    before: Array | None = None,
    *,
    reach: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    begun: bool = False,
) -> Comparison:
    """Look for the one array that points another way than all others, or is much longer than all others.

    Arrays that nearly cancel tell no direction: at the optimum of a sum of functions their gradients sum to 0, so that
    each points against the sum of the others.

    Args:
        arrays: Of one shape and finite, in float64 or float32.
        before: Where they come from, of the same shape; None: 0.
        reach: How far each may honestly go, beside the others, above 0; None: they all go as far.
        weights: What each counts for in the sum, above 0: rows; None: they all count alike.
        begun: Whether a model moved before, so that it may be near its optimum.
    """
    if len(arrays) < FEWEST:
        return Comparison()
    parts, sizes = _ways(arrays, before)
    if not len(sizes):
        return Comparison()
    cosines = _to_rest(parts)

    lengths = sizes / (np.ones(len(sizes)) if reach is None else np.array(reach))

    def odd(index: int, *, against: bool) -> Comparison:
        longer = float(lengths[index] / np.delete(lengths, index).max())
        return Comparison(tells=True, odd=Odd(index, float(cosines[index]), longer, against))

    longest, least = int(lengths.argmax()), int(cosines.argmin())
    if lengths[longest] > _LONG * np.delete(lengths, longest).max():
        return odd(longest, against=False)
    rows = np.ones(len(sizes)) if weights is None else np.array(weights)
    common = np.einsum("i,ij->j", sizes * rows / np.einsum("i,i->", sizes, rows), parts)
    if np.sqrt(np.einsum("j,j->", common, common)) < (_CANCELLED_BEGUN if begun else _CANCELLED):
        return Comparison()
    long_enough = lengths[least] >= _SHORT * np.delete(lengths, least).min()
    alike = rows.max() <= _UNLIKE * rows.min()
    if long_enough and cosines[least] < (_AWAY if alike else _AGAINST):
        agreed = _to_rest(np.delete(parts, least, axis=0)).min()
        of_two_others = begun and len(arrays) == FEWEST
        if agreed >= (_AGREE if cosines[least] < _AGAINST and not of_two_others else _AGREE_WELL):
            return odd(least, against=True)
    return Comparison(tells=True)


def opposed(one: Array, other: Array, before: Array | None = None) -> bool:
    """Whether two arrays point against each other; arguments as of `compared`."""
    parts, sizes = _ways([one, other], before)
    return len(sizes) > 0 and float(np.einsum("i,i->", *parts)) < _AGAINST


def _ways(arrays: Sequence[Array], before: Array | None) -> tuple[Floats, Floats]:
    """Unit vectors of the ways that arrays go, (n, numbers), and how far, (n,); none where one goes nowhere."""
    places = _places(arrays[0].size, max(1, min(_MOST_OF_ONE, _NUMBERS // len(arrays))))
    parts = np.array([array.reshape(-1)[places].astype(np.float64) for array in arrays])
    if before is not None:
        parts -= before.reshape(-1)[places].astype(np.float64)
    sizes = np.sqrt(np.einsum("ij,ij->i", parts, parts))
    if not np.isfinite(sizes).all() or not (sizes > 0).all():
        return np.empty((0, 0)), np.empty(0)
    return parts / sizes[:, None], sizes


def _to_rest(units: Floats) -> Floats:
    """Cosine of each of several unit vectors to the sum of the others."""
    whole = units.sum(axis=0)
    along = np.einsum("ij,j->i", units, whole) - 1.0
    rest = whole - units
    sizes = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    found: Floats = np.divide(along, sizes, out=np.zeros_like(along), where=sizes > 1e-12)
    return found


def _places(size: int, numbers: int) -> Integers | slice:
    """At most so many places of `size`, in order: one, drawn, of every few that lie side by side."""
    few = -(-size // numbers)
    if few <= 1:
        return slice(None)
    first = np.arange(0, size, few)
    found: Integers = np.minimum(first + stream(0, "directions", str(size)).integers(few, len(first)), size - 1)
    return found
