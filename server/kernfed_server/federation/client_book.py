"""Clients as operators see them: those with a session, those seen in an earlier life, those only enrolled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

import structlog

from kernfed.errors import UnavailableError, UnknownClientError
from kernfed.jobs.info import ClientInfo, JobInfo
from kernfed.v1 import task_pb2
from kernfed_server.keeping.store import Store

log = structlog.get_logger(__name__)

_LOOK_S = 1.0
_SEEN_EVERY = timedelta(minutes=1)
"""How far the time when a client was last heard may lie behind in the store."""


class Sessions(Protocol):
    """The clients' sessions, as jobs need them."""

    def clients(self) -> Mapping[str, ClientInfo]:
        """Every client that is connected or was, since the coordinator started."""
        ...

    def revoked(self) -> Mapping[str, str]:
        """The clients whose certificates were revoked, and who did not connect with a new one, each with the reason."""
        ...

    async def wait_change(self, timeout_s: float) -> None:
        """Wait until a client comes, goes or reports something, at most `timeout_s` seconds."""
        ...

    def sign(self, job: JobInfo, submission: task_pb2.Submission) -> None:
        """A job under way was signed: tell those that asked for a signature."""
        ...

    def end_job(self, job_id: str, why: str) -> None:
        """Tell clients that a job is over, so that they drop its state."""
        ...


class ClientBook:
    """Remembers clients beyond the coordinator's own life."""

    def __init__(self, store: Store, sessions: Sessions, known_clients: Callable[[], set[str] | None]) -> None:
        self._store = store
        self._sessions = sessions
        self._known_clients = known_clients
        self._noted: dict[str, ClientInfo] = {}
        self._expected: frozenset[str] = frozenset()

    async def load(self) -> None:
        """Read the clients that were there in the lives before."""
        self._expected = frozenset(await self._store.clients())

    def all_back(self) -> bool:
        """Whether every client of the lives before is connected."""
        return self._expected <= {name for name, seen in self._sessions.clients().items() if seen.connected}

    async def enrolled(self) -> set[str] | None:
        """Names of the enrolled clients; None where they are not known here."""
        return await asyncio.to_thread(self._known_clients)

    async def refuse_strangers(self, named: Collection[str]) -> None:
        """Refuse a job that names clients which are not enrolled, where those that are can be known here.

        Raises:
            UnknownClientError: It names such clients; says which, which of them were revoked, and who is enrolled.
        """
        known = await self.enrolled() if named else None
        unknown = sorted(set(named) - known) if known is not None else []
        if unknown:
            revoked = self._sessions.revoked()
            strange, gone = [c for c in unknown if c not in revoked], [c for c in unknown if c in revoked]
            told = [f"{', '.join(strange)}, not enrolled in this federation"] if strange else []
            told += [f"{', '.join(gone)}, revoked; enrol it anew with a token, or leave it out"] if gone else []
            raise UnknownClientError(
                f"job file: cohort.clients names {'; and '.join(told)}; enrolled: "
                f"{', '.join(sorted(known or ())) or 'nobody yet'}"
            )

    async def listing(self, running: Mapping[str, Collection[str]]) -> list[ClientInfo]:
        """All clients, sorted by name.

        Args:
            running: Cohorts of the running jobs, by job id.
        """
        enrolled = await self.enrolled() or set()
        found = {name: ClientInfo(name) for name in enrolled}
        found |= await self._store.clients()
        found |= self._sessions.clients()
        jobs: dict[str, list[str]] = {}
        for job_id, cohort in sorted(running.items()):
            for name in cohort:
                jobs.setdefault(name, []).append(job_id)
        revoked = {name: why for name, why in self._sessions.revoked().items() if name not in enrolled}
        return [
            replace(
                client,
                job_ids=tuple(jobs.get(name, ())),
                revoked=name in revoked,
                revoked_why=revoked.get(name, ""),
            )
            for name, client in sorted(found.items())
        ]

    async def devices(self, names: Iterable[str]) -> dict[str, str]:
        """What clients compute on, as they last reported, by client; those that never did are left out."""
        seen = await self._store.clients() | dict(self._sessions.clients())
        return {name: seen[name].device for name in names if name in seen and seen[name].device}

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Until cancelled: store what changes, and tell of it."""
        while True:
            current = dict(self._sessions.clients())
            changed = [client for name, client in current.items() if _worth_noting(client, self._noted.get(name))]
            if changed:
                if any(_timeless(client) != _timeless(self._noted.get(client.name)) for client in changed):
                    on_change()
                self._noted |= {client.name: client for client in changed}
                try:
                    await self._store.save_clients(changed)
                except UnavailableError as err:
                    log.error("clients not stored", error=str(err))
            await self._sessions.wait_change(_LOOK_S)


def _timeless(client: ClientInfo | None) -> ClientInfo | None:
    """What is written down of a client at once: what troubles it now is told while it is there, and not kept."""
    return client and replace(client, last_seen_at=None, trouble="")


def _worth_noting(client: ClientInfo, noted: ClientInfo | None) -> bool:
    """Whether a client changed, or was heard a good while after what is noted."""
    if noted is None or _timeless(client) != _timeless(noted):
        return True
    seen, before = client.last_seen_at, noted.last_seen_at
    return seen is not None and (before is None or seen - before >= _SEEN_EVERY)
