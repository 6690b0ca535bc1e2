"""Clients that are remembered: what is written when, and what is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from kernfed.jobs.info import ClientInfo
from kernfed_server.federation.client_book import ClientBook
from kernfed_testing.job_world import SEEN, FakeSessions


class Books:
    """A store that keeps what was saved."""

    def __init__(self) -> None:
        self.saved: asyncio.Queue[datetime | None] = asyncio.Queue()

    async def save_clients(self, clients: list[ClientInfo]) -> None:
        for client in clients:
            self.saved.put_nowait(client.last_seen_at)


async def test_when_a_client_was_heard_is_stored_now_and_then() -> None:
    """Each frame moves the time; it is written once a minute, and nobody is woken for it."""
    sessions, books = FakeSessions("a"), Books()
    told: list[bool] = []
    book = ClientBook(books, sessions, set)  # type: ignore[arg-type]  # what is asked of a store here
    following = asyncio.ensure_future(book.follow(lambda: told.append(True)))
    async with asyncio.timeout(60):
        assert await books.saved.get() == SEEN
        for seconds in (30, 61, 62, 130):
            sessions.infos["a"] = replace(sessions.infos["a"], last_seen_at=SEEN + timedelta(seconds=seconds))
            sessions.connect()
            if seconds in (61, 130):
                assert await books.saved.get() == SEEN + timedelta(seconds=seconds)
    following.cancel()
    assert books.saved.empty()
    assert told == [True]
