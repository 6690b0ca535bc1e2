"""Clients that are remembered: what is written when, and what is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kernfed.errors import UnknownClientError
from kernfed.jobs.info import ClientInfo
from kernfed_server.federation.client_book import ClientBook
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import SEEN, FakeSessions


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
    async with asyncio.timeout(LIMIT_S):
        assert await books.saved.get() == SEEN
        for seconds in (30, 61, 62, 130):
            sessions.infos["a"] = replace(sessions.infos["a"], last_seen_at=SEEN + timedelta(seconds=seconds))
            sessions.connect()
            if seconds in (61, 130):
                assert await books.saved.get() == SEEN + timedelta(seconds=seconds)
    following.cancel()
    assert books.saved.empty()
    assert told == [True]


async def test_a_job_for_a_revoked_client_says_that_it_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside names that nobody knows, and with who is enrolled."""
    sessions = FakeSessions("a")
    monkeypatch.setattr(sessions, "revoked", lambda: {"gone": "lost"})
    book = ClientBook(Books(), sessions, lambda: {"a"})  # type: ignore[arg-type]  # what is asked of a store here
    with pytest.raises(UnknownClientError) as refused:
        await book.refuse_strangers(["a", "gone", "vx"])
    assert str(refused.value) == (
        "job file: cohort.clients names vx, not enrolled in this federation; and gone, revoked; enrol it anew with a "
        "token, or leave it out; enrolled: a"
    )
