"""Revocations as they happen: the registry is polled, and whoever is revoked is cut off in mid-session.

It also sees which renewed certificates are in use, from when on those before them have a day to live, and has the list
of revoked operators signed anew before clients hold it for stale.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog

from kernfed.errors import KernfedError
from kernfed.pki.authority import utc_now
from kernfed.pki.names import Role
from kernfed.pki.records import IssuedCertificate, OperatorCertificate, Revocation
from kernfed.pki.registry import Registry
from kernfed.pki.registry_reader import RegistryReader
from kernfed.pki.revocation_list import RENEWED_EVERY, not_believed

log = structlog.get_logger(__name__)

T = TypeVar("T")

POLL_INTERVAL_S = 1.0
MAX_SEEN = 10_000
"""Callers that are remembered; those longest silent go first."""


class RevocationWatch:
    """Knows every revoked serial number, and tells of new ones within about a second."""

    def __init__(
        self,
        registry: Registry,
        on_revoked: Callable[[Revocation, Sequence[IssuedCertificate]], None] = lambda revocation, certificates: None,
        *,
        on_operators: Callable[[Mapping[str, datetime], int], None] = lambda serials, number: None,
        interval_s: float = POLL_INTERVAL_S,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Read the revocations so far (blocking, once) and keep them in memory.

        Args:
            registry: Registry that the operator's commands write to.
            on_revoked: Called on the event loop for each new revocation, with all certificates; ends that client's
                session.
            on_operators: Called at once, whenever an operator is revoked, and every `RENEWED_EVERY`, with the serials
                whose signatures count no more, since when, and the number of the last revocation.
            interval_s: Seconds between two looks.
            now: Clock.
        """
        self._registry = registry
        self._now = now
        self._seen: OrderedDict[str, None] = OrderedDict()
        """Serials of callers, those before the last look too: a renewed certificate may be used within a moment."""
        self._reader = RegistryReader(registry.path)
        self.on_revoked = on_revoked
        self._interval_s = interval_s
        self._serials: set[str] = set()
        self._last = 0
        self._add(self._reader.revocations(self._last))
        self._on_operators = on_operators
        self._tell_operators(self._reader.operators(now()))
        self._reader.close()  # until `run`

    def is_revoked(self, serial: str) -> bool:
        """Whether the serial number of a caller was revoked; from memory."""
        self._seen[serial] = None
        self._seen.move_to_end(serial)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return serial in self._serials

    async def run(self) -> None:
        """Poll until cancelled. A registry that cannot be read is logged once, and asked again."""
        try:
            await self._poll()
        finally:
            self._reader.close()

    async def _poll(self) -> None:
        readable = tidy = True
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                new, (unused, over) = await _to_its_end(asyncio.to_thread(self._look))
                certificates = await _to_its_end(asyncio.to_thread(self._reader.certificates)) if new else []
                since_told = self._now() - self._told_at
                of_operators = any(revocation.role is Role.OPERATOR for revocation in new) or not (
                    timedelta(0) <= since_told < RENEWED_EVERY  # a clock that goes back hides no hour
                )
                operators = (
                    await _to_its_end(asyncio.to_thread(self._reader.operators, self._now())) if of_operators else None
                )
            except KernfedError as err:
                if readable:
                    log.error("revocations cannot be read; still trying", error=str(err))
                readable = False
                continue
            if not readable:
                log.info("revocations can be read again")
            readable = True
            self._add(new)
            for revocation in new:
                log.warning(
                    "certificate revoked",
                    principal=f"{revocation.role}/{revocation.name}",
                    serial=revocation.serial,
                    why=revocation.why,
                )
                self.on_revoked(revocation, certificates)
            if operators is not None:
                self._tell_operators(operators)
            used = unused.intersection(self._seen)
            try:
                if used or over:
                    await _to_its_end(asyncio.to_thread(self._registry.end_renewed, used, self._now()))
                tidy = True
            except KernfedError as err:
                if tidy:
                    log.error("renewed certificates cannot be ended; still trying", error=str(err))
                tidy = False

    def _tell_operators(self, operators: Sequence[OperatorCertificate]) -> None:
        self._told_at = self._now()
        self._on_operators(not_believed(operators), self._last)

    def _look(self) -> tuple[list[Revocation], tuple[frozenset[str], bool]]:
        return self._reader.revocations(self._last), self._reader.unused(self._now())

    def _add(self, revocations: list[Revocation]) -> None:
        for revocation in revocations:
            self._serials.add(revocation.serial)
            self._last = max(self._last, revocation.number)


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work in a thread, also where the caller is cancelled meanwhile: what it uses is closed afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
