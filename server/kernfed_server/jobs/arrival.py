"""What a workflow says of its end: whether it reached what it looks for, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernfed.maths.certificate import Bracket
from kernfed.maths.settling import progress

AT_REST = 1e-3
"""Relative distance to the limit, or movement in the last round, that counts as none."""
DISTANCE = "relative distance to the pooled solution, at most"
"""Measure of a certificate."""
ROUNDING = 1e-12
"""Relative movement that rounding of float64 alone makes."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The end of an iteration."""

    words: str
    """How it ended, in words that follow `arrived: ` or `not arrived: `."""
    arrived: bool | None = None
    """None: the method has nothing to arrive at, or nobody can say."""
    distance: float | None = None
    """What is left, by `measure`; None where nobody can say."""
    measure: str = ""
    """What `distance` is."""

    @property
    def text(self) -> str:
        """The words with whether it arrived."""
        return {True: "arrived: ", False: "not arrived: ", None: ""}[self.arrived] + self.words

    def to_json(self) -> dict[str, Any]:
        """JSON values, for a checkpoint."""
        return {**asdict(self), "distance": self.known_distance}

    @property
    def known_distance(self) -> float | None:
        """The distance where it is a number."""
        return self.distance if self.distance is not None and math.isfinite(self.distance) else None


def settling(
    movements: Sequence[float],
    rounds: int,
    *,
    whole: bool,
    what: str = "the weights",
    rounding: float = ROUNDING,
    limit: str = "",
) -> Arrival:
    """Judge an iteration by how far its last rounds moved.

    Args:
        movements: |W_t - W_t-1| / |W_t| of the last rounds, one at least.
        rounds: All rounds of the job; they are used up.
        whole: Whether each round had all clients and all their rows; the movements of others shrink only by chance, and
            tell no distance.
        what: Moves.
        rounding: Movement up to which nothing but rounding moves.
        limit: What the limit is, in words, where that is not what the method's name promises.
    """
    found, limit = progress(movements), limit and f"; {limit}"
    moved = f"the last round moved {what} by {100 * found.movement:.2g} % of their size"
    if found.movement <= rounding:
        return Arrival(f"{moved}, which is rounding{limit}", True, found.movement, "movement in the last round")
    if not whole and found.movement <= AT_REST:
        told = f"{moved}; movements of drawn clients or rows shrink by chance as well, so they tell no distance"
        return Arrival(told, None, found.movement, "movement in the last round")
    if not whole or found.contraction is None:
        arrived = found.movement <= AT_REST
        more = "" if arrived else f"all {rounds} rounds are used, and "
        remedy = "" if arrived else "; raise method.rounds"
        return Arrival(f"{more}{moved}{remedy}", arrived, found.movement, "movement in the last round")
    if found.distance is None:
        return Arrival(
            f"all {rounds} rounds are used, {moved}, and movements do not shrink; lower the step, or raise "
            "method.rounds",
            False,
            found.movement,
            "movement in the last round",
        )
    measure = "estimate of the relative distance to the iteration's limit"
    rate = f"a round multiplies the distance to the limit by {found.contraction:.4f}, so about {found.distance:.2g}"
    if found.distance <= AT_REST:
        return Arrival(f"{moved}; {rate} of their size is left{limit}", True, found.distance, measure)
    more = f"all {rounds} rounds are used, and {moved}; {rate} of their size is left{limit}"
    return Arrival(f"{more}; raise method.rounds", False, found.distance, measure)


def certified(settled: Arrival, distance: Bracket) -> Arrival:
    """Judge an iteration by the certified distance to the pooled solution, beside its movements.

    It arrived where the distance is at most `AT_REST` for certain. It did not where it is more for certain, also where
    the iteration is at rest elsewhere. Else movements that are at rest prove nothing, and it says neither.

    Args:
        settled: By movements.
        distance: |W - W*|_H / |W|_H.
    """
    if distance.most <= AT_REST:
        told = f"the relative distance to the pooled solution is at most {distance.most:.2g}"
        return Arrival(told, True, distance.most, DISTANCE)
    told = f"between {distance.least:.2g} and {distance.most:.2g}, by the pooled gradient at the end"
    arrived = settled.arrived and None
    if distance.least > AT_REST or settled.arrived is False:
        arrived = False
    words = f"{settled.words}; the relative distance to the pooled solution is {told}"
    return Arrival(words, arrived, distance.most, DISTANCE)
