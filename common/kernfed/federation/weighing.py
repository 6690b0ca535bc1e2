"""What the replies of a job's clients count for: rows behind them, the largest share of one, who stands apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

from kernfed.federation.apart import Loud, Odd, Opposed
from kernfed.federation.ledger import Ledger
from kernfed.federation.messages.base import R, Reply, Stated
from kernfed.federation.quorum import RowsBehind, RowsNeeded
from kernfed.maths.aggregate import Weighted, is_small, weighted_mean
from kernfed.maths.shares import capped

P = ParamSpec("P")
T = TypeVar("T")


async def beside(replies: Mapping[str, Reply], compute: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function makes of replies; where these are large, it computes beside the event loop."""
    if is_small(list(replies.values())):
        return compute(*args, **kwargs)
    return await asyncio.to_thread(compute, *args, **kwargs)


class Weighing:
    """Weights of the clients of one job."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._max_share = 1.0
        self.may_cap = True
        self._rows_fraction: float | None = None
        self._behind = RowsBehind()

    @property
    def num_rows(self) -> Mapping[str, int]:
        """Training rows of each client that stated them."""
        return self._ledger.num_rows

    @property
    def num_test_rows(self) -> Mapping[str, int]:
        """Test rows of each client that stated them."""
        return {
            c: stated.num_test_rows for c, stated in self._ledger.stated.items() if stated.num_test_rows is not None
        }

    def register_rows(self, num_rows: Mapping[str, int], num_test_rows: Mapping[str, int] | None = None) -> None:
        """Keep the row counts that clients stated; a later reply that contradicts them is refused."""
        test = num_test_rows or {}
        self._ledger.register({client: Stated(rows, test.get(client)) for client, rows in num_rows.items()})

    def let_differ(self, spread: float) -> None:
        """State how many times the largest number of all other clients one client's may be, else it is left out."""
        self._ledger.spread = spread

    def cap(self, max_share: float, *, acts: bool = True) -> None:
        """State the largest share of the weight that a client has in a mean; whether the job's method knows one."""
        self._max_share, self.may_cap = max_share, acts

    def count_rows(self, min_fraction: float) -> None:
        """State the part of the training rows that must stand behind a step; from now on rounds tell theirs."""
        self._rows_fraction = min_fraction

    @property
    def row_share(self) -> float | None:
        """Share of the cohort's training rows behind this round; None where rows are not counted."""
        return None if self._rows_fraction is None else self._behind.share(self.num_rows)

    def counted(self, weights: Mapping[str, float]) -> Mapping[str, float]:
        """Weights of clients in a mean over them, the largest lowered to the share that one may have."""
        return capped(weights, self._max_share) if self._max_share < 1.0 else weights

    def weighted(self, replies: Mapping[str, R], weights: Mapping[str, float]) -> R:
        """Mean of replies, each with its client's weight as `counted`."""
        counted = self.counted({client: float(weights[client]) for client in replies})
        return weighted_mean([Weighted(counted[client], reply) for client, reply in replies.items()])

    @property
    def loudest(self) -> Loud | None:
        """The client whose numbers were the farthest beyond all others', and counted; None: nobody's were far."""
        return self._ledger.loudest

    @property
    def largest(self) -> Loud | None:
        """The client whose models or directions were the largest beside all others', and counted."""
        return self._ledger.largest

    @property
    def odd(self) -> list[Odd]:
        """Clients whose numbers pointed against those of all others, or were much larger, and counted."""
        return self._ledger.odd

    @property
    def opposed(self) -> Opposed | None:
        """The two clients of the job, if their numbers pointed against each other each time, and counted."""
        return self._ledger.opposed

    def discount(self, client: str, step: str) -> None:
        """Take note that what a client sent in a step does not count, by a rule of the caller's, which says so."""
        self._ledger.discount(client, step)

    def _rows_needed(self, clients: Iterable[str]) -> RowsNeeded:
        known = self.num_rows
        rows = {client: known[client] for client in clients if client in known}
        return RowsNeeded(self.counted(rows), self._rows_fraction or 0.0)
