"""The finding that all methods share: the rows behind each client's part, and its share of the weight in means."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.maths.shares import shares
from kernfed.methods.finding import UNLESS_NONE, Finding
from kernfed.wording import listed

MOST_OF_ALL = 0.5
"""A share above it is noted where there are `FEWEST` clients or more."""
FEWEST = 3
MOST_TIMES = 10.0
"""A share above so many times the median of the others' is noted."""
ROWS = "training rows"
ALIKE = "equal parts"


@dataclass(frozen=True, slots=True)
class ClientShare:
    """What one client's part counts."""

    client: str
    rows: int
    """Training rows that it stated; of a stream those that it learned."""
    share: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of the weight in the method's means; None where the method forms none."""
    uncapped: float | None = field(default=None, metadata=UNLESS_NONE)
    """The share that it would have without `cohort.max_share`, where that lowers it."""


@dataclass(frozen=True, slots=True)
class SharesFinding(Finding):
    """Who stands behind what the job leaves."""

    name: ClassVar[str] = "shares"

    by: str = ""
    """By what clients count, in words; empty: the method forms no mean over clients."""
    clients: tuple[ClientShare, ...] = ()
    """By client name."""

    @classmethod
    def of(
        cls, by: str, rows: Mapping[str, int], weights: Mapping[str, float], counted: Mapping[str, float]
    ) -> SharesFinding:
        """The finding by rows, weights, and weights as `cohort.max_share` leaves them; `rows` has all the clients."""
        before, after = shares(weights), shares(counted)
        lowered = {c for c in after if after[c] < before[c] * (1.0 - 1e-9)}
        clients = (ClientShare(c, rows[c], after.get(c), before[c] if c in lowered else None) for c in sorted(rows))
        return cls(by, tuple(clients))

    def notes(self, *, may_cap: bool = True) -> Iterator[str]:
        """What an operator should look at: caps that act, and clients that outweigh the others.

        Args:
            may_cap: Whether the job's method knows `cohort.max_share`.
        """
        capped = [
            f"{c.client} counts {percent(c.share)}, and not {percent(c.uncapped)}"
            for c in self.clients
            if c.share is not None and c.uncapped is not None
        ]
        if capped:
            yield f"cohort.max_share acts on the weights by {self.by}: {listed(capped)}"
        counts = {c.client: c.share for c in self.clients if c.share is not None}
        remedy = "the rows that it states, or give cohort.max_share" if may_cap else "that this is meant"
        for client in outweighing(counts):
            yield (
                f"{client} has {percent(counts[client])} of the weight, by {self.by}: the result is mostly its own; "
                f"check {remedy}"
            )
        rows = {c.client: float(c.rows) for c in self.clients}
        if counts and self.by != ROWS and sum(rows.values()) > 0:
            of_all = {client: n / sum(rows.values()) for client, n in rows.items()}
            for client in outweighing(of_all):
                if client not in outweighing(counts):
                    yield (
                        f"{client} states {percent(of_all[client])} of the training rows: the scales and means that "
                        "all agree on are mostly its own; check the rows that it states"
                    )


def outweighing(shares: Mapping[str, float]) -> list[str]:
    """Clients whose share is above half with three clients or more, or above ten times the median of the others'."""
    found = []
    for client, share in sorted(shares.items()):
        others = [other for name, other in shares.items() if name != client]
        if not others:
            continue
        most = len(shares) >= FEWEST and share > MOST_OF_ALL
        if most or share > MOST_TIMES * statistics.median(others):
            found.append(client)
    return found


def percent(share: float | None) -> str:
    """A share for reading."""
    return f"{100 * (share or 0.0):.3g} %"
