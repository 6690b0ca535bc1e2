"""Revocations as they happen: the registry is polled, and whoever is revoked is cut off in mid-session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from kernfed.errors import KernfedError
from kernfed.pki.records import Revocation
from kernfed.pki.registry import Registry

log = structlog.get_logger(__name__)

POLL_INTERVAL_S = 1.0


class RevocationWatch:
    """Knows every revoked serial number, and tells of new ones within about a second."""

    def __init__(
        self,
        registry: Registry,
        on_revoked: Callable[[Revocation], None] = lambda revocation: None,
        *,
        interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        """Read the revocations so far (blocking, once) and keep them in memory.

        Args:
            registry: Registry that the operator's commands write to.
            on_revoked: Called on the event loop for each new revocation; ends that client's session.
            interval_s: Seconds between two looks.
        """
        self._registry = registry
        self.on_revoked = on_revoked
        self._interval_s = interval_s
        self._serials: set[str] = set()
        self._last = 0
        self._add(registry.revocations())

    def is_revoked(self, serial: str) -> bool:
        """Whether a serial number was revoked; from memory."""
        return serial in self._serials

    async def run(self) -> None:
        """Poll until cancelled. A registry that cannot be read is logged once, and asked again."""
        readable = True
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                new = await asyncio.to_thread(self._registry.revocations, self._last)
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
                self.on_revoked(revocation)

    def _add(self, revocations: list[Revocation]) -> None:
        for revocation in revocations:
            self._serials.add(revocation.serial)
            self._last = max(self._last, revocation.number)
