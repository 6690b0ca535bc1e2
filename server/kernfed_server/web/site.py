"""What the pages are made from: jobs, their records, the clients' sessions, and who may come in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from kernfed_server.federation.standing import Standing
from kernfed_server.jobs.tasks.manager import RunManager
from kernfed_server.keeping.store import Store
from kernfed_server.web.door import Door


class Sessions(Protocol):
    """The clients' sessions, as the page needs them."""

    def standings(self, job_ids: Collection[str]) -> dict[str, Standing]:
        """Where the open step of each of some jobs stands, by job id."""
        ...


@dataclass(eq=False)
class Site:
    """All that pages ask."""

    door: Door
    runs: RunManager
    store: Store
    sessions: Sessions
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the coordinator stops: live pages end."""
    num_live: int = 0
    """Live pages that are open."""

    def close(self) -> None:
        """The coordinator stops."""
        self.closing.set()
